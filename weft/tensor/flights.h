#pragma once

#include <map>
#include <set>

#include <ATen/core/Tensor.h>

namespace weft {

/// Tensors on their way to other ranks or from them, to tell how much memory is only there for that.
class TensorFlights {
 public:
  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    auto& tensors = by_memory_[tensor.storage().unsafeGetStorageImpl()];
    tensors.insert(tensor);
    if (tensor.is_view()) tensors.insert(tensor._base());  // which autograd keeps with it
  }

  /// Of memory that no other tensor refers to.
  int64_t bytes() const {
    int64_t bytes = 0;
    for (const auto& [memory, tensors] : by_memory_) {
      const c10::Storage& storage = tensors.begin()->storage();
      if (tensors.size() == storage.use_count()) bytes += static_cast<int64_t>(memory->nbytes());
    }
    return bytes;
  }

 private:
  struct ByIdentity {
    bool operator()(const at::TensorBase& a, const at::TensorBase& b) const {
      return a.unsafeGetTensorImpl() < b.unsafeGetTensorImpl();
    }
  };
  std::map<const c10::StorageImpl*, std::set<at::TensorBase, ByIdentity>> by_memory_;
};

}  // namespace weft
