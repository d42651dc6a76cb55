#include "weft/base/result.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0)
    return Error{.source = "input", .field = "number", .problem = "is odd", .advice = "Give an even one."};
  return number / 2;
}

Result<int> quarter(int number) {
  WEFT_TRY(const int first, half(number));
  WEFT_TRY(const int second, half(first));
  return second;
}

TEST(Result, TryPassesTheValueOnOrReturnsTheFirstError) {
  EXPECT_EQ(*quarter(12), 3);
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().field, "number");
}

TEST(Result, AskingForWhatIsNotThereIsABrokenInvariant) {
  EXPECT_THROW((void)*half(3), InternalError);
  EXPECT_THROW((void)half(4).error(), InternalError);
}

TEST(Error, MessageLeavesOutWhatIsEmpty) {
  EXPECT_EQ(half(3).error().message(), "input: number: is odd. Give an even one.");
  EXPECT_EQ(Error{.problem = "broken"}.message(), "broken");
}

TEST(Error, ALongFileNameLeavesRoomForTheProblem) {
  const Error error{.source = std::string(5000, 'a'), .field = std::string(5000, 'b'), .problem = "cannot be read"};
  EXPECT_NE(error.message().find("a...: b"), std::string::npos);
  EXPECT_TRUE(error.message().ends_with("b...: cannot be read")) << error.message();
  EXPECT_EQ((Error{.source = "a\nb", .problem = "c\x1b"}).message(), "a\\x0ab: c\\x1b");
}

TEST(Check, ReportsTheConditionAndTheReason) {
  try {
    WEFT_CHECK(1 > 2, "one is {}", 1);
    FAIL() << "did not throw";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("one is 1 (1 > 2)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft
