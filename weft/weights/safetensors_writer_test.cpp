#include "weft/weights/safetensors_writer.h"

#include <csignal>
#include <sys/resource.h>

#include "tests/support/weights/example_files.h"
#include "weft/weights/safetensors_file.h"

namespace weft {
namespace {

std::string message(const std::optional<Error>& error) {
  return error ? error->message() : "";
}

// The expected bytes were seen from version 0.8.0 of the Python package; tests/parity/check_safetensors.py asks it
// anew.
TEST(SafetensorsWriter, WideTypesComeFirstThenNamesAndTheHeaderIsPadded) {
  const ScratchFolder folder;
  const std::string data = "0123456789abcdefghijklmnopqrstuv";
  std::vector<WeightEntry> entries;
  const auto add = [&](const char* name, WeightType type, std::vector<int64_t> shape) {
    const auto size = static_cast<size_t>(*bytes_of(type, shape));
    entries.push_back({.info = {name, type, std::move(shape)}, .bytes = bytes_in(data).first(size), .owner = nullptr});
  };
  add("flag", WeightType::kBool, {1});
  add("a.2", WeightType::kF32, {1});
  add("B", WeightType::kF32, {2, 1});
  add("a.10", WeightType::kF32, {});
  add("half", WeightType::kF16, {1});
  add("brain", WeightType::kBf16, {3});
  add("count", WeightType::kI64, {1});
  add("none", WeightType::kF32, {0, 4});
  ASSERT_EQ(message(write_safetensors(folder / "m.safetensors", entries, WeightMetadata{{{"format", "pt"}}})), "");
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"count":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
      R"("B":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]},"a.10":{"dtype":"F32","shape":[],"data_offsets":[16,20]},)"
      R"("a.2":{"dtype":"F32","shape":[1],"data_offsets":[20,24]},"none":{"dtype":"F32","shape":[0,4],"data_offsets":[24,24]},)"
      R"("brain":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]},"half":{"dtype":"F16","shape":[1],"data_offsets":[30,32]},)"
      R"("flag":{"dtype":"BOOL","shape":[1],"data_offsets":[32,33]}})";
  const std::string padding(7 - (header.size() + 7) % 8, ' ');
  EXPECT_EQ(folder.read("m.safetensors"), file_of(header + padding,
                                                  "01234567"
                                                  "01234567"
                                                  "0123"
                                                  "0123"
                                                  "012345"
                                                  "01"
                                                  "0"));
  EXPECT_EQ(folder.num_files(), 1);
}

TEST(SafetensorsWriter, NamesAreEscapedAsTheLibraryDoes) {
  const ScratchFolder folder;
  const std::string name = "x\x01\b\f\r\n\t\x1f\"\\/\x7f\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80";
  ASSERT_EQ(message(write_safetensors(folder / "m", std::vector{entry_of(name, WeightType::kU8, {1}, "z")}, {})), "");
  const std::string header = std::string(R"({"x\u0001\b\f\r\n\t\u001f\"\\/)") +
                             "\x7f\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80" +
                             R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  EXPECT_EQ(folder.read("m"), file_of(header + std::string(7 - (header.size() + 7) % 8, ' '), "z"));
  const auto file = SafetensorsFile::open(folder / "m");
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_NE(file->find(name), nullptr);
}

TEST(SafetensorsWriter, HeadersOfEveryLengthEndOnEightBytes) {
  const ScratchFolder folder;
  for (int length = 1; length <= 9; ++length) {
    const std::string name(static_cast<size_t>(length), 'b');
    ASSERT_EQ(message(write_safetensors(folder / "m", std::vector{entry_of(name, WeightType::kF32, {1}, "data")}, {})),
              "");
    const size_t expected = length <= 3 ? 56 : 64;
    EXPECT_EQ(folder.read("m").size(), 8 + expected + 4) << length;
    EXPECT_EQ(folder.read("m")[0], static_cast<char>(expected));
  }
}

TEST(SafetensorsWriter, MetadataIsAbsentEmptyOrInTheGivenOrder) {
  const ScratchFolder folder;
  const auto header = [&](const WeightMetadata& metadata) {
    EXPECT_EQ(message(write_safetensors(folder / "m", {}, metadata)), "");
    return folder.read("m").substr(8);
  };
  EXPECT_EQ(header({}), "{}      ");
  EXPECT_EQ(header(WeightMetadata(std::in_place)), R"({"__metadata__":{}}     )");
  EXPECT_EQ(header(WeightMetadata{{{"z", "1"}, {"a", "\xc3\xa9\t"}}}),
            "{\"__metadata__\":{\"z\":\"1\",\"a\":\"\xc3\xa9\\t\"}}   ");
}

TEST(SafetensorsWriter, WhatIsWrittenIsReadBackAndWrittenAgainTheSame) {
  const ScratchFolder folder;
  std::string data;
  for (int i = 0; i < 4096; ++i) data += static_cast<char>(i * 37 % 251);
  std::vector<WeightEntry> entries;
  for (int i = 0; i <= static_cast<int>(WeightType::kU64); ++i) {
    const auto type = static_cast<WeightType>(i);
    const std::vector<int64_t> shape = {4, 1 + i};
    entries.push_back(
        {.info = {"w" + std::to_string(i * 7 % 22), type, shape},
         .bytes = bytes_in(data).subspan(static_cast<size_t>(i), static_cast<size_t>(*bytes_of(type, shape))),
         .owner = nullptr});
  }
  const WeightMetadata metadata{{{"format", "pt"}, {"b", ""}}};
  ASSERT_EQ(message(write_safetensors(folder / "one", entries, metadata)), "");
  const auto file = SafetensorsFile::open(folder / "one");
  ASSERT_TRUE(file.ok()) << file.error().message();
  EXPECT_EQ(file->metadata(), metadata);
  ASSERT_EQ(file->entries().size(), entries.size());
  for (const WeightEntry& entry : entries) {
    const WeightEntry* stored = file->find(entry.info.name);
    ASSERT_NE(stored, nullptr);
    EXPECT_EQ(stored->info, entry.info);
    EXPECT_EQ(text_of(stored->bytes), text_of(entry.bytes));
    EXPECT_TRUE(is_aligned(*stored)) << entry.info.name;
  }
  ASSERT_EQ(message(write_safetensors(folder / "two", file->entries(), file->metadata())), "");
  EXPECT_EQ(folder.read("one"), folder.read("two"));
}

TEST(SafetensorsWriter, BytesMayComeInPieces) {
  const ScratchFolder folder;
  const std::string data = "abcdefgh";
  auto writer = SafetensorsWriter::create(folder / "m", {{"b", WeightType::kU8, {3}}, {"a", WeightType::kU8, {5}}}, {});
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(writer->weights().front().name, "a");
  for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(message(writer->append(bytes_in(data).subspan(i, 1))), "");
  ASSERT_EQ(message(writer->finish()), "");
  const auto file = SafetensorsFile::open(folder / "m");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(text_of(file->find("a")->bytes), "abcde");
  EXPECT_EQ(text_of(file->find("b")->bytes), "fgh");
}

TEST(SafetensorsWriter, TooManyAndTooFewBytesAreABug) {
  const ScratchFolder folder;
  const std::string data = "abcdef";
  auto writer = SafetensorsWriter::create(folder / "m", {{"a", WeightType::kU8, {5}}}, {});
  ASSERT_TRUE(writer.ok());
  EXPECT_THROW((void)writer->append(bytes_in(data)), InternalError);
  EXPECT_THROW((void)writer->finish(), InternalError);
  EXPECT_THROW((void)write_safetensors(folder / "n", std::vector{entry_of("a", WeightType::kU8, {5}, data)}, {}),
               InternalError);
  const std::vector twice(2, entry_of("a", WeightType::kU8, {6}, data));
  EXPECT_THROW((void)write_safetensors(folder / "n", twice, {}), InternalError);
}

TEST(SafetensorsWriter, AnUnfinishedFileLeavesTheOldOneAndNothingElse) {
  const ScratchFolder folder;
  folder.write("m", "old");
  {
    auto writer = SafetensorsWriter::create(folder / "m", {{"a", WeightType::kU8, {5}}}, {});
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(folder.num_files(), 2);
  }
  EXPECT_EQ(folder.num_files(), 1);
  EXPECT_EQ(folder.read("m"), "old");
}

TEST(SafetensorsWriter, AFileMayBeWrittenFromTheMapOfTheOneItReplaces) {
  const ScratchFolder folder;
  const std::string data(1 << 20, 'x');
  ASSERT_EQ(message(write_safetensors(folder / "m", std::vector{entry_of("a", WeightType::kU8, {1 << 20}, data)}, {})),
            "");
  const std::string before = folder.read("m");
  const auto file = SafetensorsFile::open(folder / "m");
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(message(write_safetensors(folder / "m", file->entries(), {})), "");
  EXPECT_EQ(folder.read("m"), before);
  EXPECT_EQ(text_of(file->find("a")->bytes), data);
}

TEST(SafetensorsWriter, NamesThatTheFormatCannotHoldAreRefused) {
  const ScratchFolder folder;
  const std::string at = (folder / "m").string();
  const auto refusal = [&](const std::string& name) {
    return message(write_safetensors(folder / "m", std::vector{entry_of(name, WeightType::kU8, {1}, "z")}, {}));
  };
  EXPECT_EQ(refusal("__metadata__"),
            at + ": __metadata__: cannot be written: the format keeps this name. Give it another name.");
  EXPECT_EQ(refusal("a\xff"),
            at + ": a\\xff: cannot be written: is not valid UTF-8, which the format needs. Give it another name.");
  expect_start(message(write_safetensors(folder / "m", {}, WeightMetadata{{{"k", "\xff"}}})),
               at + ": __metadata__.k: cannot be written: ");
  EXPECT_EQ(folder.num_files(), 0);
}

TEST(SafetensorsWriter, AFolderThatIsMissingOrNoFolderIsNamed) {
  const ScratchFolder folder;
  EXPECT_EQ(message(write_safetensors(folder / "none/m", {}, {})),
            (folder / "none/m").string() + ": cannot be written: No such file or directory. Create the folder first.");
  folder.write("file", "x");
  EXPECT_EQ(
      message(write_safetensors(folder / "file/m", {}, {})),
      (folder / "file/m").string() + ": cannot be written: Not a directory. Check the folder and its permissions.");
  std::filesystem::create_directory(folder / "taken");
  expect_start(message(write_safetensors(folder / "taken", {}, {})),
               (folder / "taken").string() + ": cannot be written: something other than a file has this name");
  EXPECT_EQ(folder.num_files(), 2);
}

/// Files of this process can be no longer than that, as on a disk with no more room, while this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(SafetensorsWriter, AFileThatDoesNotFitIsNamedAndTheOldOneStays) {
  const ScratchFolder folder;
  folder.write("m", "old");
  const std::string data(1 << 20, 'x');
  std::string said;
  {
    const FileSizeLimit limit(1 << 16);
    said = message(write_safetensors(folder / "m", std::vector{entry_of("a", WeightType::kU8, {1 << 20}, data)}, {}));
  }
  EXPECT_EQ(said, (folder / "m").string() +
                      ": cannot be written: File too large. Spread the weights over more files, or write elsewhere.");
  EXPECT_EQ(folder.read("m"), "old");
  EXPECT_EQ(folder.num_files(), 1);
}

}  // namespace
}  // namespace weft
