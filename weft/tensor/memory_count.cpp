#include "weft/tensor/memory_count.h"

#include <cstring>
#include <mutex>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

namespace weft {
namespace {

thread_local std::shared_ptr<MemoryCount> thread_count;

/// Lies in front of every allocation, so that its end finds the count that it was added to.
struct Header {
  int64_t bytes = 0;
  std::shared_ptr<MemoryCount> count;
};
// As LibTorch aligns, so that what follows is aligned, too.
constexpr size_t kHeaderBytes = 64;
static_assert(sizeof(Header) <= kHeaderBytes);

void free_counted(void* data) {
  if (data == nullptr) return;
  void* begin = static_cast<char*>(data) - kHeaderBytes;
  auto* header = static_cast<Header*>(begin);
  if (header->count) header->count->remove(header->bytes);
  header->~Header();
  c10::free_cpu(begin);
}

class CountingAllocator : public c10::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_counted, at::kCPU};
    void* begin = c10::alloc_cpu(kHeaderBytes + bytes);
    auto* header = new (begin) Header{.bytes = static_cast<int64_t>(bytes), .count = thread_count};
    if (header->count) header->count->add(header->bytes);
    void* data = static_cast<char*>(begin) + kHeaderBytes;
    return {data, data, &free_counted, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return &free_counted; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

void install_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    static CountingAllocator allocator;
    constexpr uint8_t kBeforeAllOthers = 255;
    c10::SetCPUAllocator(&allocator, kBeforeAllOthers);
  });
}

}  // namespace

void MemoryCount::add(int64_t bytes) {
  const int64_t now = current_bytes_ += bytes;
  int64_t peak = peak_bytes_;
  while (now > peak && !peak_bytes_.compare_exchange_weak(peak, now)) {
  }
}

CountedThread::CountedThread(std::shared_ptr<MemoryCount> count) {
  install_allocator();
  before_ = std::exchange(thread_count, std::move(count));
}

CountedThread::~CountedThread() {
  thread_count = std::move(before_);
}

std::shared_ptr<MemoryCount> current_memory_count() {
  return thread_count;
}

}  // namespace weft
