#include "weft/data/conversations/packed_order.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Batches lie in a few windows: the one that is trained on, the one that is prepared, that of an evaluation.
constexpr size_t kMostKept = 8;

}  // namespace

std::vector<std::vector<size_t>> pack_samples(const std::vector<int64_t>& lengths, int64_t capacity) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto rank = [&](size_t sample) { return 4 * lengths[sample] > capacity ? lengths[sample] : 0; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank(a) > rank(b); });
  std::vector<std::vector<size_t>> rows;
  std::multimap<int64_t, size_t> room;  // what is left of each row
  for (const size_t sample : order) {
    const auto fit = room.lower_bound(lengths[sample]);
    size_t row = rows.size();
    int64_t left = capacity;
    if (fit != room.end()) {
      row = fit->second;
      left = fit->first;
      room.erase(fit);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(sample);
    room.emplace(std::max<int64_t>(left - lengths[sample], 0), row);
  }
  for (std::vector<size_t>& row : rows) std::sort(row.begin(), row.end());
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::vector<std::vector<size_t>> pack_shuffled(const std::vector<int64_t>& lengths, int64_t capacity) {
  std::vector<std::vector<size_t>> rows;
  if (lengths.empty()) return rows;
  const SeededPermutation shuffled(std::ssize(lengths), 0);
  for (int64_t first = 0; first < std::ssize(lengths); first += kPackedWindow) {
    const int64_t end = std::min(first + kPackedWindow, std::ssize(lengths));
    std::vector<size_t> places;
    std::vector<int64_t> window;
    for (int64_t i = first; i < end; ++i) {
      places.push_back(static_cast<size_t>(shuffled(i)));
      window.push_back(lengths[places.back()]);
    }
    for (std::vector<size_t>& row : pack_samples(window, capacity)) {
      for (size_t& sample : row) sample = places[sample];
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

PackedOrder::PackedOrder(Samples samples, std::shared_ptr<const RecordLengths> lengths, int64_t capacity)
    : samples_(std::move(samples)), lengths_(std::move(lengths)), capacity_(capacity) {
  WEFT_CHECK(samples_.epoch > 0, "rows are packed of no sample");
  epoch_rows_ = first_row_of(windows_of_epoch());
  if (epoch_rows_ == 0) return;
  double tokens = 0;
  for (int64_t sample = 0; sample < samples_.epoch; ++sample) {
    const int64_t length = length_of(samples_.record_of(sample));
    tokens += static_cast<double>(length);
    epoch_records_ += length > 0 ? 1 : 0;
  }
  fill_share_ = tokens / (static_cast<double>(epoch_rows_) * static_cast<double>(capacity_));
}

PackedOrder::Window PackedOrder::pack(int64_t number) const {
  const int64_t epoch = number / windows_of_epoch(), first = number % windows_of_epoch() * kPackedWindow;
  const int64_t end = std::min(first + kPackedWindow, samples_.epoch);
  std::vector<Place> places, broken;
  std::vector<int64_t> lengths;
  for (int64_t sample = first; sample < end; ++sample) {
    const Place place = samples_.record_of(epoch * samples_.epoch + sample);
    const int64_t length = length_of(place);
    (length > 0 ? places : broken).push_back(place);
    if (length > 0) lengths.push_back(length);
  }
  Window window{.number = number};
  for (const std::vector<size_t>& packed : pack_samples(lengths, capacity_)) {
    Row& row = window.rows.emplace_back();
    for (const size_t sample : packed) row.records.push_back(places[sample]);
  }
  // Evenly, so that no step is told more of them than their share.
  for (size_t i = 0; i < broken.size() && !window.rows.empty(); ++i)
    window.rows[i * window.rows.size() / broken.size()].broken.push_back(broken[i]);
  return window;
}

int64_t PackedOrder::first_row_of(int64_t window) const {
  while (std::ssize(first_rows_) <= window) {
    const Window next = pack(std::ssize(first_rows_) - 1);
    first_rows_.push_back(first_rows_.back() + std::ssize(next.rows));
  }
  return first_rows_[static_cast<size_t>(window)];
}

std::shared_ptr<const PackedOrder::Window> PackedOrder::window_with(int64_t row) const {
  const std::lock_guard lock(mutex_);
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    const Window& window = **it;
    if (row < window.first_row || row >= window.first_row + std::ssize(window.rows)) continue;
    kept_.splice(kept_.begin(), kept_, it);
    return kept_.front();
  }
  while (first_rows_.back() <= row) first_row_of(std::ssize(first_rows_));
  const auto behind = std::upper_bound(first_rows_.begin(), first_rows_.end(), row);
  const int64_t number = behind - first_rows_.begin() - 1;
  Window window = pack(number);
  window.first_row = first_rows_[static_cast<size_t>(number)];
  kept_.push_front(std::make_shared<const Window>(std::move(window)));
  if (kept_.size() > kMostKept) kept_.pop_back();
  return kept_.front();
}

PackedOrder::Row PackedOrder::row(int64_t index) const {
  const std::shared_ptr<const Window> window = window_with(index);
  return window->rows[static_cast<size_t>(index - window->first_row)];
}

int64_t PackedOrder::rows_of(double epochs) const {
  const std::lock_guard lock(mutex_);
  if (epochs > kCountedEpochs) {
    const auto counted = static_cast<double>(first_row_of(kCountedEpochs * windows_of_epoch()));
    return static_cast<int64_t>(std::ceil(counted / kCountedEpochs * epochs));
  }
  const auto whole = static_cast<int64_t>(std::floor(epochs));
  const int64_t first = first_row_of(whole * windows_of_epoch());
  if (epochs == static_cast<double>(whole)) return first;
  const int64_t next = first_row_of((whole + 1) * windows_of_epoch());
  return first +
         static_cast<int64_t>(std::ceil((epochs - static_cast<double>(whole)) * static_cast<double>(next - first)));
}

}  // namespace weft
