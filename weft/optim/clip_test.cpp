#include "weft/optim/clip.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace weft {
namespace {

// What torch.nn.utils.clip_grad_norm_ left of these gradients.
TEST(ClipFactor, IsPyTorchs) {
  EXPECT_NEAR(3 * clip_factor(1, 5), 0.599999880000024, 1e-15);
  EXPECT_NEAR(4 * clip_factor(1, 5), 0.799999840000032, 1e-15);
  EXPECT_NEAR(0.6 * clip_factor(1, 1), 0.5999994000006, 1e-15);
}

TEST(ClipFactor, NeverMakesGradientsLarger) {
  EXPECT_EQ(clip_factor(10, 5), 1);
  EXPECT_EQ(clip_factor(1, 0), 1);
}

TEST(ClipFactor, ANormThatIsNoNumberShows) {
  EXPECT_TRUE(std::isnan(clip_factor(1, std::numeric_limits<double>::quiet_NaN())));
}

}  // namespace
}  // namespace weft
