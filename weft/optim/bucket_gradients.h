#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "weft/comm/group.h"
#include "weft/optim/parameter_buckets.h"
#include "weft/tensor/page_pool.h"

namespace weft {

struct GradientOptions {
  enum class Way : uint8_t {
    kAllReduce,               ///< once a step; everyone has all sums
    kReduceScatter,           ///< once a step; everyone has the sums of what it owns
    kScatterEveryMicrobatch,  ///< whole gradients never stay
  };
  Way way = Way::kAllReduce;
  at::ScalarType type = at::kFloat;      ///< as layers add to them and ranks sum them
  at::ScalarType sum_type = at::kFloat;  ///< of sums over microbatches that are scattered one by one
  bool overlap = true;
};

/// The gradients of a stage's parameters on their way to the ranks that own them.
class BucketGradients {
 public:
  BucketGradients(std::shared_ptr<const ParameterBuckets> buckets, Group group, const GradientOptions& options);

  void begin_step();
  void expect(Parameter& parameter);
  void ready(const Parameter& parameter);
  void microbatch_done();
  void start_reduce();
  void finish_reduce();

  /// The owned elements of a trained bucket, summed over ranks.
  at::Tensor reduced(size_t bucket) const;
  int64_t held_elements() const;
  int64_t peak_elements() const { return peak_elements_; }  ///< since the last step began

 private:
  /// A bucket whose sum is under way.
  struct Flight {
    size_t bucket = 0;
    at::Tensor whole;  ///< what is sent, if it is to be freed afterwards
    at::Tensor part;   ///< what comes back, if it is to be added
    Work work;
  };

  bool scatters_every_microbatch() const { return options_.way == GradientOptions::Way::kScatterEveryMicrobatch; }
  void expect_all();
  void send_complete();
  void send(size_t bucket);
  void land_first();
  void land_all();
  at::Tensor take_whole(size_t bucket);
  void place_all_in_whole(size_t bucket);
  /// Moves the gradient of a slot into its bucket's memory, where it then stays.
  void place_in_whole(size_t bucket, size_t place);
  void note_peak() { peak_elements_ = std::max(peak_elements_, held_elements()); }

  std::shared_ptr<const ParameterBuckets> buckets_;
  Group group_;
  GradientOptions options_;
  PagePool pages_;                            ///< of whole gradients that stay for a step
  std::vector<size_t> trained_;               ///< buckets, in the order in which they are sent
  std::vector<at::Tensor> gradients_;         ///< by bucket: sums of what is owned, where they are scattered
  std::vector<at::Tensor> wholes_;            ///< by bucket: of a microbatch until they are scattered, or of the step
  std::vector<std::vector<bool>> is_ready_;   ///< by bucket and slot
  std::vector<std::vector<bool>> is_placed_;  ///< by bucket and slot: in its bucket's whole
  std::vector<size_t> num_missing_;           ///< by bucket
  size_t num_sent_ = 0;                       ///< of trained_
  bool is_reduced_ = false;
  std::deque<Flight> flights_;
  int64_t largest_bucket_ = 0;
  int64_t peak_elements_ = 0;
};

}  // namespace weft
