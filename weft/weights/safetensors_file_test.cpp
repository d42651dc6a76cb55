#include "weft/weights/safetensors_file.h"

#include <sys/stat.h>

#include "tests/support/weights/example_files.h"
#include "weft/weights/mapped_file.h"
#include "weft/weights/safetensors_header.h"

namespace weft {
namespace {

constexpr const char* kOne = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

std::string problem(const std::string& bytes) {
  const auto content = read_safetensors(bytes_in(bytes), "m.safetensors");
  return content ? "" : content.error().message();
}

std::string problem_of_header(const std::string& header, const std::string& data = std::string(8, '\0')) {
  return problem(file_of(header, data));
}

TEST(SafetensorsFile, EntriesHaveNameTypeShapeAndBytesInTheOrderOfTheirBytes) {
  const ScratchFolder folder;
  const auto path =
      folder.write("m.safetensors", file_of(R"({"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[8,12]},)"
                                            R"("__metadata__":{"z":"1","format":"pt"},)"
                                            R"("a":{"shape":[],"dtype":"I64","data_offsets":[0,8]},)"
                                            R"("empty":{"dtype":"F32","shape":[0,3],"data_offsets":[8,8]}}  )",
                                            "12345678abcd"));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message();
  ASSERT_EQ(file->entries().size(), 3u);
  EXPECT_EQ(file->entries()[0].info, (WeightInfo{"a", WeightType::kI64, {}}));
  EXPECT_EQ(file->entries()[1].info, (WeightInfo{"empty", WeightType::kF32, {0, 3}}));
  EXPECT_EQ(file->entries()[2].info, (WeightInfo{"b", WeightType::kBf16, {2, 1}}));
  EXPECT_EQ(text_of(file->entries()[0].bytes), "12345678");
  EXPECT_EQ(text_of(file->entries()[2].bytes), "abcd");
  ASSERT_NE(file->find("b"), nullptr);
  EXPECT_EQ(text_of(file->find("b")->bytes), "abcd");
  EXPECT_EQ(file->find("c"), nullptr);
  EXPECT_EQ(file->metadata(), (WeightMetadata{{{"z", "1"}, {"format", "pt"}}}));
}

TEST(SafetensorsFile, AnEntryOutlivesItsFileAndTheFilesName) {
  const ScratchFolder folder;
  const auto path = folder.write("m.safetensors", file_of(kOne, "abcdefgh"));
  WeightEntry kept;
  {
    const auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file.ok());
    kept = file->entries().front();
  }
  std::filesystem::remove(path);
  will_need(kept.bytes);
  EXPECT_EQ(text_of(kept.bytes), "abcdefgh");
}

TEST(SafetensorsFile, ANullMetadataAndUnknownFieldsOfATensorAreLeftAlone) {
  const std::string bytes =
      file_of(R"({"__metadata__":null,"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"note":"x"}})", "abcdefgh");
  const auto content = read_safetensors(bytes_in(bytes), "m.safetensors");
  ASSERT_TRUE(content.ok()) << content.error().message();
  EXPECT_FALSE(content->metadata.has_value());
  EXPECT_EQ(content->entries.size(), 1u);
}

TEST(SafetensorsFile, AFileWithoutTensorsIsAFile) {
  EXPECT_EQ(problem(file_of("{}", "")), "");
  EXPECT_EQ(problem(file_of(R"({"__metadata__":{}})", "")), "");
}

TEST(SafetensorsFile, EveryKnownTypeIsRead) {
  for (int i = 0; i <= static_cast<int>(WeightType::kU64); ++i) {
    const auto type = static_cast<WeightType>(i);
    const int64_t size = *bytes_of(type, std::vector<int64_t>{4});
    const std::string header = R"({"w":{"dtype":")" + std::string(name_of(type)) +
                               R"(","shape":[4],"data_offsets":[0,)" + std::to_string(size) + "]}}";
    EXPECT_EQ(problem(file_of(header, std::string(static_cast<size_t>(size), 'x'))), "") << header;
  }
}

TEST(SafetensorsFile, AlignmentIsThatOfTheElementsOrIsSaidToBeMissing) {
  const ScratchFolder folder;
  const auto aligned = [&](const std::string& header, const std::string& data, const char* name) {
    const auto file = SafetensorsFile::open(folder.write("m.safetensors", file_of(header, data)));
    EXPECT_TRUE(file.ok());
    return is_aligned(*file->find(name));
  };
  const std::string padded = std::string(kOne) + "  ";
  ASSERT_EQ(padded.size() % 8, 0u);
  EXPECT_TRUE(aligned(padded, std::string(8, 'x'), "w"));
  EXPECT_FALSE(aligned(padded + " ", std::string(8, 'x'), "w"));
  EXPECT_TRUE(aligned(padded + "    ", std::string(8, 'x'), "w"));
  const std::string narrow_first =
      R"({"n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"F16","shape":[1],"data_offsets":[1,3]}})";
  EXPECT_FALSE(aligned(narrow_first + std::string(8 - narrow_first.size() % 8, ' '), "123", "w"));
  EXPECT_TRUE(aligned(narrow_first + std::string(8 - narrow_first.size() % 8, ' '), "123", "n"));
}

TEST(SafetensorsFile, WhatCannotBeMappedIsNamed) {
  const ScratchFolder folder;
  const auto open_problem = [&](const std::string& name) {
    const auto file = SafetensorsFile::open(folder / name);
    return file ? "" : file.error().message();
  };
  const std::string at = folder.path().string() + "/";
  EXPECT_EQ(open_problem("none"), at + "none: cannot be read: No such file or directory. Check the path.");
  folder.write("empty", "");
  EXPECT_EQ(open_problem("empty"), at + "empty: is empty. Copy or download it again.");
  std::filesystem::create_directory(folder / "folder");
  EXPECT_EQ(open_problem("folder"), at + "folder: is a folder, a file is needed. Give the file inside it.");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_start(open_problem("pipe"), at + "pipe: is no regular file");
}

TEST(SafetensorsFile, AWrongLengthFieldIsNamed) {
  EXPECT_EQ(
      problem("1234567"),
      "m.safetensors: is 7 bytes long, but a safetensors file starts with 8 that give its header's length. Copying or "
      "downloading it was cut short: do that again.");
  EXPECT_EQ(
      problem(file_of("", "").replace(0, 8, "\x00\xe1\xf5\x05\x00\x00\x00\x00", 8)),
      "m.safetensors: ends inside its header: the header takes 100000000 bytes, and 0 follow its length. Copying or "
      "downloading it was cut short: do that again.");
  expect_start(problem(file_of("", "").replace(0, 8, "\x01\xe1\xf5\x05\x00\x00\x00\x00", 8)),
               "m.safetensors: is no safetensors file: its first 8 bytes give a header of 100000001 bytes, and at most "
               "100,000,000 are allowed");
  expect_start(problem(std::string(8, '\xff')),
               "m.safetensors: is no safetensors file: its first 8 bytes give a header of 18446744073709551615 bytes");
  EXPECT_EQ(problem(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
            "m.safetensors: ends inside its header: the header takes 3 bytes, and 2 follow its length. Copying or "
            "downloading "
            "it was cut short: do that again.");
}

TEST(SafetensorsFile, OtherFilesAreRecognised) {
  EXPECT_NE(problem("version https://git-lfs.github.com/spec/v1\noid sha256:0\n").find("run `git lfs pull`"),
            std::string::npos);
  EXPECT_NE(problem(std::string("PK\x03\x04\0\0\x08\x08", 8) + "rest").find("looks like a PyTorch file"),
            std::string::npos);
}

TEST(SafetensorsFile, AHeaderThatIsNoObjectInJsonIsNamed) {
  expect_start(problem_of_header(""), "m.safetensors: is no safetensors file: its header starts with nothing");
  expect_start(problem_of_header(" {}"),
               "m.safetensors: is no safetensors file: its header starts with ' ', and must start with '{'");
  expect_start(problem_of_header("[]"), "m.safetensors: is no safetensors file: its header starts with '['");
  expect_start(problem_of_header(R"({"w":)"), "m.safetensors: is not valid JSON: the text ends in line 1");
  expect_start(problem_of_header(R"({} x)"), "m.safetensors: is not valid JSON: ");
  expect_start(problem_of_header(std::string("{}\0x", 4)), "m.safetensors: is not valid JSON: it holds a zero byte");
  expect_start(problem_of_header("{\"\xff\":1}"), "m.safetensors: is not valid JSON: ");
  expect_start(problem_of_header(R"({"w":[[[[[1]]]]]})"), "m.safetensors: w[0][0]: is nested more than 4 levels deep");
}

TEST(SafetensorsFile, DuplicateTensorsAndMetadataAreNamed) {
  const std::string row = R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  expect_start(problem_of_header("{" + row + "," + row + "}"), "m.safetensors: w: has the key 'w' twice");
  expect_start(problem_of_header(R"({"w":{"dtype":"F32","dtype":"F32"}})"),
               "m.safetensors: w.dtype: has the key 'dtype' twice");
  expect_start(problem_of_header(R"({"__metadata__":{"a":"1","a":"2"}})"),
               "m.safetensors: __metadata__.a: has the key 'a' twice");
}

TEST(SafetensorsFile, MetadataThatIsNotTextIsNamed) {
  EXPECT_EQ(problem_of_header(R"({"__metadata__":{"step":3}})", ""),
            "m.safetensors: __metadata__.step: is the number 3, and must be a text. The file is damaged or was written "
            "wrongly: "
            "copy, download or convert it again.");
  expect_start(problem_of_header(R"({"__metadata__":[]})", ""),
               "m.safetensors: __metadata__: is a list, and must be an object of texts");
}

TEST(SafetensorsFile, ATensorsMistakesAreNamed) {
  const auto of_row = [](const std::string& row) { return problem_of_header(R"({"w":)" + row + "}"); };
  expect_start(of_row("3"),
               "m.safetensors: w: is the number 3, and must be an object with dtype, shape and data_offsets");
  expect_start(of_row(R"({"shape":[2],"data_offsets":[0,8]})"), "m.safetensors: w: has no dtype");
  expect_start(of_row(R"({"dtype":"F32","data_offsets":[0,8]})"), "m.safetensors: w: has no shape");
  expect_start(of_row(R"({"dtype":"F32","shape":[2]})"), "m.safetensors: w: has no data_offsets");
  expect_start(of_row(R"({"dtype":32,"shape":[2],"data_offsets":[0,8]})"),
               "m.safetensors: w: dtype is the number 32, and must be a text like 'BF16'");
  EXPECT_EQ(
      of_row(R"({"dtype":"F128","shape":[2],"data_offsets":[0,8]})"),
      "m.safetensors: w: dtype is 'F128', and must be BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, "
      "F8_E4M3FNUZ, F8_E5M2FNUZ, I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64 or U64. Convert the weight to one "
      "of "
      "these.");
  for (const char* bad : {"-1", "2.0", "\"2\"", "null", "9223372036854775808", "18446744073709551616", "[2]"}) {
    expect_start(of_row(R"({"dtype":"F32","shape":[1,)" + std::string(bad) + R"(],"data_offsets":[0,8]})"),
                 "m.safetensors: w: shape[1] is ");
  }
  expect_start(of_row(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"),
               "m.safetensors: w: shape is the number 2, and must be a list of whole numbers");
  expect_start(of_row(R"({"dtype":"F32","shape":[2],"data_offsets":{}})"), "m.safetensors: w: data_offsets is ");
  expect_start(of_row(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,9]})"),
               "m.safetensors: w: data_offsets are [0, 8, 9], and must be two numbers, begin and end");
  expect_start(of_row(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"),
               "m.safetensors: w: data_offsets are [8, 0], and must be two numbers, begin and end");
}

TEST(SafetensorsFile, ASizeThatIsNotShapeTimesTypeIsNamed) {
  expect_start(problem_of_header(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})"),
               "m.safetensors: w: data_offsets are [0, 8], which is 8 bytes, but shape [3] of F32 takes 12.");
  expect_start(problem_of_header(R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})"),
               "m.safetensors: w: shape [4611686018427387904, 4] of F32 takes more bytes than 63 bits can count");
  expect_start(problem_of_header(R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})"),
               "m.safetensors: w: shape [3] of F4 does not fill whole bytes");
}

TEST(SafetensorsFile, HolesAndOverlapsAreNamed) {
  const auto two = [](const std::string& a, const std::string& b) {
    return problem_of_header(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
                                 R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}",
                             "12345");
  };
  expect_start(two("[0,2]", "[3,5]"),
               "m.safetensors: b: begins at byte 3 of the data, but 'a' ends at byte 2, and there may be no hole "
               "between tensors.");
  expect_start(two("[0,2]", "[1,3]"),
               "m.safetensors: b: begins at byte 1 of the data, but 'a' ends at byte 2, and there may be no overlap.");
  expect_start(two("[0,2]", "[0,2]"),
               "m.safetensors: b: begins at byte 0 of the data, but 'a' ends at byte 2, and there may be no overlap.");
  expect_start(two("[1,3]", "[3,5]"), "m.safetensors: a: begins at byte 1 of the data, but the data begins at byte 0");
  expect_start(
      problem_of_header(
          R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})"),
      "m.safetensors: e: begins at byte 4 of the data, but 'w' ends at byte 8");
}

TEST(SafetensorsFile, TruncatedDataAndTrailingBytesAreNamed) {
  EXPECT_EQ(
      problem_of_header(kOne, "1234567"),
      "m.safetensors: w: ends at byte 8 of the data, but the file holds only 7 of 8. Copying or downloading it was cut "
      "short: do that again.");
  EXPECT_EQ(problem_of_header(kOne, "123456789"),
            "m.safetensors: goes on for 1 bytes after its last tensor, which ends at byte 8 of the data. The file is "
            "damaged or "
            "was written wrongly: copy, download or convert it again.");
  expect_start(problem_of_header("{}", "x"), "m.safetensors: goes on for 1 bytes after its last tensor");
}

}  // namespace
}  // namespace weft
