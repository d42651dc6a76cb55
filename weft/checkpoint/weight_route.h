#pragma once

#include <map>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/checkpoint/stored_part.h"
#include "weft/comm/group.h"

namespace weft {

/// Elements of a weight on a rank: what it wants, or what it has, in memory or in its file.
struct RoutedPart {
  int64_t rank = 0;
  WeightPiece piece;
  ElementRange elements;                    ///< of the piece, flattened
  bool is_trained = true;                   ///< with both moments
  int64_t updates = 0;                      ///< that the moments are of
  std::vector<int64_t> kin;                 ///< ranks that have the same copies as this one; may be empty
  at::ScalarType value_type = at::kFloat;   ///< in which it is wanted
  at::ScalarType moment_type = at::kFloat;  ///< and in which moments are
};

/// Of its value and its moments, in these types.
int64_t stored_bytes(const RoutedPart& part);

/// A box that goes from a part that is there to one that is wanted.
struct RoutedCopy {
  size_t held = 0;
  size_t wanted = 0;
  BoxCopy box;
};

/// Parts by the names of their weights.
class PartIndex {
 public:
  /// `source` is for errors.
  PartIndex(std::vector<RoutedPart> parts, std::string source);

  const std::vector<RoutedPart>& parts() const { return parts_; }
  std::vector<std::string> names() const;

  /// Takes a wanted part together, every element once: from what its rank has, then from its kin, then from the others,
  /// beginning behind its own number, so that copies share the work. Before all of these come the parts of `first`, in
  /// their order. Names what is missing or does not fit.
  Result<std::vector<RoutedCopy>> take(const RoutedPart& wanted, size_t number = 0,
                                       const std::vector<size_t>& first = {}) const;
  /// Whether its rank and its kin hold all of a wanted part, every element once: as ranks do that wrote a checkpoint.
  bool is_held_once(const RoutedPart& wanted) const;
  Error refuse(const std::string& weight, std::string problem, std::string advice) const;

 private:
  std::vector<RoutedPart> parts_;
  std::string source_;
  std::map<std::string, std::vector<size_t>, std::less<>> places_;
  int64_t num_ranks_ = 1;
};

/// A weight that is there and that the model does not have.
Error refuse_unknown_weight(const PartIndex& held, const std::string& name);

/// All that is wanted. Trained parts of weights that were frozen come without moments. A weight that is there and that
/// nobody wants is an error, too.
Result<std::vector<RoutedCopy>> route_weights(const PartIndex& held, const std::vector<RoutedPart>& wanted);

/// The same of parts that lie in files. Where ranks want other parts than they wrote, no element is read twice: of
/// several copies in files one is read and sent to all that want it. Else every rank reads its own, and gets its own
/// bits back.
Result<std::vector<RoutedCopy>> route_files(const PartIndex& held, const std::vector<RoutedPart>& wanted);

/// Who reads each part that lies in a file. A file is read in stretches of parts that lie beside each other, of at
/// least these bytes each: its header and the chunks at the ends of a stretch, which the readers of others read, too,
/// are then little beside it. A stretch is read by the rank that wants most of it and, of several, the one that has
/// least to read; by the rank that wrote it where nobody wants more.
std::vector<int64_t> assign_readers(const PartIndex& held, const std::vector<RoutedPart>& wanted,
                                    const std::vector<RoutedCopy>& copies, int64_t least_bytes);

/// The parts of all ranks, in rank order, on all of them. All call it.
std::vector<RoutedPart> gather_parts(Group& everyone, const std::vector<RoutedPart>& mine);

}  // namespace weft
