#include "weft/engine/guarded.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Guarded, AnOperationThatLibTorchRefusesIsAnInternalErrorOfOneLine) {
  const Result<int> result = guarded([]() -> Result<int> {
    at::mm(at::empty({2, 3}), at::empty({2, 3}));
    return 1;
  });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::kJob);
  const std::string message = result.error().message();
  EXPECT_EQ(message.substr(0, 47), "internal error: LibTorch refused an operation: ") << message;
  EXPECT_NE(message.find("2x3 and 2x3"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_EQ(message.find("Exception raised"), std::string::npos) << message;
}

TEST(Guarded, MemoryThatRanOutIsSaidAsSuch) {
  const Result<int> of_tensors = guarded([]() -> Result<int> {
    at::empty({int64_t{1} << 50});
    return 1;
  });
  ASSERT_FALSE(of_tensors.ok());
  EXPECT_EQ(of_tensors.error().kind, ErrorKind::kJob);
  // An allocator that counts asks for some bytes more.
  EXPECT_EQ(of_tensors.error().message().substr(0, 45), "memory ran out: tried to allocate 45035996273");

  const Result<int> of_others = guarded([]() -> Result<int> { throw std::bad_alloc(); });
  ASSERT_FALSE(of_others.ok());
  EXPECT_EQ(of_others.error().problem, "memory ran out");
}

TEST(Guarded, ResultsAndOtherErrorsPass) {
  EXPECT_EQ(*guarded([]() -> Result<int> { return 3; }), 3);
  EXPECT_EQ(guarded([]() -> Result<int> { return Error{.problem = "is wrong"}; }).error().problem, "is wrong");
}

}  // namespace
}  // namespace weft
