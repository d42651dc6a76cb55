#pragma once

#include <list>
#include <tuple>

#include "weft/layers/run_context.h"
#include "weft/meaning/row_changes.h"
#include "weft/parallelize/cut_parameter.h"
#include "weft/tensor/mesh_groups.h"
#include "weft/tensor/redistribute.h"

namespace weft {

/// The layout changes of tensor and sequence parallelism on one rank.
class TensorParallel {
 public:
  /// `groups` is of a mesh with the tensor-parallel axis alone.
  TensorParallel(MeshGroups groups, bool divides_rows);

  TensorShare share() const { return {groups_.mesh().num_ranks(), groups_.position()}; }
  Group group() const { return groups_.along({0}); }
  const MeshGroups& groups() const { return groups_; }
  bool divides_rows() const { return divides_rows_; }

  /// What layers do with activations of so many rows altogether.
  ActivationSites sites(int64_t num_rows);
  /// Rows of so many that this rank has between blocks.
  int64_t local_rows(int64_t num_rows) const;
  Range rows_between(int64_t num_rows) const;
  /// Of the rows that this rank has between blocks, those that it sends to another stage.
  Range rows_sent(int64_t num_rows) const;
  /// Whether what arrives from another stage is a part of what this rank has between blocks.
  bool joins_rows() const { return !divides_rows_ && share().num_ranks > 1; }
  /// The parts that arrived on all ranks, of so many rows altogether.
  at::Tensor join(const at::Tensor& part, int64_t num_rows);
  size_t num_known() const { return known_.size(); }
  static constexpr size_t kMostKnown = 64;

 private:
  using Key = std::tuple<RowChange, int64_t, int64_t>;  ///< with rows altogether and columns

  Redistribution make(const Key& key) const;
  at::Tensor change(RowChange which, const at::Tensor& x, int64_t num_rows);

  MeshGroups groups_;
  bool divides_rows_;
  /// The last ones that were used, the latest first. Every rank of the group uses the same ones in the same order.
  std::list<std::pair<Key, Redistribution>> known_;
};

}  // namespace weft
