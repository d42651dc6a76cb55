#include "weft/checkpoint/export_checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/checkpoint/new_folder.h"
#include "weft/checkpoint/stored_weights.h"
#include "weft/models/config_type.h"
#include "weft/models/tensor_type.h"
#include "weft/models/weight_list.h"
#include "weft/weights/new_file.h"
#include "weft/weights/weight_folder.h"

namespace weft {
namespace {

struct ExportType {
  Precision precision;
  WeightType stored;
  at::ScalarType held;
  const char* in_config;
};

constexpr ExportType kTypes[] = {{Precision::kFp64, WeightType::kF64, at::kDouble, "float64"},
                                 {Precision::kFp32, WeightType::kF32, at::kFloat, "float32"},
                                 {Precision::kBf16, WeightType::kBf16, at::kBFloat16, "bfloat16"},
                                 {Precision::kFp16, WeightType::kF16, at::kHalf, "float16"}};

const ExportType& type_of(Precision precision) {
  for (const ExportType& type : kTypes)
    if (type.precision == precision) return type;
  WEFT_CHECK(false, "a precision without a name");
  return kTypes[0];
}

const ExportType& chosen_type(const Plan& plan, const ExportOptions& options) {
  if (options.type) return type_of(*options.type);
  const std::string named = type_in_config(plan.model.config);
  for (const ExportType& type : kTypes)
    if (named == type.in_config) return type;
  return type_of(plan.precision.master);
}

/// One file, or several as transformers names them.
FolderLayout layout_of(const WeightList& model, WeightType type, int64_t max_file_bytes) {
  std::vector<FolderLayout::File> files(1);
  int64_t in_file = 0;
  int64_t total = 0;
  for (const NamedShape& weight : model.weights) {
    const int64_t size = *bytes_of(type, weight.shape);
    if (in_file > 0 && in_file + size > max_file_bytes) {
      files.emplace_back();
      in_file = 0;
    }
    in_file += size;
    total += size;
    files.back().weights.push_back({.name = weight.name, .type = type, .shape = weight.shape});
  }
  FolderLayout layout{.files = std::move(files)};
  layout.has_index = layout.files.size() > 1;
  if (layout.has_index) layout.index_metadata = Json{{"total_size", total}};
  for (size_t i = 0; i < layout.files.size(); ++i) {
    layout.files[i].name = layout.has_index
                               ? fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, layout.files.size())
                               : "model.safetensors";
    // Without it transformers refuses the file.
    layout.files[i].metadata.emplace({std::pair<std::string, std::string>("format", "pt")});
  }
  return layout;
}

std::optional<Error> write_text(const std::filesystem::path& path, const std::string& text) {
  auto file = NewFile::create(path, std::ssize(text));
  if (!file) return std::move(file).error();
  if (auto error = file->append(std::as_bytes(std::span(text)))) return error;
  return file->finish();
}

std::optional<Error> write_weights(const Checkpoint& checkpoint, const WeightList& model, const ExportType& type,
                                   int64_t max_file_bytes, const std::filesystem::path& folder) {
  StoredWeights stored(checkpoint);
  at::Tensor kept;  // its bytes are being written
  return write_weight_folder(folder, layout_of(model, type.stored, max_file_bytes),
                             [&](const WeightInfo& info) -> Result<std::span<const std::byte>> {
                               const WeightPiece whole = whole_weight(info.name, info.shape);
                               const ElementRange all{0, whole.num_elements()};
                               kept = at::empty({all.end}, at::TensorOptions().dtype(type.held));
                               if (auto error = stored.fill(whole, all, {.master = kept}, 0)) return *std::move(error);
                               return std::span(static_cast<const std::byte*>(kept.data_ptr()), kept.nbytes());
                             });
}

}  // namespace

std::optional<Error> export_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                                       const ExportOptions& options) {
  const at::NoGradGuard no_graph;
  std::error_code problem;
  if (std::filesystem::exists(folder, problem) && !std::filesystem::is_empty(folder, problem)) {
    return Error{.source = folder.string(),
                 .problem = "is there already, and not an empty folder",
                 .advice = "Give a folder that is still to be made."};
  }
  const Plan& plan = checkpoint.plan;
  const ExportType& type = chosen_type(plan, options);
  const auto model = list_weights(plan.model);
  if (!model) return model.error();
  if (auto error = begin_folder(folder)) return error;
  const std::filesystem::path hidden = hidden_folder(folder);
  auto error = write_weights(checkpoint, *model, type, options.max_file_bytes, hidden);
  if (!error) {
    error = write_text(hidden / "config.json", config_with_type(plan.model.config, type.in_config).dump(2) + "\n");
  }
  if (!error) error = finish_folder(folder);
  if (error) discard_folder(folder);
  return error;
}

}  // namespace weft
