#include "weft/tensor/page_pool.h"

#include <map>
#include <mutex>
#include <new>
#include <sys/mman.h>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "weft/tensor/memory_count.h"

namespace weft {
namespace {

// Below it malloc keeps what is freed.
constexpr size_t kFewBytes = size_t{1} << 20;

}  // namespace

/// Mapped memory that no tensor has.
class PagePool::Blocks {
 public:
  Blocks() = default;
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  ~Blocks() {
    for (const auto& [bytes, data] : free_) munmap(data, bytes);
  }

  void* take(size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (auto block = free_.extract(bytes)) return block.mapped();
    }
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    return data;
  }

  void give_back(void* data, size_t bytes) {
    (void)madvise(data, bytes, MADV_FREE);
    const std::lock_guard lock(mutex_);
    free_.emplace(bytes, data);
  }

 private:
  std::mutex mutex_;
  std::multimap<size_t, void*> free_;
};

/// What a tensor has of a pool.
struct PagePool::Loan {
  std::shared_ptr<Blocks> blocks;
  std::shared_ptr<MemoryCount> count;
  void* data = nullptr;
  size_t bytes = 0;

  static void end(void* context) {
    const std::unique_ptr<Loan> loan(static_cast<Loan*>(context));
    if (loan->count) loan->count->remove(static_cast<int64_t>(loan->bytes));
    loan->blocks->give_back(loan->data, loan->bytes);
  }
};

PagePool::PagePool() : blocks_(std::make_shared<Blocks>()) {}

at::Tensor PagePool::empty(int64_t num_elements, const at::TensorOptions& options) {
  const size_t bytes = static_cast<size_t>(num_elements) * options.dtype().itemsize();
  if (!options.device().is_cpu() || bytes < kFewBytes) return at::empty({num_elements}, options);
  auto loan = std::make_unique<Loan>(
      Loan{.blocks = blocks_, .count = current_memory_count(), .data = blocks_->take(bytes), .bytes = bytes});
  if (loan->count) loan->count->add(static_cast<int64_t>(bytes));
  void* data = loan->data;
  return at::for_blob(data, {num_elements}).context(loan.release(), &Loan::end).options(options).make_tensor();
}

at::Tensor PagePool::zeros(int64_t num_elements, const at::TensorOptions& options) {
  return empty(num_elements, options).zero_();
}

}  // namespace weft
