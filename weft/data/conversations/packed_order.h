#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "weft/data/conversations/sample_order.h"

namespace weft {

/// Tokens of every record, by set; 0: the record cannot be used.
using RecordLengths = std::vector<std::vector<int32_t>>;

/// Puts samples of these lengths together into rows of at most `capacity` tokens, each into the fullest row that has
/// room for it: first those longer than a quarter of a row, the longest first, then the others in their order, so that
/// samples of a kind, which are of similar lengths, are not put together. Rows hold places in `lengths`, and stand in
/// the order of the first of them; samples longer than a row stand alone.
std::vector<std::vector<size_t>> pack_samples(const std::vector<int64_t>& lengths, int64_t capacity);

/// Samples among which rows are packed: more fill rows better, fewer keep the order closer to the shuffled one.
inline constexpr int64_t kPackedWindow = 1024;

/// Which records are row n, for all n from 0 on: a function of the order, the lengths and n, with no state to save. The
/// samples of an epoch are packed window by window, in their order; no row has samples of two epochs.
class PackedOrder {
 public:
  using Place = SampleOrder::Place;
  struct Samples {
    int64_t epoch = 0;                        ///< samples after which every record was seen once
    std::function<Place(int64_t)> record_of;  ///< of any sample from 0 on
  };
  /// There are rows only where some record can be used.
  PackedOrder(Samples samples, std::shared_ptr<const RecordLengths> lengths, int64_t capacity);

  struct Row {
    std::vector<Place> records;
    std::vector<Place> broken;  ///< records of the window that cannot be used, each in one row
  };
  /// Several threads may ask.
  Row row(int64_t index) const;

  /// Rows of the first epoch; later ones may have a few more or fewer.
  int64_t epoch_rows() const { return epoch_rows_; }
  /// Rows that so many epochs take. Those behind the first `kCountedEpochs` are taken to be as long as these are on
  /// average: to pack them all would take longer than a run that never gets there.
  int64_t rows_of(double epochs) const;
  static constexpr int64_t kCountedEpochs = 64;
  /// Usable records in the rows of the first epoch, and the share of these rows that their tokens fill.
  int64_t epoch_records() const { return epoch_records_; }
  double fill_share() const { return fill_share_; }

 private:
  struct Window {
    int64_t number = 0;
    int64_t first_row = 0;
    std::vector<Row> rows;
  };
  int64_t windows_of_epoch() const { return (samples_.epoch + kPackedWindow - 1) / kPackedWindow; }
  Window pack(int64_t number) const;
  int64_t length_of(const Place& place) const { return (*lengths_)[place.set][static_cast<size_t>(place.record)]; }
  /// The first row of a window; packs those before it that nobody has asked for yet.
  int64_t first_row_of(int64_t window) const;
  std::shared_ptr<const Window> window_with(int64_t row) const;

  Samples samples_;
  std::shared_ptr<const RecordLengths> lengths_;
  int64_t capacity_;
  int64_t epoch_rows_ = 0;
  int64_t epoch_records_ = 0;
  double fill_share_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<int64_t> first_rows_ = {0};          ///< of windows, and of the one after the last known
  mutable std::list<std::shared_ptr<const Window>> kept_;  ///< that were asked for last
};

/// The same for samples that were looked at once, without an order: rows of places in `lengths`.
std::vector<std::vector<size_t>> pack_shuffled(const std::vector<int64_t>& lengths, int64_t capacity);

}  // namespace weft
