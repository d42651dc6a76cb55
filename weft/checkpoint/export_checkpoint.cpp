#include "weft/checkpoint/export_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <map>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/file.h"
#include "weft/checkpoint/new_folder.h"
#include "weft/checkpoint/stored_weights.h"
#include "weft/models/adapter_files.h"
#include "weft/models/config_type.h"
#include "weft/models/load_weights.h"
#include "weft/models/tensor_type.h"
#include "weft/models/weight_list.h"
#include "weft/weights/mapped_file.h"
#include "weft/weights/new_file.h"
#include "weft/weights/safetensors_file.h"
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

const ExportType& chosen_type(const Model& model, Precision usual, const ExportOptions& options) {
  if (options.type) return type_of(*options.type);
  const std::string named = type_in_config(model.config);
  for (const ExportType& type : kTypes)
    if (named == type.in_config) return type;
  return type_of(usual);
}

/// A weight of files, and the model's that it holds: one, or several one behind the other.
struct FileWeight {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<const NamedShape*> parts;
};

std::vector<FileWeight> file_weights(const WeightList& model) {
  std::vector<FileWeight> weights;
  for (const NamedShape& weight : model.weights) {
    const auto stack = model.files.stack_with(weight.name);
    if (stack && !weights.empty() && weights.back().name == *stack) {
      weights.back().parts.push_back(&weight);
      ++weights.back().shape.front();
      continue;
    }
    weights.push_back({.name = stack.value_or(weight.name), .shape = weight.file_shape(), .parts = {&weight}});
    if (stack) weights.back().shape.insert(weights.back().shape.begin(), 1);
  }
  return weights;
}

/// One file, or several as transformers names them.
FolderLayout layout_of(const std::vector<FileWeight>& weights, WeightType type, int64_t max_file_bytes) {
  std::vector<FolderLayout::File> files(1);
  int64_t in_file = 0;
  int64_t total = 0;
  for (const FileWeight& weight : weights) {
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

/// Bytes of all weights.
int64_t total_bytes(const FolderLayout& layout) {
  int64_t total = 0;
  for (const FolderLayout::File& file : layout.files) {
    for (const WeightInfo& weight : file.weights) total += *bytes_of(weight.type, weight.shape);
  }
  return total;
}

std::optional<Error> write_weights(const FillWeight& fill, const WeightList& model, const ExportType& type,
                                   const ExportOptions& options, const std::filesystem::path& folder) {
  const std::vector<FileWeight> weights = file_weights(model);
  std::map<std::string_view, const FileWeight*> by_name;
  for (const FileWeight& weight : weights) by_name.emplace(weight.name, &weight);
  at::Tensor kept;  // its bytes are being written
  const FolderLayout layout = layout_of(weights, type.stored, options.max_file_bytes);
  const int64_t total = total_bytes(layout);
  int64_t done = 0;
  return write_weight_folder(folder, layout, [&](const WeightInfo& info) -> Result<std::span<const std::byte>> {
    if (options.progress) options.progress(done, total);
    std::vector<at::Tensor> parts;
    kept = at::Tensor();
    for (const NamedShape* weight : by_name.at(info.name)->parts) {
      const WeightPiece whole = whole_weight(weight->name, weight->shape);
      const ElementRange all{0, whole.num_elements()};
      at::Tensor& part = parts.emplace_back(at::empty({all.end}, at::TensorOptions().dtype(type.held)));
      if (auto error = fill(whole, all, {.master = part})) return *std::move(error);
      if (weight->is_transposed) part = part.view(weight->shape).t().contiguous();
    }
    kept = parts.size() == 1 ? parts.front() : at::stack(parts);
    done += static_cast<int64_t>(kept.nbytes());
    return std::span(static_cast<const std::byte*>(kept.data_ptr()), kept.nbytes());
  });
}

/// Weights with what their adapters add to them, in double precision until they are stored.
FillWeight merged(const FillWeight& fill, const Model& model) {
  return [fill, scales = adapter_scales(model), list = list_weights(model)](
             const WeightPiece& piece, const ElementRange& elements, const AdamWState& to) -> std::optional<Error> {
    const auto found = scales.find(piece.name);
    if (found == scales.end() || !to.master.defined()) return fill(piece, elements, to);
    if (!list) return list.error();
    const auto whole = [&](const std::string& name) -> Result<at::Tensor> {
      for (const NamedShape& weight : list->weights) {
        if (weight.name != name) continue;
        const WeightPiece all = whole_weight(name, weight.shape);
        const at::Tensor flat = at::empty({all.num_elements()}, at::TensorOptions().dtype(at::kDouble));
        if (auto error = fill(all, {0, all.num_elements()}, {.master = flat})) return *std::move(error);
        return flat.view(weight.shape);
      }
      WEFT_CHECK(false, "{} is no weight of {}", name, "the model");
    };
    auto base = whole(piece.name), down = whole(adapter_down_of(piece.name)), up = whole(adapter_up_of(piece.name));
    for (const auto* part : {&base, &down, &up}) {
      if (!*part) return part->error();
    }
    const at::Tensor sum = at::add(*base, at::mm(*up, *down), found->second);
    const at::Tensor held = held_part(piece, sum).contiguous().view({-1});
    to.master.copy_(held.narrow(0, elements.begin, elements.size()));
    return std::nullopt;
  };
}

/// Where transformers keeps chat templates beyond the first.
constexpr const char* kMoreTemplates = "additional_chat_templates";

/// By name, sorted; hidden ones are nobody's.
std::vector<std::string> files_of_types(const std::filesystem::path& folder,
                                        std::initializer_list<std::string_view> types) {
  std::vector<std::string> names;
  std::error_code problem;
  for (std::filesystem::directory_iterator entry(folder, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    const std::string name = entry->path().filename().string(), type = entry->path().extension().string();
    std::error_code ignored;
    if (std::find(types.begin(), types.end(), type) != types.end() && !name.starts_with('.') &&
        entry->is_regular_file(ignored))
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<Error> copy_companions(const std::filesystem::path& from, const std::filesystem::path& to) {
  constexpr size_t kMostBytes = size_t{1} << 30;
  for (const std::string& name : companion_files(from)) {
    const auto text = read_file(from / name, kMostBytes);
    if (!text) return text.error();
    std::error_code ignored;  // what cannot be made cannot be written to
    std::filesystem::create_directories((to / name).parent_path(), ignored);
    if (auto error = write_text(to / name, *text)) return error;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> companion_files(const std::filesystem::path& folder) {
  std::vector<std::string> names = files_of_types(folder, {".json", ".txt", ".model", ".jinja", ".tiktoken"});
  std::erase_if(names, [](const std::string& name) {
    return name == "config.json" || name.ends_with(".index.json") || name == "checkpoint.json";
  });
  for (const std::string& name : files_of_types(folder / kMoreTemplates, {".jinja"}))
    names.push_back(std::string(kMoreTemplates) + "/" + name);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> code_files(const std::filesystem::path& folder) {
  return files_of_types(folder, {".py"});
}

Result<FillWeight> fill_from_folder(const std::filesystem::path& path, const Model& model) {
  WEFT_TRY(WeightFolder opened, WeightFolder::open(path));
  const auto folder = std::make_shared<const WeightFolder>(std::move(opened));
  WEFT_TRY(const WeightList list, list_weights(model));
  WEFT_TRY(WeightEntries entries, find_weights(*folder, list));
  return FillWeight([folder, entries](const WeightPiece& piece, const ElementRange& elements,
                                      const AdamWState& to) -> std::optional<Error> {
    for (const at::Tensor* moment : {&to.moment1, &to.moment2})
      if (moment->defined()) moment->zero_();
    if (!to.master.defined()) return std::nullopt;
    const FoundWeight& entry = entries.at(piece.name);
    const auto options = at::TensorOptions().dtype(*tensor_type(entry.info.type));
    const int64_t count = piece.shape[0] * piece.row_elements();
    at::Tensor flat;
    if (is_aligned(entry)) {
      flat = at::from_blob(const_cast<std::byte*>(entry.bytes.data()), {count}, options);
    } else {
      flat = at::empty({count}, options);
      std::memcpy(flat.data_ptr(), entry.bytes.data(), entry.bytes.size());
    }
    const int64_t row = piece.row_elements();
    if (entry.is_transposed) flat = flat.view({row, piece.shape[0]}).t().contiguous().view({count});
    for (const PartBox& box : boxes_of(piece, elements)) {
      copy_box({.num_rows = box.rows.size(),
                .num_columns = box.columns.size(),
                .to = box.first,
                .to_stride = box.row_stride,
                .from = box.rows.begin * row + box.columns.begin,
                .from_stride = row},
               to.master, flat);
    }
    done_with(entry.bytes);
    return std::nullopt;
  });
}

std::optional<Error> export_weights(const FillWeight& fill, const Model& model, Precision usual,
                                    const std::filesystem::path& folder, const ExportOptions& options) {
  const at::NoGradGuard no_graph;
  if (has_adapters(model)) {
    const auto base = without_adapters(model);
    if (!base) return base.error();
    return export_weights(merged(fill, model), *base, usual, folder, options);
  }
  const ExportType& type = chosen_type(model, usual, options);
  const auto list = list_weights(model);
  if (!list) return list.error();
  auto made = NewFolder::begin(folder);
  if (!made) return std::move(made).error();
  const std::filesystem::path hidden = made->hidden();
  if (auto error = write_weights(fill, *list, type, options, hidden)) return error;
  if (!options.companions.empty()) {
    if (auto error = copy_companions(options.companions, hidden)) return error;
  }
  const std::string config = config_with_type(model.config, type.in_config).dump(2) + "\n";
  if (auto error = write_text(hidden / "config.json", config)) return error;
  return made->finish();
}

std::optional<Error> export_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                                       const ExportOptions& options) {
  StoredWeights stored(checkpoint);
  const auto fill = [&](const WeightPiece& piece, const ElementRange& elements, const AdamWState& to) {
    return stored.fill(piece, elements, to);
  };
  return export_weights(fill, checkpoint.plan.model, checkpoint.plan.precision.master, folder, options);
}

}  // namespace weft
