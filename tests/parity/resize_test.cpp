// Our resize against LibTorch's own, which is what transformers' processors call.
#include <cmath>
#include <random>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/prepare/drawn_media.h"
#include "weft/prepare/frame_resizer.h"

namespace weft {
namespace {

TEST(ResizeParity, RandomSizesAreLibTorchsByteForByte) {
  std::mt19937 random(11);
  const auto side = [&] { return static_cast<int64_t>(std::exp2(std::uniform_real_distribution<>(0, 9)(random))); };
  for (int i = 0; i < draws(60); ++i) {
    const PixelSize from{side(), side()};
    // LibTorch refuses pictures that become a single pixel; ours never do.
    const PixelSize to{i % 4 == 0 ? from.height : side() + 1, i % 5 == 0 ? from.width : side() + 1};
    Pixels picture = drawn_picture(from.height, from.width, random() % 1000);
    const at::Tensor input = at::from_blob(picture.rgb.data(), {1, from.height, from.width, 3}, at::kByte)
                                 .permute({0, 3, 1, 2})
                                 .contiguous();
    const at::Tensor output =
        at::_upsample_bicubic2d_aa(input, {to.height, to.width}, false, std::nullopt, std::nullopt)
            .permute({0, 2, 3, 1})
            .contiguous();
    const std::vector<uint8_t> expected(output.data_ptr<uint8_t>(), output.data_ptr<uint8_t>() + output.numel());
    EXPECT_EQ(resized(picture, to).rgb, expected)
        << from.height << " by " << from.width << " to " << to.height << " by " << to.width;
  }
}

}  // namespace
}  // namespace weft
