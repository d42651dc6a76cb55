#include "weft/spec/model_name.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(ModelName, LeadsOutOfNoFolderAndMakesNoLineOfItsOwn) {
  for (const char* good : {"qwen2-vl", "Llama 3.1 (8B)", "a..b", "größe"}) {
    EXPECT_EQ(find_bad_model_name(good), std::nullopt) << good;
    EXPECT_EQ(as_model_name(good), good);
  }
  EXPECT_EQ(find_bad_model_name("../side"),
            "is '../side', which begins with a dot; a name that a folder can have is needed");
  EXPECT_EQ(find_bad_model_name("/tmp/x"), "is '/tmp/x', which holds a slash; a name that a folder can have is needed");
  EXPECT_EQ(find_bad_model_name("a\nb"),
            "is 'a\\x0ab', which holds a control character; a name that a folder can have is needed");
  EXPECT_EQ(as_model_name("../side"), "side");
  EXPECT_EQ(as_model_name(".cache"), "cache");
  EXPECT_EQ(as_model_name("a\nb"), "a_b");
  EXPECT_EQ(as_model_name(".."), "model");
  EXPECT_EQ(as_model_name("x/"), "model");
}

}  // namespace
}  // namespace weft
