#include "weft/tensor/flat_memory.h"

#include <ATen/ops/empty.h>

namespace weft {

void free_memory(const at::Tensor& flat) {
  c10::StorageImpl* storage = flat.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, flat.device()));
  storage->set_nbytes(0);
}

void allocate_memory(const at::Tensor& flat) {
  c10::StorageImpl* storage = flat.storage().unsafeGetStorageImpl();
  const at::Tensor fresh = at::empty(flat.sizes(), flat.options());
  storage->set_data_ptr_noswap(
      fresh.storage().unsafeGetStorageImpl()->set_data_ptr(at::DataPtr(nullptr, flat.device())));
  storage->set_nbytes(flat.numel() * flat.element_size());
}

int64_t num_held(const at::Tensor& flat) {
  if (!flat.defined()) return 0;
  return static_cast<int64_t>(flat.storage().nbytes()) / flat.element_size();
}

}  // namespace weft
