#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

/// A permutation of 0 to size - 1 that depends on its seed alone and takes no memory: any of its values in a few steps.
class SeededPermutation {
 public:
  SeededPermutation(int64_t size, uint64_t seed);

  int64_t operator()(int64_t index) const;

 private:
  int64_t size_;
  int half_bits_;
  uint64_t seed_;
};

/// Which record of which set is sample n, for all n from 0 on: a function of seed and n, with no state to save.
class SampleOrder {
 public:
  struct Set {
    int64_t num_records = 0;
    double weight = 0;         ///< 0 for all sets: as many samples as each has records
    int64_t num_held_out = 0;  ///< records that training does not see
  };
  struct Place {
    size_t set = 0;
    int64_t record = 0;

    bool operator==(const Place&) const = default;
  };

  /// Every set has records beside those held out, or none of its weight counts.
  SampleOrder(std::vector<Set> sets, uint64_t seed);

  /// Samples after which every record was seen once; with weights, the records of all sets together.
  int64_t epoch_samples() const { return epoch_; }
  /// `attempt` above 0 is what stands in for a sample whose record is broken.
  Place at(int64_t sample, int64_t attempt = 0) const;
  /// The held-out records of all sets, in order.
  int64_t num_held_out() const { return held_out_; }
  Place held_out(int64_t index) const;

 private:
  Place of_set(size_t set, int64_t index, int64_t attempt) const;
  int64_t trained_records(size_t set) const { return sets_[set].num_records - sets_[set].num_held_out; }

  std::vector<Set> sets_;
  uint64_t seed_;
  int64_t epoch_ = 0;
  int64_t held_out_ = 0;
  bool is_weighted_ = false;
  std::vector<int64_t> quotas_;  ///< of each set, in a block of samples
  int64_t block_ = 0;
};

}  // namespace weft
