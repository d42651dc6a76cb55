#include "weft/comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "weft/base/check.h"
#include "weft/comm/half.h"

namespace weft {
namespace {

/// How elements are stored, and in what they are accumulated.
template <typename Stored, typename Sum>
struct PlainElement {
  using StoredType = Stored;
  using SumType = Sum;
  static Sum load(Stored value) { return value; }
  static Stored store(Sum value) { return value; }
};

struct Bf16Element {
  using StoredType = uint16_t;
  using SumType = float;
  static float load(uint16_t value) { return bf16_to_float(value); }
  static uint16_t store(float value) { return float_to_bf16(value); }
};

struct Fp16Element {
  using StoredType = uint16_t;
  using SumType = float;
  static float load(uint16_t value) { return fp16_to_float(value); }
  static uint16_t store(float value) { return float_to_fp16(value); }
};

struct Add {
  template <typename T>
  static T apply(T sum, T value) {
    if constexpr (std::is_integral_v<T>) {
      using Wrapping = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Wrapping>(sum) + static_cast<Wrapping>(value));
    } else {
      return sum + value;
    }
  }
};

struct Larger {
  template <typename T>
  static T apply(T largest, T value) {
    return value > largest || value != value ? value : largest;
  }
};

/// Elements that are accumulated at a time: few enough to stay in the first-level cache beside the inputs.
constexpr int64_t kBlock = 1024;

template <typename Element, typename Combine>
void reduce_block(std::span<const std::byte* const> inputs, int64_t begin, int64_t size, int64_t divisor,
                  typename Element::SumType* __restrict sums) {
  using Stored = typename Element::StoredType;
  const auto values_of = [&](size_t k) { return reinterpret_cast<const Stored*>(inputs[k]) + begin; };
  const Stored* first = values_of(0);
  if (inputs.size() == 1) {
    for (int64_t i = 0; i < size; ++i) sums[i] = Element::load(first[i]);
  } else {
    const Stored* second = values_of(1);
    for (int64_t i = 0; i < size; ++i) sums[i] = Combine::apply(Element::load(first[i]), Element::load(second[i]));
  }
  for (size_t k = 2; k < inputs.size(); ++k) {
    const Stored* values = values_of(k);
    for (int64_t i = 0; i < size; ++i) sums[i] = Combine::apply(sums[i], Element::load(values[i]));
  }
  if (divisor > 1) {
    for (int64_t i = 0; i < size; ++i) sums[i] /= static_cast<typename Element::SumType>(divisor);
  }
}

/// Elements that are combined at a time where nothing is in the way: a fixed number, so that the compiler needs no loop
/// for them.
constexpr int64_t kRun = 16;

template <typename Combine, typename T>
void combine_apart(const T* __restrict one, const T* __restrict other, T* __restrict out, int64_t count) {
  int64_t begin = 0;
  for (; begin + kRun <= count; begin += kRun) {
    for (int64_t i = begin; i < begin + kRun; ++i) out[i] = Combine::apply(one[i], other[i]);
  }
  for (; begin < count; ++begin) out[begin] = Combine::apply(one[begin], other[begin]);
}

template <typename Combine, typename T>
void combine_into(T* __restrict sum, const T* __restrict other, int64_t count) {
  int64_t begin = 0;
  for (; begin + kRun <= count; begin += kRun) {
    for (int64_t i = begin; i < begin + kRun; ++i) sum[i] = Combine::apply(sum[i], other[i]);
  }
  for (; begin < count; ++begin) sum[begin] = Combine::apply(sum[begin], other[begin]);
}

template <typename Combine>
struct Swapped {
  template <typename T>
  static T apply(T second, T first) {
    return Combine::apply(first, second);
  }
};

/// Straight from two inputs, which are different memory, to an output that may be one of them.
template <typename Combine, typename T>
void combine(const T* one, const T* other, T* out, int64_t count) {
  if (out == one) return combine_into<Combine>(out, other, count);
  if (out == other) return combine_into<Swapped<Combine>>(out, one, count);
  combine_apart<Combine>(one, other, out, count);
}

template <typename Element, typename Combine>
void reduce_blocks(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs, int64_t count,
                   int64_t divisor) {
  using Stored = typename Element::StoredType;
  using Sum = typename Element::SumType;
  constexpr bool kIsPlain = std::is_same_v<Stored, Sum>;
  if constexpr (kIsPlain) {
    // What two processes do with each other's data, in half the time.
    if (inputs.size() == 2 && inputs[0] != inputs[1] && outputs.size() == 1 && divisor == 1) {
      return combine<Combine>(reinterpret_cast<const Stored*>(inputs[0]), reinterpret_cast<const Stored*>(inputs[1]),
                              reinterpret_cast<Stored*>(outputs[0]), count);
    }
  }
  // Summed up apart from the outputs, as an output may be an input.
  Sum sums[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    reduce_block<Element, Combine>(inputs, begin, size, divisor, sums);
    Stored converted[kIsPlain ? 1 : kBlock];
    const void* results = sums;
    if constexpr (!kIsPlain) {
      for (int64_t i = 0; i < size; ++i) converted[i] = Element::store(sums[i]);
      results = converted;
    }
    for (std::byte* output : outputs) {
      std::memcpy(output + begin * static_cast<int64_t>(sizeof(Stored)), results,
                  static_cast<size_t>(size) * sizeof(Stored));
    }
  }
}

template <typename Element>
void reduce_elements(Reduction reduction, std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                     int64_t count) {
  if (reduction == Reduction::kMax) return reduce_blocks<Element, Larger>(inputs, outputs, count, 1);
  const auto divisor = reduction == Reduction::kAvg ? static_cast<int64_t>(inputs.size()) : 1;
  reduce_blocks<Element, Add>(inputs, outputs, count, divisor);
}

}  // namespace

std::string_view name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kMax:
      return "max";
    case Reduction::kAvg:
      break;
  }
  return "avg";
}

bool can_reduce(Reduction reduction, DataType type) {
  return reduction != Reduction::kAvg || is_floating(type);
}

void reduce(Reduction reduction, DataType type, std::span<const std::byte* const> inputs,
            std::span<std::byte* const> outputs, int64_t count) {
  WEFT_CHECK(!inputs.empty(), "nothing to reduce");
  WEFT_CHECK(can_reduce(reduction, type), "{} of {}", name_of(reduction), name_of(type));
  switch (type) {
    case DataType::kFp64:
      return reduce_elements<PlainElement<double, double>>(reduction, inputs, outputs, count);
    case DataType::kFp32:
      return reduce_elements<PlainElement<float, float>>(reduction, inputs, outputs, count);
    case DataType::kBf16:
      return reduce_elements<Bf16Element>(reduction, inputs, outputs, count);
    case DataType::kFp16:
      return reduce_elements<Fp16Element>(reduction, inputs, outputs, count);
    case DataType::kInt64:
      return reduce_elements<PlainElement<int64_t, int64_t>>(reduction, inputs, outputs, count);
    case DataType::kInt32:
      return reduce_elements<PlainElement<int32_t, int32_t>>(reduction, inputs, outputs, count);
    case DataType::kUint8:
      return reduce_elements<PlainElement<uint8_t, uint8_t>>(reduction, inputs, outputs, count);
    case DataType::kBool:
      // A bool is stored as 0 or 1, of which the larger says whether any is true.
      return reduce_elements<PlainElement<uint8_t, uint8_t>>(Reduction::kMax, inputs, outputs, count);
  }
}

}  // namespace weft
