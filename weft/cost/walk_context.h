#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "weft/cost/counted_tensor.h"
#include "weft/meaning/op_share.h"
#include "weft/mesh/box.h"
#include "weft/mesh/segments.h"
#include "weft/spec/precision.h"

namespace weft {

/// What a forward leaves for its backward: steps that each turn an output's gradient into an input's and hold what they
/// need for that until they are done.
class WayBack {
 public:
  using Step = std::function<CountedTensor(const CountedTensor& gradient)>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  bool is_empty() const { return steps_.empty(); }

  /// From the last step to the first.
  CountedTensor run(CountedTensor gradient) {
    while (!steps_.empty()) {
      const Step step = std::move(steps_.back());
      steps_.pop_back();
      CountedTensor next = step(gradient);
      gradient = std::move(next);
    }
    return gradient;
  }

 private:
  std::vector<Step> steps_;
};

/// Of a row's or a class's number.
inline constexpr int64_t kIndexBytes = 8;
inline constexpr int64_t kFlagBytes = 1;

inline int64_t element_bytes_of(Precision precision) {
  return static_cast<int64_t>(num_bytes(precision));
}

/// Weight gradients that wait for their turn, with what they are made of.
using WeightQueue = std::deque<std::function<void()>>;

/// How the rows of a module are shared out to ranks of context parallelism, as one of them attends with the others.
struct RowsInRing {
  int64_t ulysses = 1;                      ///< ranks that exchange heads for rows
  int64_t place = 0;                        ///< among them
  int64_t group_rows = 0;                   ///< that all of them have
  bool is_scattered = true;                 ///< rows of the group are put in order after they came
  int64_t group = 0;                        ///< of the ring
  std::vector<std::vector<Range>> in_ring;  ///< rows of every group
  PackedSegments segments;                  ///< of all rows
};

/// How a microbatch goes through the blocks of a module on one rank.
struct WalkContext {
  ByteCount* count = nullptr;
  WayBack* way = nullptr;        ///< nothing: no backward follows
  WeightQueue* queue = nullptr;  ///< nothing: weight gradients are made with the backward
  int64_t element_bytes = 4;     ///< of activations
  int64_t exact_bytes = 4;       ///< of numbers that are summed up: 4, or 8 where activations have 8
  bool adds_in_place = true;     ///< gradients of weights have the type of activations
  bool trains = true;            ///< the operator's weight
  bool trains_bias = true;       ///< or its second weight
  bool passes_on = true;         ///< the operator's input has a gradient
  bool recomputes_attention = false;
  OpShare share;
  bool divides_rows = false;                             ///< between blocks, to tensor-parallel ranks
  int64_t rows = 0;                                      ///< that this rank has between blocks
  int64_t whole_rows = 0;                                ///< and inside tensor-parallel regions
  std::shared_ptr<const std::vector<int64_t>> segments;  ///< rows of those that attend to each other, all here
  std::shared_ptr<const RowsInRing> shared;              ///< where rows of a segment are on several ranks
  int64_t kernel_threads = 1;                            ///< each with its own workspace
  bool keeps_activated = false;                          ///< what an activation gives, for the product behind it
  CountedTensor* apart = nullptr;  ///< the gradient of a product's weight; nothing: its parameter has memory for it

  CountedTensor make(int64_t bytes) const { return {*count, bytes}; }
  /// Of activations.
  CountedTensor rows_of(int64_t num_rows, int64_t width) const { return make(num_rows * width * element_bytes); }
  CountedTensor exact_rows_of(int64_t num_rows, int64_t width) const { return make(num_rows * width * exact_bytes); }
  /// The same without a way back, where nothing goes.
  WalkContext going_back(bool goes) const {
    WalkContext context = *this;
    if (!goes) context.way = nullptr;
    return context;
  }
  bool is_half() const { return element_bytes < exact_bytes; }
  /// Rows of half precision on a GPU go through own kernels, which make nothing in passing.
  bool has_own_kernels() const { return is_half() && !count->is_of_processor(); }
  /// These make what an activation gives a second time, with the gradient of the product behind it.
  bool activates_again() const { return has_own_kernels() && !keeps_activated; }
  bool is_spread() const { return share.tp > 1; }
  void add_step(WayBack::Step step) const {
    if (way != nullptr) way->add(std::move(step));
  }
};

}  // namespace weft
