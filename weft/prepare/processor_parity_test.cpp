// Against what transformers' processors of videos whose frames stand apart, and of tiles, make of pictures.
#include <gtest/gtest.h>

#include "tests/support/prepare/drawn_media.h"
#include "tests/support/source_tree.h"
#include "weft/base/document.h"
#include "weft/prepare/patches.h"
#include "weft/prepare/tiles.h"
#include "weft/probe/video_frames.h"

namespace weft {
namespace {

const Json& expected() {
  static const Json document = [] {
    Result<Document> read = read_document(source_tree() / "tests/parity/media/processors.json");
    EXPECT_TRUE(read.ok());
    return read->root;
  }();
  return document;
}

TEST(ProcessorParity, SizesOfVideosWhoseFramesStandApart) {
  size_t num_refused = 0;
  for (const Json& entry : expected()["apart_sizes"]) {
    PatchRules rules = apart_video_rules();
    rules.min_pixels = entry[3];
    rules.max_pixels = entry[4];
    rules.max_frame_tokens = entry[5];
    const Result<PixelSize> size =
        resized_size(rules, {entry[1].get<int64_t>(), entry[2].get<int64_t>()}, "a video", entry[0]);
    ASSERT_EQ(size.ok(), !entry[6].is_null()) << entry.dump();
    num_refused += size.ok() ? 0 : 1;
    if (size.ok()) {
      EXPECT_EQ(*size, (PixelSize{entry[6][0].get<int64_t>(), entry[6][1].get<int64_t>()})) << entry.dump();
    }
  }
  EXPECT_GT(num_refused, 10u);
  EXPECT_LT(num_refused, 125u);
}

TEST(ProcessorParity, FramesFromTheFirstToTheLastAndInTheMiddleOfParts) {
  for (const Json& entry : expected()["chosen_frames"]) {
    for (const auto& [spread, column] : {std::pair(FrameSpread::kToLast, 2), std::pair(FrameSpread::kMiddles, 3)}) {
      const FrameSampling sampling{.spread = spread, .num_frames = entry[1].get<int64_t>()};
      const auto numbers = sampled_frames(sampling, entry[0], std::nullopt, "a video");
      ASSERT_TRUE(numbers.ok()) << entry.dump();
      EXPECT_EQ(*numbers, entry[static_cast<size_t>(column)].get<std::vector<int64_t>>()) << entry.dump();
    }
  }
}

TEST(ProcessorParity, PatchesOfVideosWhoseFramesStandApart) {
  const PatchRules rules = apart_video_rules();
  for (const Json& entry : expected()["apart_videos"]) {
    std::vector<Pixels> frames;
    for (uint64_t i = 0; i < entry["frames"].get<uint64_t>(); ++i)
      frames.push_back(drawn_picture(entry["height"], entry["width"], i));
    std::vector<const Pixels*> pointers;
    for (const Pixels& frame : frames) pointers.push_back(&frame);
    const auto size = resized_size(rules, {frames[0].height, frames[0].width}, "a video", std::ssize(frames));
    ASSERT_TRUE(size.ok());
    const PatchGrid grid = patch_grid(rules, *size, std::ssize(frames));
    EXPECT_EQ(grid, (PatchGrid{entry["grid"][0], entry["grid"][1], entry["grid"][2]})) << entry.dump();
    std::vector<float> values(static_cast<size_t>(grid.num_patches() * rules.values_per_patch()));
    prepare_patches(pointers, rules, *size, {0, grid.num_patches()}, values);
    EXPECT_EQ(checksum(values), entry["patches"].get<uint32_t>()) << entry.dump();
  }
}

TEST(ProcessorParity, GridsOfTiles) {
  for (const Json& entry : expected()["tile_grids"]) {
    const TileRules rules{.side = entry[2], .min_tiles = entry[3], .max_tiles = entry[4]};
    EXPECT_EQ(tile_grid(rules, {entry[0].get<int64_t>(), entry[1].get<int64_t>()}),
              (TileGrid{entry[5].get<int64_t>(), entry[6].get<int64_t>()}))
        << entry.dump();
  }
}

TEST(ProcessorParity, PatchesOfTiles) {
  for (const Json& entry : expected()["cut_tiles"]) {
    const TileRules rules{
        .patches = {.patch = entry["patch"], .merge = 2, .temporal_patch = 1}, .side = entry["side"], .max_tiles = 9};
    const Pixels picture = drawn_picture(entry["height"], entry["width"]);
    const TileGrid grid = tile_grid(rules, {picture.height, picture.width});
    EXPECT_EQ(grid.num_tiles(), entry["tiles"].get<int64_t>());
    std::vector<float> values;
    const PixelSize resized{grid.rows * rules.side, grid.columns * rules.side};
    const int64_t count = num_patches_of_tiles(rules, resized), width = rules.patches.values_per_patch();
    prepare_tiles(picture, rules, resized, {.begin = 0, .end = count}, values);
    ASSERT_EQ(std::ssize(values), count * width);
    // Any part is that part of the whole.
    for (const auto& [begin, end] : {std::pair(count / 3, count / 3 + 1), std::pair(count / 4, count - count / 5),
                                     std::pair(count - 1, count), std::pair(int64_t{0}, count / 2)}) {
      std::vector<float> part;
      prepare_tiles(picture, rules, resized, {.begin = begin, .end = end}, part);
      EXPECT_EQ(part, std::vector<float>(values.begin() + begin * width, values.begin() + end * width));
    }
    EXPECT_EQ(checksum(values), entry["patches"].get<uint32_t>()) << entry.dump();
  }
}

}  // namespace
}  // namespace weft
