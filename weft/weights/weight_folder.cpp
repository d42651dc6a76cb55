#include "weft/weights/weight_folder.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/text.h"
#include "weft/weights/safetensors_writer.h"
#include "weft/weights/weight_entry.h"
#include "weft/weights/weight_index.h"

namespace weft {
namespace {

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Error refuse(const std::filesystem::path& source, std::string_view field, std::string problem, std::string advice) {
  return {.source = source.string(),
          .field = printable(field, kLongestShownName),
          .problem = std::move(problem),
          .advice = std::move(advice)};
}

/// What to open of a folder: its index or its only file.
Result<std::filesystem::path> choose(const std::filesystem::path& folder) {
  const bool has_single = is_there(folder / kSingleName), has_index = is_there(folder / kIndexName);
  if (has_single && has_index) {
    return refuse(folder, "", fmt::format("holds both {} and {}, and either could be meant", kSingleName, kIndexName),
                  "Remove the one that is not meant, or give the path of the other where a path is taken.");
  }
  if (has_single) return folder / kSingleName;
  if (has_index) return folder / kIndexName;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!is_there(folder / name)) continue;
    return refuse(folder, "", fmt::format("holds {} but no {}, and pickled weights are not read", name, kSingleName),
                  "Convert them: load the model with transformers and call save_pretrained, which writes safetensors.");
  }
  return refuse(folder, "", fmt::format("holds neither {} nor {}", kSingleName, kIndexName),
                "Check the path, and that the weights were downloaded, not only the configuration.");
}

/// Every weight of the index is in its file, and the other way round.
std::optional<Error> compare(const WeightIndex& index, const WeightFolder& folder,
                             const std::filesystem::path& source) {
  constexpr const char* kAdvice = "Index and files are not of the same model: copy or download all of them again.";
  std::unordered_map<std::string, const SafetensorsFile*> files;
  for (const SafetensorsFile& file : folder.files()) files.emplace(file.path().filename().string(), &file);
  std::unordered_set<std::string_view> named;
  for (const auto& [weight, file_name] : index.weight_map) {
    named.insert(weight);
    if (files.at(file_name)->find(weight) == nullptr) {
      return refuse(source, weight, fmt::format("is not in {}, where the index says it is", in_quotes(file_name)),
                    kAdvice);
    }
  }
  for (const SafetensorsFile& file : folder.files()) {
    for (const WeightEntry& entry : file.entries()) {
      if (!named.contains(entry.info.name))
        return refuse(file.path(), entry.info.name, fmt::format("is not in {}", source.filename().string()), kAdvice);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> WeightFolder::add_files(const std::filesystem::path& folder,
                                             const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    auto file = SafetensorsFile::open(folder / name);
    if (!file) {
      Error error = std::move(file).error();
      if (!is_there(folder / name)) {
        error.problem = "is missing, and the index names it";
        error.advice = "Copy or download it.";
      }
      return error;
    }
    files_.push_back(*std::move(file));
    const auto& entries = files_.back().entries();
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto [place, is_new] = places_.try_emplace(entries[i].info.name, files_.size() - 1, i);
      if (is_new) continue;
      return refuse(files_.back().path(), entries[i].info.name,
                    fmt::format("is also in {}, and a weight may be stored once",
                                in_quotes(files_[place->second.first].path().filename().string())),
                    "Write the folder anew, or remove one of the two.");
    }
  }
  return std::nullopt;
}

Result<WeightFolder> WeightFolder::open(const std::filesystem::path& path) {
  WeightFolder weights;
  weights.path_ = path;
  std::error_code ignored;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(path, ignored)) {
    WEFT_TRY(file, choose(path));
  } else if (path.extension() == ".bin" || path.extension() == ".pt" || path.extension() == ".pth") {
    return refuse(path, "", "is a file of pickled weights, and only .safetensors files are read",
                  "Convert it: load the model with transformers and call save_pretrained, which writes safetensors.");
  }
  if (file.extension() != ".json") {
    WEFT_TRY(SafetensorsFile single, SafetensorsFile::open(file));
    const auto& entries = single.entries();
    for (size_t i = 0; i < entries.size(); ++i) weights.places_.emplace(entries[i].info.name, std::pair(0, i));
    weights.files_.push_back(std::move(single));
    return weights;
  }
  WEFT_TRY(const Document document, read_document(file, {.max_bytes = 100'000'000, .max_values = 2'000'000}));
  WEFT_TRY(WeightIndex index, read_weight_index(document));
  weights.has_index_ = true;
  if (auto error = weights.add_files(file.parent_path(), index.files())) return *std::move(error);
  if (auto error = compare(index, weights, file)) return *std::move(error);
  weights.index_metadata_ = std::move(index.metadata);
  return weights;
}

const WeightEntry* WeightFolder::find(std::string_view name) const {
  const auto place = places_.find(std::string(name));
  return place == places_.end() ? nullptr : &files_[place->second.first].entries()[place->second.second];
}

Result<WeightEntry> WeightFolder::weight(std::string_view name) const {
  if (const WeightEntry* entry = find(name)) return *entry;
  std::vector<std::string> known;
  for (const auto& [other, place] : places_) known.push_back(other);
  // So that of equally close names always the same is offered.
  std::sort(known.begin(), known.end());
  return refuse(path_, name, fmt::format("is not among its {} weights", places_.size()),
                "Check that these are the weights of this model." + did_you_mean(name, known));
}

FolderLayout WeightFolder::layout() const {
  FolderLayout layout{.has_index = has_index_, .index_metadata = index_metadata_};
  for (const SafetensorsFile& file : files_) {
    FolderLayout::File& shape = layout.files.emplace_back();
    shape.name = file.path().filename().string();
    shape.metadata = file.metadata();
    for (const WeightEntry& entry : file.entries()) shape.weights.push_back(entry.info);
  }
  return layout;
}

std::optional<Error> write_weight_folder(const std::filesystem::path& folder, const FolderLayout& layout,
                                         const WeightSource& bytes_of_weight) {
  WEFT_CHECK(layout.has_index || layout.files.size() == 1, "{} files without an index", layout.files.size());
  const auto writes = [&](std::string_view name) {
    return std::any_of(layout.files.begin(), layout.files.end(),
                       [&](const FolderLayout::File& file) { return file.name == name; });
  };
  const char* other = layout.has_index ? kSingleName : kIndexName;
  const bool would_be_two_models = layout.has_index ? !writes(kSingleName) : writes(kSingleName);
  if (would_be_two_models && is_there(folder / other)) {
    return refuse(folder, "",
                  fmt::format("already holds {}, and readers could not tell which weights are meant", other),
                  "Write to another folder, or remove it first.");
  }
  WeightIndex index{.metadata = layout.index_metadata};
  for (const FolderLayout::File& file : layout.files) {
    auto writer = SafetensorsWriter::create(folder / file.name, file.weights, file.metadata);
    if (!writer) return std::move(writer).error();
    for (const WeightInfo& weight : writer->weights()) {
      const auto bytes = bytes_of_weight(weight);
      if (!bytes) return bytes.error();
      WEFT_CHECK(std::ssize(*bytes) == *bytes_of(weight.type, weight.shape), "{} bytes for {}", bytes->size(),
                 weight.name);
      if (auto error = writer->append(*bytes)) return error;
      index.weight_map.emplace_back(weight.name, file.name);
    }
    if (auto error = writer->finish()) return error;
  }
  if (!layout.has_index) return std::nullopt;
  const std::string text = to_text(index);
  auto file = NewFile::create(folder / kIndexName, std::ssize(text));
  if (!file) return std::move(file).error();
  if (auto error = file->append(std::as_bytes(std::span(text)))) return error;
  return file->finish();
}

}  // namespace weft
