#include "weft/probe/image_info.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/file.h"

namespace weft {
namespace {

std::span<const uint8_t> as_bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::filesystem::path media_file(const std::string& name) {
  return source_tree() / "tests/parity/media" / name;
}

Result<ImageInfo> probe_text(const std::string& text, const MediaLimits& limits = {}) {
  HeaderBytes bytes = HeaderBytes::of(as_bytes_of(text));
  return probe_image(bytes, "picture", limits);
}

std::string big32(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(value >> shift));
  return text;
}

std::string png_header(uint32_t width, uint32_t height) {
  return "\x89PNG\r\n\x1A\n" + big32(13) + "IHDR" + big32(width) + big32(height) + std::string("\x08\x02\0\0\0", 5) +
         big32(0);
}

TEST(ImageInfo, AFileReadInPartsIsTheSameAsOneInMemory) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_tree() / "tests/parity/media")) {
    const std::string extension = entry.path().extension();
    if (extension != ".jpg" && extension != ".png" && extension != ".webp") continue;
    const std::string text = *read_file(entry.path(), 1 << 20);
    const Result<ImageInfo> in_parts = probe_image(entry.path()), in_memory = probe_text(text);
    ASSERT_TRUE(in_parts.ok() && in_memory.ok()) << entry.path();
    EXPECT_EQ(*in_parts, *in_memory) << entry.path();
    EXPECT_EQ(wrong_extension(entry.path(), in_parts->kind), "") << entry.path();
    ++num_files;
  }
  EXPECT_GE(num_files, 40);
}

TEST(ImageInfo, OrientationTurnsTheSizeThatIsShown) {
  for (int orientation = 1; orientation <= 9; ++orientation) {
    const auto image = probe_image(media_file("turned_" + std::to_string(orientation) + ".jpg"));
    ASSERT_TRUE(image.ok());
    EXPECT_EQ(image->orientation, orientation == 9 ? 1 : orientation);
    EXPECT_EQ(image->width(), orientation >= 5 && orientation <= 8 ? 23 : 37);
  }
}

TEST(ImageInfo, AHeaderThatIsCutOffAnywhereIsAnError) {
  for (const char* name : {"turned_6.jpg", "plain.png", "lossy.webp", "lossless.webp", "turned.webp"}) {
    const std::string text = *read_file(media_file(name), 1 << 20);
    for (size_t length = 0; length < 24; ++length) {
      const auto image = probe_text(text.substr(0, length));
      ASSERT_FALSE(image.ok()) << name << " " << length;
      EXPECT_FALSE(image.error().advice.empty());
    }
    // Past the header, the size is known or the file is refused; nothing else.
    for (size_t length = 24; length < text.size(); ++length) {
      const auto image = probe_text(text.substr(0, length));
      if (image.ok()) {
        EXPECT_EQ(image->stored_width * image->stored_height, 37 * 23) << name << " " << length;
      }
    }
  }
}

TEST(ImageInfo, ABombIsNamedBeforeMemoryIsTaken) {
  const auto image = probe_text(png_header(100'000, 100'000));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().message(),
            "picture: promises 100000 by 100000 pixels, more than the 178,956,970 that an image may have. Make it "
            "smaller: an "
            "image of this size may be a decompression bomb.");
  EXPECT_FALSE(probe_text(png_header(0xFFFFFFFF, 0xFFFFFFFF)).ok());
  EXPECT_FALSE(probe_text(png_header(0, 5)).ok());
  EXPECT_TRUE(probe_text(png_header(5, 5)).ok());
  EXPECT_FALSE(probe_text(png_header(5, 5), {.max_pixels = 24}).ok());
  EXPECT_FALSE(probe_text(png_header(5, 5), {.max_file_bytes = 10}).ok());
}

TEST(ImageInfo, ASideThatIsTooLongIsNamed) {
  EXPECT_EQ(probe_text(png_header(1, 178'000'000)).error().message(),
            "picture: is 1 by 178000000 pixels; a side may have at most 200,000. Cut it into parts.");
  EXPECT_FALSE(probe_text(png_header(200'001, 1)).ok());
  EXPECT_TRUE(probe_text(png_header(200'000, 1)).ok());
  // The longest picture that may be two hundred times as long as wide.
  EXPECT_TRUE(probe_text(png_header(189'000, 945)).ok());
}

TEST(ImageInfo, OtherFilesAreCalledByTheirName) {
  const auto problem = [](const std::string& text) { return probe_text(text).error().problem; };
  EXPECT_EQ(problem("GIF89a......"), "is a GIF; JPEG, PNG and WebP images are read");
  EXPECT_EQ(problem(""), "is empty; JPEG, PNG and WebP images are read");
  EXPECT_EQ(problem("<html>"), "is a web page; JPEG, PNG and WebP images are read");
  EXPECT_EQ(problem("version https://git-lfs.github.com"),
            "is a Git LFS pointer, whose file was not fetched; JPEG, PNG and WebP images are read");
  EXPECT_EQ(probe_image(source_tree()).error().problem, "is a folder, a file is needed");
  EXPECT_FALSE(probe_image(source_tree() / "nothing.jpg").ok());
}

TEST(ImageInfo, AnExtensionThatLiesIsTold) {
  EXPECT_EQ(wrong_extension("a/b.JPG", ImageKind::kPng), "is a PNG image although its name ends in .jpg");
  EXPECT_EQ(wrong_extension("b.wav", ImageKind::kJpeg), "is a JPEG image although its name ends in .wav");
  EXPECT_EQ(wrong_extension("b.jpeg", ImageKind::kJpeg), "");
  EXPECT_EQ(wrong_extension("0001", ImageKind::kWebp), "");
}

TEST(ImageInfo, JumpsThroughAHostileFileEnd) {
  // A segment marker at every other byte of a large JPEG file without a frame.
  std::string text = "\xFF\xD8\xFF";
  text.pop_back();
  for (int i = 0; i < 200'000; ++i) text += std::string("\xFF\xFE\x00\x02", 4);
  EXPECT_FALSE(probe_text(text).ok());
  const auto path = std::filesystem::path(testing::TempDir()) / "weft_hostile.jpg";
  ASSERT_FALSE(write_file(path, text));
  EXPECT_FALSE(probe_image(path).ok());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace weft
