#include "weft/models/weight_copies.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <span>
#include <sys/mman.h>
#include <thread>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

namespace weft {
namespace {

/// What a thread takes at a time.
constexpr int64_t kChunkElements = int64_t{1} << 20;
/// No more than ATen converts on the thread that asks.
constexpr int64_t kConvertedElements = int64_t{32} << 10;
/// What stays in the nearest cache between the copy and the look at it.
constexpr int64_t kStepElements = int64_t{8} << 10;

/// Whether an element's exponent is all ones: then, and only then, its lowest bit more reaches the sign's place.
/// Written for the compiler to vectorise; a comparison would widen small elements.
template <typename Bits>
bool has_not_finite(const std::byte* bytes, size_t size, Bits exponent) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const Bits lowest = static_cast<Bits>(kSign - exponent);
  Bits found = 0;
  for (size_t i = 0; i < size; i += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes + i, sizeof(Bits));
    found |= static_cast<Bits>((bits & exponent) + lowest);
  }
  return (found & kSign) != 0;
}

bool has_not_finite(const std::byte* bytes, size_t size, at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return has_not_finite<uint64_t>(bytes, size, 0x7ff0'0000'0000'0000);
    case at::kFloat:
      return has_not_finite<uint32_t>(bytes, size, 0x7f80'0000);
    case at::kHalf:
      return has_not_finite<uint16_t>(bytes, size, 0x7c00);
    default:
      return has_not_finite<uint16_t>(bytes, size, 0x7f80);
  }
}

/// The whole pages inside a range of memory, for hints to the kernel.
template <typename Byte>
std::span<std::byte> whole_pages(Byte* begin, size_t size, size_t page) {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t from = (first + page - 1) / page * page;
  const uintptr_t to = (first + size) / page * page;
  if (to <= from) return {};
  return {reinterpret_cast<std::byte*>(from), to - from};
}

/// Memory that is written for the first time comes in large pages where the kernel has them: a fault for each small one
/// costs more than the copy.
void hint_large_pages(const at::Tensor& tensor) {
  constexpr size_t kLargePage = size_t{2} << 20;
  const auto pages = whole_pages(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes(), kLargePage);
  if (!pages.empty()) (void)madvise(pages.data(), pages.size(), MADV_HUGEPAGE);
}

/// Mapped bytes that are about to be read get their pages in one go.
void hint_reading(const std::byte* from, size_t size) {
#ifdef MADV_POPULATE_READ
  const auto pages = whole_pages(from, size, size_t{4096});
  if (!pages.empty()) (void)madvise(pages.data(), pages.size(), MADV_POPULATE_READ);
#else
  (void)from, (void)size;
#endif
}

/// Where element `index` of a copy is stored.
const std::byte* stored_at(const WeightCopy& copy, int64_t index) {
  const int64_t place = index / copy.row_elements * copy.row_stride + index % copy.row_elements * copy.column_stride;
  return copy.from + place * static_cast<int64_t>(c10::elementSize(copy.type));
}

/// Elements of whole rows, or of a part of them where there are no gaps.
bool are_finite(const WeightCopy& copy, int64_t begin, int64_t count) {
  const int64_t run = copy.has_gaps() ? copy.row_elements : count;
  bool is_finite = true;
  for (int64_t i = begin; i < begin + count; i += run)
    is_finite &= !has_not_finite(stored_at(copy, i), static_cast<size_t>(run) * c10::elementSize(copy.type), copy.type);
  return is_finite;
}

/// The same as a tensor.
at::Tensor stored_elements(const WeightCopy& copy, int64_t begin, int64_t count) {
  const size_t element = c10::elementSize(copy.type);
  const auto options = at::TensorOptions().dtype(copy.type);
  const std::byte* from = stored_at(copy, begin);
  const int64_t run = copy.has_gaps() ? copy.row_elements : count;
  if (reinterpret_cast<uintptr_t>(from) % element == 0)
    return at::from_blob(const_cast<std::byte*>(from), {count / run, run}, {copy.row_stride, copy.column_stride},
                         options);
  at::Tensor aligned = at::empty({count / run, run}, options);
  for (int64_t i = 0; i < count; i += run) {
    std::memcpy(static_cast<std::byte*>(aligned.data_ptr()) + i * static_cast<int64_t>(element),
                stored_at(copy, begin + i), static_cast<size_t>(run) * element);
  }
  return aligned;
}

/// Copies and looks in one go, while the bytes are in the cache. False where something is not finite.
bool copy_bytes(const WeightCopy& copy, int64_t begin, int64_t count) {
  const auto element = static_cast<int64_t>(c10::elementSize(copy.type));
  std::byte* to = static_cast<std::byte*>(copy.to.data_ptr());
  bool is_finite = true;
  for (int64_t at = begin; at < begin + count;) {
    const int64_t left_in_row = copy.has_gaps() ? copy.row_elements - at % copy.row_elements : count;
    const int64_t step = std::min({kStepElements, begin + count - at, left_in_row});
    const auto bytes = static_cast<size_t>(step * element);
    std::memcpy(to + at * element, stored_at(copy, at), bytes);
    is_finite &= !has_not_finite(to + at * element, bytes, copy.type);
    at += step;
  }
  return is_finite;
}

bool convert(const WeightCopy& copy, int64_t begin, int64_t count) {
  const at::Tensor stored = stored_elements(copy, begin, count);
  copy.to.narrow(0, begin, count).view(stored.sizes()).copy_(stored);
  return copy.column_stride == 1 ? are_finite(copy, begin, count) : stored.isfinite().all().item<bool>();
}

/// Whole rows that are columns where they are stored, which may lie anywhere.
bool transpose(const WeightCopy& copy, int64_t begin, int64_t count) {
  const auto element = static_cast<int64_t>(c10::elementSize(copy.type));
  if (reinterpret_cast<uintptr_t>(copy.from) % static_cast<size_t>(element) == 0) return convert(copy, begin, count);
  const at::Tensor aligned = at::empty({copy.stored_elements()}, at::TensorOptions().dtype(copy.type));
  std::memcpy(aligned.data_ptr(), copy.from, static_cast<size_t>(copy.stored_elements() * element));
  WeightCopy from_aligned = copy;
  from_aligned.from = static_cast<const std::byte*>(aligned.data_ptr());
  return convert(from_aligned, begin, count);
}

/// Elements that one go takes: of whole rows where there are gaps, and few enough for the cache to convert them in it.
int64_t chunk_elements(const WeightCopy& copy) {
  if (!copy.to.device().is_cpu()) return copy.to.numel();
  const int64_t wanted = copy.to.scalar_type() == copy.type ? kChunkElements : kConvertedElements;
  return copy.has_gaps() ? std::max<int64_t>(1, wanted / copy.row_elements) * copy.row_elements : wanted;
}

bool copy_chunk(const WeightCopy& copy, int64_t begin, int64_t count) {
  if (!copy.has_gaps()) hint_reading(stored_at(copy, begin), static_cast<size_t>(count) * c10::elementSize(copy.type));
  if (copy.column_stride != 1) return transpose(copy, begin, count);
  const bool is_plain = copy.to.scalar_type() == copy.type && copy.to.device().is_cpu();
  return is_plain ? copy_bytes(copy, begin, count) : convert(copy, begin, count);
}

struct Chunk {
  size_t copy = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

}  // namespace

std::optional<size_t> copy_weights(const std::vector<WeightCopy>& copies) {
  std::vector<Chunk> chunks;
  size_t first_bad = copies.size();
  bool is_on_cpu = true;
  for (size_t i = 0; i < copies.size(); ++i) {
    const at::Tensor& to = copies[i].to;
    if (to.numel() == 0) continue;
    if (to.device().is_cpu()) hint_large_pages(to);
    is_on_cpu &= to.device().is_cpu();
    const int64_t step = chunk_elements(copies[i]);
    for (int64_t begin = 0; begin < to.numel(); begin += step)
      chunks.push_back({.copy = i, .begin = begin, .count = std::min(step, to.numel() - begin)});
  }

  std::mutex guard;
  std::exception_ptr failure;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    const at::NoGradGuard no_graph;
    try {
      for (size_t i = next++; i < chunks.size(); i = next++) {
        if (copy_chunk(copies[chunks[i].copy], chunks[i].begin, chunks[i].count)) continue;
        const std::lock_guard lock(guard);
        first_bad = std::min(first_bad, chunks[i].copy);
      }
    } catch (...) {
      const std::lock_guard lock(guard);
      failure = std::current_exception();
    }
  };
  std::vector<std::jthread> helpers;
  const size_t wanted_threads = is_on_cpu ? static_cast<size_t>(std::max(at::get_num_threads(), 1)) : 1;
  const size_t num_threads = std::min(wanted_threads, chunks.size());
  for (size_t i = 1; i < num_threads; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  if (failure) std::rethrow_exception(failure);
  if (first_bad == copies.size()) return std::nullopt;
  return first_bad;
}

}  // namespace weft
