#pragma once

#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/json.h"
#include "weft/weights/safetensors_file.h"

namespace weft {

/// How weights are spread over the files of a folder: what to write them back by.
struct FolderLayout {
  struct File {
    std::string name;
    WeightMetadata metadata;
    std::vector<WeightInfo> weights;
  };
  std::vector<File> files;
  bool has_index = false;              ///< one file named model.safetensors needs none
  std::optional<Json> index_metadata;  ///< nothing: the index has no such field
};

/// The weights of a Hugging Face model: `model.safetensors`, or the files that `model.safetensors.index.json` names.
class WeightFolder {
 public:
  /// `path` is a folder, an index or a single file. Index and files must agree on every weight.
  static Result<WeightFolder> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  int64_t num_weights() const { return std::ssize(places_); }
  /// nullptr where there is none of this name.
  const WeightEntry* find(std::string_view name) const;
  /// The same, with an error that names the folder and the closest name.
  Result<WeightEntry> weight(std::string_view name) const;
  FolderLayout layout() const;

 private:
  WeightFolder() = default;
  std::optional<Error> add_files(const std::filesystem::path& folder, const std::vector<std::string>& names);

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  bool has_index_ = false;
  std::optional<Json> index_metadata_;
  std::unordered_map<std::string, std::pair<size_t, size_t>> places_;  // file, and entry in it
};

/// The bytes of a weight, which need only last until the next call.
using WeightSource = std::function<Result<std::span<const std::byte>>(const WeightInfo&)>;

/// Writes files by a layout into an existing folder, one weight in memory at a time, the index last. What a layout of
/// `WeightFolder` and the same bytes give is the folder that transformers wrote, byte for byte.
std::optional<Error> write_weight_folder(const std::filesystem::path& folder, const FolderLayout& layout,
                                         const WeightSource& bytes_of_weight);

}  // namespace weft
