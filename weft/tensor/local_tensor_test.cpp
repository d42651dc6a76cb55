#include "weft/tensor/local_tensor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(LocalTensor, IsOwnAsLongAsNobodyElseHasItsMemory) {
  const at::NoGradGuard no_graph;
  const at::Tensor x = at::ones({4, 6});
  EXPECT_TRUE(is_own(x));
  const at::Tensor same = x;
  EXPECT_FALSE(is_own(x));
}

// Sums were made apart, because a view holds its base.
TEST(LocalTensor, IsOwnAsAViewOfWhatNobodyElseHas) {
  const at::NoGradGuard no_graph;
  at::Tensor base = at::ones({4, 6});
  at::Tensor view = base.view({2, 12});
  EXPECT_FALSE(is_own(view));
  base.reset();
  EXPECT_TRUE(is_own(view));
  at::Tensor other = view.view({24});
  EXPECT_FALSE(is_own(view));
  EXPECT_FALSE(is_own(other));
  other = other.detach();
  EXPECT_FALSE(is_own(view));
  other.reset();
  EXPECT_TRUE(is_own(view));
  EXPECT_FALSE(is_own(at::ones({4, 6}).t()));
}

}  // namespace
}  // namespace weft
