#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

namespace weft {

/// Whose kernels a step is walked for: they differ in what they need in passing.
enum class WalkedDevice { kProcessor, kGpu };

/// Bytes that are held while a step is walked through without being run, and the most of them.
class ByteCount {
 public:
  explicit ByteCount(WalkedDevice device = WalkedDevice::kProcessor) : device_(device) {}

  bool is_of_processor() const { return device_ == WalkedDevice::kProcessor; }
  int64_t held() const { return held_; }
  int64_t peak() const { return peak_; }
  /// The same without what may have been there in passing.
  int64_t sure_peak() const { return sure_peak_; }
  void forget_peak() { peak_ = sure_peak_ = held_; }

  void add(int64_t bytes) {
    held_ += bytes;
    peak_ = std::max(peak_, held_);
    sure_peak_ = std::max(sure_peak_, held_);
  }
  /// A kernel may have so much for itself, depending on the processor.
  void pass(int64_t bytes) { peak_ = std::max(peak_, held_ + bytes); }
  void remove(int64_t bytes) { held_ -= bytes; }

 private:
  WalkedDevice device_;
  int64_t held_ = 0;
  int64_t peak_ = 0;
  int64_t sure_peak_ = 0;
};

/// A tensor that is only counted: its bytes are held as long as a copy of this lives.
class CountedTensor {
 public:
  CountedTensor() = default;
  CountedTensor(ByteCount& count, int64_t bytes) : memory_(std::make_shared<Memory>(count, bytes)) {}

  bool is_defined() const { return memory_ != nullptr; }
  /// Whether others refer to the same memory.
  bool is_shared() const { return memory_.use_count() > 1; }
  bool is_same(const CountedTensor& other) const { return memory_ == other.memory_; }
  const void* memory() const { return memory_.get(); }
  /// How many refer to it.
  int64_t num_references() const { return memory_.use_count(); }
  int64_t bytes() const { return memory_ ? memory_->bytes : 0; }
  void reset() { memory_.reset(); }

 private:
  struct Memory {
    Memory(ByteCount& count_in, int64_t bytes_in) : count(count_in), bytes(bytes_in) { count.add(bytes); }
    ~Memory() { count.remove(bytes); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    ByteCount& count;
    int64_t bytes;
  };

  std::shared_ptr<Memory> memory_;
};

}  // namespace weft
