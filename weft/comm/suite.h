#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/comm/half.h"
#include "weft/comm/world.h"

namespace weft::suite {

/// Where the suite's memory is, if not with the host.
class MemoryPlace {
 public:
  virtual ~MemoryPlace() = default;
  virtual Device device() const = 0;
  virtual void* stream() const = 0;
  virtual std::shared_ptr<std::byte> allocate(size_t num_bytes) const = 0;
  /// In order with the stream.
  virtual void write(std::byte* to, const std::vector<std::byte>& bytes) const = 0;
  virtual std::vector<std::byte> read(const std::byte* from, size_t num_bytes) const = 0;
};

/// Of the test that runs; null: the host's. All ranks of a process have one.
inline const MemoryPlace* current_place = nullptr;

/// Of a buffer: less where messages are cut so small that more would only take longer.
inline int64_t most_elements = INT64_MAX;

/// A way to have ranks; the suite runs on every one that a test program defines.
struct Ranks {
  std::string name;
  int64_t size = 1;
  /// Only one of the ranks is there; the others hold zeros.
  bool is_fake = false;
  std::function<void(const std::function<void(World&)>&)> run;
  std::shared_ptr<MemoryPlace> place = nullptr;
  /// Sums are the same bits as everywhere else.
  bool sums_in_rank_order = true;
};

/// Tests are listed by this, so it must not change from run to run.
inline void PrintTo(const Ranks& ranks, std::ostream* out) {  // NOLINT(readability-identifier-naming)
  *out << ranks.name;
}

/// Defined once in each test program.
std::vector<Ranks> all_ranks();
/// The same: says on standard error that something was skipped, so that it is not overlooked.
void tell_skipped(const std::string& reason);

class OnRanks : public testing::TestWithParam<Ranks> {
 protected:
  void TearDown() override { current_place = nullptr; }
  void run(const std::function<void(World&)>& body) {
    current_place = GetParam().place.get();
    GetParam().run(body);
  }
  bool is_fake() const { return GetParam().is_fake; }
};

inline std::string name_of_ranks(const testing::TestParamInfo<Ranks>& info) {
  return info.param.name;
}

/// Elements of any type, as numbers. All numbers in the suite are exact in the type unless said otherwise.
using Numbers = std::vector<double>;

inline std::vector<std::byte> encode(const Numbers& numbers, DataType type) {
  std::vector<std::byte> bytes(numbers.size() * static_cast<size_t>(bytes_per_element(type)));
  const auto put = [&](size_t i, auto value) { std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value)); };
  for (size_t i = 0; i < numbers.size(); ++i) {
    switch (type) {
      case DataType::kFp64:
        put(i, numbers[i]);
        break;
      case DataType::kFp32:
        put(i, static_cast<float>(numbers[i]));
        break;
      case DataType::kBf16:
        put(i, float_to_bf16(static_cast<float>(numbers[i])));
        break;
      case DataType::kFp16:
        put(i, float_to_fp16(static_cast<float>(numbers[i])));
        break;
      case DataType::kInt64:
        put(i, static_cast<int64_t>(numbers[i]));
        break;
      case DataType::kInt32:
        put(i, static_cast<int32_t>(numbers[i]));
        break;
      case DataType::kUint8:
        put(i, static_cast<uint8_t>(static_cast<int64_t>(numbers[i])));
        break;
      case DataType::kBool:
        put(i, static_cast<uint8_t>(numbers[i] != 0));
        break;
    }
  }
  return bytes;
}

/// A buffer with memory of its own: exactly as much as it says, so that sanitizers see every step beyond it.
class Memory {
 public:
  Memory(const Numbers& numbers, DataType type) : Memory(encode(numbers, type), type) {}
  Memory(std::initializer_list<double> numbers, DataType type) : Memory(Numbers(numbers), type) {}
  /// Filled with what no test expects.
  Memory(int64_t count, DataType type)
      : Memory(std::vector<std::byte>(static_cast<size_t>(count * bytes_per_element(type)), std::byte{0x5a}), type) {}
  Memory(std::vector<std::byte> bytes, DataType type)
      : place_(current_place),
        count_(static_cast<int64_t>(bytes.size()) / bytes_per_element(type)),
        type_(type),
        host_(std::move(bytes)) {
    if (place_ == nullptr) return;
    elsewhere_ = place_->allocate(host_.size());
    place_->write(elsewhere_.get(), host_);
  }
  Memory(const Memory& other) : Memory(other.bytes(), other.type_) {}
  Memory(Memory&&) = default;
  Memory& operator=(const Memory&) = delete;
  ~Memory() = default;

  Buffer buffer() {
    if (place_ == nullptr) return {.data = host_.data(), .count = count_, .type = type_};
    return {.data = elsewhere_.get(),
            .count = count_,
            .type = type_,
            .device = place_->device(),
            .stream = place_->stream()};
  }
  std::vector<std::byte> bytes() const {
    return place_ == nullptr ? host_ : place_->read(elsewhere_.get(), host_.size());
  }
  /// Of some of the elements.
  std::vector<std::byte> bytes(int64_t begin, int64_t count) const {
    const std::vector<std::byte> all = bytes();
    const int64_t element = bytes_per_element(type_);
    return {all.begin() + begin * element, all.begin() + (begin + count) * element};
  }
  void put(int64_t begin, const Numbers& numbers) {
    const std::vector<std::byte> part = encode(numbers, type_);
    const auto at = static_cast<size_t>(begin * bytes_per_element(type_));
    if (place_ != nullptr) return place_->write(elsewhere_.get() + at, part);
    std::copy(part.begin(), part.end(), host_.begin() + static_cast<ptrdiff_t>(at));
  }
  /// The only element, an fp64.
  double number() const {
    double value = 0;
    std::memcpy(&value, bytes().data(), sizeof(value));
    return value;
  }
  bool operator==(const Memory& other) const { return bytes() == other.bytes(); }

 private:
  const MemoryPlace* place_;
  int64_t count_;
  DataType type_;
  std::vector<std::byte> host_;  ///< the memory, or as much
  std::shared_ptr<std::byte> elsewhere_;
};

/// A rank's input: small whole numbers that depend on rank, index and seed; 0 for ranks that are not there.
inline Numbers input_of(int64_t rank, int64_t count, DataType type, uint64_t seed = 0) {
  Numbers numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < numbers.size(); ++i) {
    uint64_t bits = (static_cast<uint64_t>(rank) * 1000003 + i * 7919 + seed * 104729 + 12345) * 0x9e3779b97f4a7c15u;
    bits ^= bits >> 29;
    const auto small = static_cast<double>(bits % 13);
    numbers[i] = type == DataType::kBool    ? static_cast<double>(bits % 5 == 0)
                 : type == DataType::kUint8 ? small
                                            : small - 6;
  }
  return numbers;
}

/// The reduction of all ranks' numbers, as the type holds it.
inline Numbers reduced(Reduction reduction, DataType type, const std::vector<Numbers>& inputs) {
  Numbers result = inputs[0];
  for (size_t r = 1; r < inputs.size(); ++r) {
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = reduction == Reduction::kMax ? std::max(result[i], inputs[r][i]) : result[i] + inputs[r][i];
    }
  }
  for (double& value : result) {
    if (type == DataType::kBool) value = value != 0;
    if (reduction != Reduction::kAvg) continue;
    const auto num_ranks = static_cast<double>(inputs.size());
    value = type == DataType::kFp64 ? value / num_ranks
                                    : static_cast<double>(static_cast<float>(value) / static_cast<float>(num_ranks));
  }
  return result;
}

}  // namespace weft::suite
