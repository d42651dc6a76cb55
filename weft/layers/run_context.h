#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"
#include "weft/layers/dropout.h"
#include "weft/layers/loss_settings.h"
#include "weft/layers/weight_gradients.h"

namespace weft {

/// The places of a block at which activations change their layout when tensor parallelism spreads it. On one rank
/// nothing happens there. Between blocks rows are whole on every rank or, with sequence parallelism, divided.
struct ActivationSites {
  /// Rows as between blocks become whole ones, the input of weights that are cut by columns.
  std::function<at::Tensor(const at::Tensor&)> enter;
  /// The summands that weights which are cut by rows give become rows as between blocks.
  std::function<at::Tensor(const at::Tensor&)> leave;
  /// Summands become whole rows on every rank.
  std::function<at::Tensor(const at::Tensor&)> sum;
  /// Whole rows, the same on every rank, become rows as between blocks.
  std::function<at::Tensor(const at::Tensor&)> divide;
  /// Rows as between blocks become whole ones that every rank does the same with.
  std::function<at::Tensor(const at::Tensor&)> gather;
  bool divides_rows = false;  ///< between blocks
  int64_t first_row = 0;      ///< that this rank has between blocks
  int64_t num_rows = 0;
  std::optional<Group> vocabulary;  ///< the ranks that share out the vocabulary, in order
};

/// How layers are being run: handed down with every call, so that nothing is kept elsewhere.
struct RunContext {
  WeightGradients* deferred = nullptr;     ///< nothing: weight gradients are computed with the backward
  const ActivationSites* sites = nullptr;  ///< nothing: one rank
  bool recomputes_attention = false;       ///< the core runs again in the backward instead of keeping its results
  bool recomputes_logits = false;          ///< a loss makes them again, some rows at a time, instead of keeping all
  /// Of every router's load-balancing loss in what is minimised. Ranks that share experts out have one router, so
  /// their scales add up.
  double balance_scale = 0;
  /// Where routers put the value of theirs: once more for a layer that is recomputed. It must outlive the backward.
  std::vector<at::Tensor>* balance_losses = nullptr;
  /// The ranks whose rows are one microbatch's: its loss is that of all their rows together, and each has the part that
  /// its own rows add. All of them run their routers alike, also without rows. Nothing: it is here alone.
  const Group* balance = nullptr;
  const Group* experts = nullptr;  ///< the ranks that share out the experts; nothing: all are here
  /// Experts are whole and on tensor-parallel ranks too: each routes the rows that it has between blocks.
  bool experts_over_tp = false;
  /// Where routers put how many rows chose each expert, int64 on their device: once more for a layer that is
  /// recomputed. It must outlive the backward.
  std::vector<at::Tensor>* expert_rows = nullptr;
  LossSettings loss = {};                 ///< where a model is trained
  const DropoutDraws* dropout = nullptr;  ///< nothing: nothing is dropped, as where a model is not trained

  at::Tensor enter(const at::Tensor& x) const { return sites != nullptr ? sites->enter(x) : x; }
  at::Tensor leave(const at::Tensor& x) const { return sites != nullptr ? sites->leave(x) : x; }
  at::Tensor sum(const at::Tensor& x) const { return sites != nullptr ? sites->sum(x) : x; }
  at::Tensor divide(const at::Tensor& x) const { return sites != nullptr ? sites->divide(x) : x; }
  at::Tensor gather(const at::Tensor& x) const { return sites != nullptr ? sites->gather(x) : x; }
  /// Drops elements of rows as between blocks.
  at::Tensor drop(const at::Tensor& x, double probability, int64_t layer, DropoutSite site) const {
    if (dropout == nullptr || probability == 0) return x;
    return drop_elements(x, own_rows(dropout->rows), probability, dropout_key(*dropout, layer, site));
  }
  bool divides_rows() const { return sites != nullptr && sites->divides_rows; }
  /// Of data that every rank has whole, `per_row` entries a row, what belongs to this rank's rows between blocks.
  at::Tensor own_rows(const at::Tensor& whole, int64_t per_row = 1) const {
    return divides_rows() ? whole.narrow(0, sites->first_row * per_row, sites->num_rows * per_row) : whole;
  }
};

}  // namespace weft
