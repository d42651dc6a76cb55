#include "weft/weights/weight_folder.h"

#include "tests/support/weights/example_files.h"
#include "weft/weights/weight_index.h"

namespace weft {
namespace {

/// A file with one-byte weights of these names, one letter each.
std::string shard(const std::string& names) {
  std::string header = R"({"__metadata__":{"format":"pt"})", data;
  for (size_t i = 0; i < names.size(); ++i) {
    header += ",\"" + names.substr(i, 1) + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + "," +
              std::to_string(i + 1) + "]}";
    data += static_cast<char>(names[i] - 'a' + 'A');
  }
  header += "}";
  return file_of(header + std::string(7 - (header.size() + 7) % 8, ' '), data);
}

constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// As transformers 5 writes it.
constexpr const char* kIndexText = R"({
  "metadata": {
    "total_parameters": 3,
    "total_size": 3
  },
  "weight_map": {
    "a": "model-00001-of-00002.safetensors",
    "b": "model-00002-of-00002.safetensors",
    "c": "model-00001-of-00002.safetensors"
  }
}
)";

class WeightFolderTest : public testing::Test {
 protected:
  void write_shards(const std::string& first = "ac", const std::string& second = "b") {
    folder_.write(kFirst, shard(first));
    folder_.write(kSecond, shard(second));
    folder_.write(kIndex, kIndexText);
  }
  std::string problem(const std::string& name = "") {
    const auto weights = WeightFolder::open(name.empty() ? folder_.path() : folder_ / name);
    return weights ? "" : weights.error().message();
  }
  std::string at(const std::string& name) const { return folder_.path().string() + "/" + name; }

  ScratchFolder folder_;
};

TEST_F(WeightFolderTest, ASingleFileIsFoundByFolderOrPath) {
  folder_.write("model.safetensors", shard("ab"));
  for (const std::filesystem::path& path : {folder_.path(), folder_ / "model.safetensors"}) {
    const auto weights = WeightFolder::open(path);
    ASSERT_TRUE(weights.ok()) << weights.error().message();
    EXPECT_EQ(weights->num_weights(), 2);
    EXPECT_EQ(text_of(weights->find("b")->bytes), "B");
    EXPECT_EQ(weights->find("x"), nullptr);
  }
}

TEST_F(WeightFolderTest, WeightsOfSeveralFilesAreFoundByName) {
  write_shards();
  for (const std::filesystem::path& path : {folder_.path(), folder_ / kIndex}) {
    const auto weights = WeightFolder::open(path);
    ASSERT_TRUE(weights.ok()) << weights.error().message();
    EXPECT_EQ(weights->num_weights(), 3);
    EXPECT_EQ(weights->files().size(), 2u);
    for (const char* name : {"a", "b", "c"}) {
      const auto weight = weights->weight(name);
      ASSERT_TRUE(weight.ok());
      EXPECT_EQ(text_of(weight->bytes), std::string(1, static_cast<char>(name[0] - 'a' + 'A')));
    }
  }
}

TEST_F(WeightFolderTest, AnUnknownWeightIsNamedWithTheClosest) {
  const std::string data = R"({"model.norm.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  folder_.write("model.safetensors", file_of(data, "x"));
  const auto weights = WeightFolder::open(folder_.path());
  ASSERT_TRUE(weights.ok());
  const auto weight = weights->weight("model.norm.wieght");
  ASSERT_FALSE(weight.ok());
  EXPECT_EQ(weight.error().message(),
            folder_.path().string() +
                ": model.norm.wieght: is not among its 1 weights. Check that these are the weights of "
                "this model. Did you mean 'model.norm.weight'?");
}

TEST_F(WeightFolderTest, AFolderIsWrittenBackByteForByte) {
  write_shards();
  const auto weights = WeightFolder::open(folder_.path());
  ASSERT_TRUE(weights.ok());
  const ScratchFolder copy;
  const auto source = [&](const WeightInfo& info) -> Result<std::span<const std::byte>> {
    return weights->find(info.name)->bytes;
  };
  ASSERT_FALSE(write_weight_folder(copy.path(), weights->layout(), source).has_value());
  EXPECT_EQ(copy.num_files(), 3);
  for (const char* name : {kFirst, kSecond, kIndex}) EXPECT_EQ(copy.read(name), folder_.read(name)) << name;

  // Over itself, too: the map still shows the files that are being replaced.
  ASSERT_FALSE(write_weight_folder(folder_.path(), weights->layout(), source).has_value());
  EXPECT_EQ(folder_.num_files(), 3);
  for (const char* name : {kFirst, kSecond, kIndex}) EXPECT_EQ(copy.read(name), folder_.read(name)) << name;
}

TEST_F(WeightFolderTest, ASingleFileIsWrittenBackWithoutAnIndex) {
  folder_.write("model.safetensors", shard("ab"));
  const auto weights = WeightFolder::open(folder_.path());
  ASSERT_TRUE(weights.ok());
  const ScratchFolder copy;
  const std::string changed = "z";
  const auto source = [&](const WeightInfo&) -> Result<std::span<const std::byte>> { return bytes_in(changed); };
  ASSERT_FALSE(write_weight_folder(copy.path(), weights->layout(), source).has_value());
  EXPECT_EQ(copy.num_files(), 1);
  std::string expected = shard("ab");
  expected.replace(expected.size() - 2, 2, "zz");
  EXPECT_EQ(copy.read("model.safetensors"), expected);
}

TEST_F(WeightFolderTest, AFailingSourceEndsTheWritingAndLeavesWhatWasThere) {
  folder_.write("model.safetensors", shard("ab"));
  const std::string before = folder_.read("model.safetensors");
  const auto weights = WeightFolder::open(folder_.path());
  ASSERT_TRUE(weights.ok());
  const auto source = [&](const WeightInfo& info) -> Result<std::span<const std::byte>> {
    if (info.name == "b") return Error{.problem = "rank 3 is gone"};
    return weights->find(info.name)->bytes;
  };
  const auto error = write_weight_folder(folder_.path(), weights->layout(), source);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message(), "rank 3 is gone");
  EXPECT_EQ(folder_.read("model.safetensors"), before);
  EXPECT_EQ(folder_.num_files(), 1);
}

TEST_F(WeightFolderTest, AFolderWithWeightsOfTheOtherFormIsNotWrittenTo) {
  write_shards();
  const auto weights = WeightFolder::open(folder_.path());
  ASSERT_TRUE(weights.ok());
  const ScratchFolder other;
  other.write("model.safetensors", shard("a"));
  const auto source = [&](const WeightInfo& info) -> Result<std::span<const std::byte>> {
    return weights->find(info.name)->bytes;
  };
  const auto error = write_weight_folder(other.path(), weights->layout(), source);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message(), other.path().string() +
                                  ": already holds model.safetensors, and readers could not tell which "
                                  "weights are meant. Write to another folder, or remove it first.");
  EXPECT_EQ(other.num_files(), 1);
}

TEST_F(WeightFolderTest, AFolderWithoutWeightsIsNamed) {
  EXPECT_EQ(problem(), folder_.path().string() +
                           ": holds neither model.safetensors nor model.safetensors.index.json. Check the "
                           "path, and that the weights were downloaded, not only the configuration.");
  expect_start(problem("none"), at("none: cannot be read: No such file or directory"));
}

TEST_F(WeightFolderTest, PickledWeightsAreToBeConverted) {
  folder_.write("pytorch_model.bin", "x");
  expect_start(problem(), folder_.path().string() +
                              ": holds pytorch_model.bin but no model.safetensors, and pickled weights are "
                              "not read. Convert them: ");
  expect_start(problem("pytorch_model.bin"),
               at("pytorch_model.bin: is a file of pickled weights, and only .safetensors files are read"));
  folder_.write("model.safetensors", shard("a"));
  EXPECT_EQ(problem(), "");
}

TEST_F(WeightFolderTest, TwoModelsInOneFolderAreNotGuessedBetween) {
  write_shards();
  folder_.write("model.safetensors", shard("a"));
  EXPECT_EQ(problem(), folder_.path().string() +
                           ": holds both model.safetensors and model.safetensors.index.json, and either "
                           "could be meant. Remove the one that is not meant, or give the path of the other "
                           "where a path is taken.");
  EXPECT_EQ(problem(kIndex), "");
  EXPECT_EQ(problem("model.safetensors"), "");
}

TEST_F(WeightFolderTest, AMissingOrDamagedFileIsNamed) {
  write_shards();
  std::filesystem::remove(folder_ / kSecond);
  EXPECT_EQ(problem(), at(kSecond) + ": is missing, and the index names it. Copy or download it.");
  folder_.write(kSecond, shard("b") + "x");
  expect_start(problem(), at(kSecond) + ": goes on for 1 bytes after its last tensor");
}

TEST_F(WeightFolderTest, IndexAndFilesMustAgree) {
  const std::string advice = ". Index and files are not of the same model: copy or download all of them again.";
  write_shards("a", "b");
  EXPECT_EQ(problem(),
            at(kIndex) + ": c: is not in 'model-00001-of-00002.safetensors', where the index says it is" + advice);
  write_shards("a", "bc");
  EXPECT_EQ(problem(),
            at(kIndex) + ": c: is not in 'model-00001-of-00002.safetensors', where the index says it is" + advice);
  write_shards("ac", "bd");
  EXPECT_EQ(problem(), at(kSecond) + ": d: is not in model.safetensors.index.json" + advice);
  write_shards("ac", "ab");
  EXPECT_EQ(problem(), at(kSecond) +
                           ": a: is also in 'model-00001-of-00002.safetensors', and a weight may be stored once. Write "
                           "the folder anew, or remove one of the two.");
}

std::string index_problem(const std::string& text) {
  const auto document = parse_document(text, "i.json", Syntax::kJson);
  if (!document) return document.error().message();
  const auto index = read_weight_index(*document);
  return index ? "" : index.error().message();
}

TEST(WeightIndex, MistakesAreNamed) {
  EXPECT_EQ(index_problem(R"({"weight_map":{"a":"m.safetensors"}})"), "");
  EXPECT_EQ(index_problem(R"({"hidden_size":3})"),
            "i.json: weight_map: is missing, and must name the file of every weight. Check that this is the index of a "
            "Hugging "
            "Face model.");
  expect_start(index_problem(R"({"weight_map":{}})"),
               "i.json: weight_map: is empty, and must name the file of every weight");
  expect_start(index_problem(R"({"weight_map":[1]})"), "i.json: weight_map: is a list, and must name");
  expect_start(index_problem(R"({"metadata":3,"weight_map":{"a":"m.safetensors"}})"),
               "i.json: metadata: is the number 3, and must be an object");
  expect_start(index_problem(R"({"weight_map":{"a":"m.safetensors","a":"n.safetensors"}})"),
               "i.json: weight_map.a: has the key 'a' twice");
  for (const char* file :
       {R"("../m.safetensors")", R"("/m.safetensors")", R"("")", "3", R"("m.bin")", R"("x\u0000.safetensors")"}) {
    expect_start(index_problem(std::string(R"({"weight_map":{"a":)") + file + "}}"), "i.json: weight_map.a: is ");
  }
}

TEST(WeightIndex, TextIsAsPythonDumpsIt) {
  const WeightIndex index{
      .metadata = Json::parse(R"({"total_size": 15000000000.0, "a": {}, "l": [1, null], "é": "\n"})"),
      .weight_map = {{"b", "m.safetensors"},
                     {"a.2", "m.safetensors"},
                     {"a.10", "m.safetensors"},
                     {"B\xf0\x9f\x98\x80\x7f", "m.safetensors"}}};
  EXPECT_EQ(to_text(index), R"({
  "metadata": {
    "a": {},
    "l": [
      1,
      null
    ],
    "total_size": 15000000000.0,
    "\u00e9": "\n"
  },
  "weight_map": {
    "B\ud83d\ude00\u007f": "m.safetensors",
    "a.10": "m.safetensors",
    "a.2": "m.safetensors",
    "b": "m.safetensors"
  }
}
)");
}

}  // namespace
}  // namespace weft
