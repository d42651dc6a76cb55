#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "weft/comm/group.h"
#include "weft/optim/parameter_buckets.h"

namespace weft {

struct ValueOptions {
  at::ScalarType value_type = at::kBFloat16;
  at::ScalarType master_type = at::kFloat;
  bool has_shards = false;  ///< ranks own different elements, so that new values must be gathered
  bool releases = false;    ///< whole values come and go; between, each rank has those that it owns
  bool overlap = true;
};

/// The values of a stage's parameters: whole in flat memory that the parameters are views of, and the owned part in the
/// precision of the optimizer.
class BucketValues {
 public:
  /// Takes the parameters' elements over, bucket by bucket, and gives parameters without memory zeros. What comes and
  /// goes is not there yet.
  BucketValues(std::shared_ptr<const ParameterBuckets> buckets, Group group, const ValueOptions& options);

  /// The owned elements as the optimizer changes them. Of frozen buckets, and where types are the same, they are the
  /// values themselves.
  const at::Tensor& master(size_t bucket) const { return parts_[bucket].master; }

  /// The owned elements as values, where they are not the masters themselves.
  at::Tensor owned_values(size_t bucket) const {
    return parts_[bucket].master.is_same(parts_[bucket].owned) ? at::Tensor() : parts_[bucket].owned;
  }
  /// Owned values are new: all are on the way when this returns, if values are kept whole; otherwise what was gathered
  /// is released.
  void publish(size_t bucket);
  /// Owned values become what the masters are, and are published.
  void publish_masters(size_t bucket);
  /// The other way round: the owned part of values that someone has written.
  void adopt();

  void finish_arrivals() { finish_arrivals({}); }
  void start_gather(std::optional<int64_t> bundle);
  void gather(std::optional<int64_t> bundle);
  void release(std::optional<int64_t> bundle);

  int64_t held_elements() const;
  int64_t peak_elements() const { return peak_elements_; }  ///< since the last step began
  void forget_peak() { peak_elements_ = held_elements(); }
  int64_t held_masters() const;  ///< that are not values at the same time

 private:
  struct Part {
    at::Tensor whole;   ///< the parameters' memory
    at::Tensor owned;   ///< in the values' type: a part of `whole`, or memory of its own where that is released
    at::Tensor master;  ///< `owned` itself where the types are the same
    bool is_released = false;
    std::optional<Work> arriving;
  };

  Part make_part(size_t bucket) const;
  void start_all_gather(size_t bucket);
  void finish_arrivals(std::optional<int64_t> bundle);
  void release_bucket(size_t bucket);
  std::vector<size_t> of_bundle(std::optional<int64_t> bundle) const;

  std::shared_ptr<const ParameterBuckets> buckets_;
  Group group_;
  ValueOptions options_;
  std::vector<Part> parts_;
  int64_t peak_elements_ = 0;
};

}  // namespace weft
