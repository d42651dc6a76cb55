#include "weft/models/adapter_files.h"

#include <cmath>
#include <cstring>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/document.h"
#include "weft/base/fields.h"
#include "weft/base/file.h"
#include "weft/base/text.h"
#include "weft/models/tensor_type.h"
#include "weft/models/weight_list.h"
#include "weft/program/adapter_ops.h"
#include "weft/program/name_weights.h"
#include "weft/tensor/local_tensor.h"
#include "weft/weights/safetensors_writer.h"

namespace weft {
namespace {

constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kWeightsName = "adapter_model.safetensors";
/// PEFT wraps a model twice before its own names begin.
constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kWeight = ".weight";

std::string without_weight(const std::string& name) {
  return name.substr(0, name.size() - kWeight.size());
}

/// Keys of PEFT's configuration that change what is computed, with the values that do not.
struct PlainKey {
  const char* key;
  Json plain;
};

std::optional<Error> find_foreign(const Document& config) {
  const Json& root = config.root;
  const PlainKey keys[] = {{"peft_type", "LORA"},
                           {"bias", "none"},
                           {"use_dora", false},
                           {"use_rslora", false},
                           {"lora_bias", false},
                           {"modules_to_save", nullptr},
                           {"layer_replication", nullptr},
                           {"trainable_token_indices", nullptr}};
  for (const PlainKey& each : keys) {
    if (!root.contains(each.key) || root[each.key] == each.plain || root[each.key].is_null()) continue;
    return Error{
        .source = config.source,
        .field = each.key,
        .problem = fmt::format("is {}, only {} is known here", printable(root[each.key].dump()), each.plain.dump()),
        .advice = "Use plain LoRA adapters."};
  }
  return std::nullopt;
}

/// Ranks and alphas within the ranges of a plan's adapters: the usual ones, and those of single layers.
std::optional<Error> find_bad_number(const Document& config) {
  Findings findings(config.source);
  Fields fields(config, findings);
  const IntegerRange ranks{1, kMostAdapterRank};
  const NumberRange alphas{0, kMostAdapterAlpha};
  fields.integer("r", ranks);
  fields.number("lora_alpha", alphas);
  for (const char* pattern : {"rank_pattern", "alpha_pattern"}) {
    if (!fields.has(pattern)) continue;
    Fields layers = fields.object(pattern);
    for (const auto& [layer, number] : config.root[pattern].items()) {
      if (std::string_view(pattern) == "rank_pattern")
        layers.integer(layer, ranks);
      else
        layers.number(layer, alphas);
    }
  }
  if (!findings.first()) return std::nullopt;
  Error error = *findings.first();
  error.field = printable(error.field);
  if (error.advice.empty()) error.advice = "Give a folder that PEFT has saved LoRA adapters to.";
  return error;
}

/// PEFT takes the pattern's number where a layer's name ends with its key.
double number_for(const Json& root, const char* usual, const char* pattern, const std::string& layer) {
  if (root.contains(pattern) && root[pattern].is_object()) {
    for (const auto& [key, value] : root[pattern].items()) {
      if (value.is_number() && (layer == key || layer.ends_with("." + key))) return value.get<double>();
    }
  }
  return root[usual].get<double>();
}

}  // namespace

std::string adapter_down_of(const std::string& weight) {
  return without_weight(weight) + ".lora_A.weight";
}

std::string adapter_up_of(const std::string& weight) {
  return without_weight(weight) + ".lora_B.weight";
}

std::map<std::string, double> adapter_scales(const Model& model) {
  std::map<std::string, double> scales;
  for (const Module& module : model.modules) {
    for (int64_t place = 0; place < num_blocks(module); ++place) {
      const Block& block = block_at(module, place);
      for (size_t i = 0; i < block.ops.size(); ++i) {
        if (!is_adapted(block, i)) continue;
        const double scale = std::get<Pointwise>(block.ops[i + 3].shape).fresh_scale;
        const int64_t num_experts = std::get<Matmul>(block.ops[i].shape).experts;
        for (const std::string& name : block.ops[i + 1].weights->names) {
          const std::string layer = name.substr(0, name.size() - kAdapterDownName.size());
          for (int64_t expert = 0; expert < num_experts; ++expert)
            scales.emplace(path_of_block(module, place) + numbered(layer, expert) + std::string(kWeight), scale);
        }
      }
    }
  }
  return scales;
}

std::string name_in_memory(const WeightFiles& files, const std::string& name) {
  // transformers' classes have everything but the head under `model`: of the other names that files may have, those.
  for (const auto& [other, own] : files.renamed) {
    if ((other.starts_with("model.") || other.starts_with("lm_head.")) && name.starts_with(own))
      return other + name.substr(own.size());
  }
  return name;
}

Result<AdapterFolder> AdapterFolder::open(const std::filesystem::path& folder, const Model& model) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder / kConfigName, ignored)) {
    return Error{.source = folder.string(),
                 .problem = fmt::format("has no {}", kConfigName),
                 .advice = "Give a folder that PEFT, or weft convert --adapter, has written."};
  }
  WEFT_TRY(const Document config, read_document(folder / kConfigName));
  if (!config.root.is_object())
    return Error{.source = config.source, .problem = "is no mapping", .advice = "Give PEFT's own file."};
  if (auto error = find_foreign(config)) return *std::move(error);
  if (auto error = find_bad_number(config)) return *std::move(error);
  WEFT_TRY(SafetensorsFile file, SafetensorsFile::open(folder / kWeightsName));
  AdapterFolder opened(folder, std::move(file));
  std::map<std::pair<int64_t, double>, size_t> alike;
  for (const WeightEntry& entry : opened.file_.entries()) {
    const std::string& name = entry.info.name;
    if (!name.starts_with(kPrefix) || !is_adapter_weight(name)) {
      return Error{.source = (folder / kWeightsName).string(),
                   .field = printable(name),
                   .problem = "is no weight of a LoRA adapter",
                   .advice = "Save adapters of linear layers alone."};
    }
    const std::string inner = name.substr(kPrefix.size());
    opened.names_in_file_[model.numbers.files.name_of(inner)] = name;
    if (!name.ends_with(".lora_A.weight")) continue;
    const std::string layer = inner.substr(0, inner.size() - strlen(".lora_A.weight"));
    const int64_t rank = entry.info.shape.empty() ? 0 : entry.info.shape.front();
    if (rank < 1 || rank > kMostAdapterRank) {
      return Error{.source = (folder / kWeightsName).string(),
                   .field = printable(name),
                   .problem = fmt::format("has the shape {}, whose first number is the rank: 1 to {} are allowed",
                                          shape_text(entry.info.shape), kMostAdapterRank),
                   .advice = "Give a folder that PEFT has saved LoRA adapters to."};
    }
    const double alpha = number_for(config.root, "lora_alpha", "alpha_pattern", layer);
    const auto [place, is_new] = alike.try_emplace({rank, alpha}, opened.rules_.size());
    if (is_new) opened.rules_.push_back({.targets = {}, .rank = rank, .alpha = alpha});
    opened.rules_[place->second].targets.push_back(model.numbers.files.name_of(layer));
  }
  if (opened.rules_.empty())
    return Error{.source = (folder / kWeightsName).string(),
                 .problem = "holds no adapter",
                 .advice = "Give a folder that PEFT has saved LoRA adapters to."};
  return opened;
}

std::optional<Error> AdapterFolder::check(const Model& model) const {
  const auto list = list_weights(model);
  if (!list) return list.error();
  std::set<std::string> wanted;
  const auto wrong = [&](const std::string& name, std::string problem) {
    return Error{.source = folder_.string(),
                 .field = name,
                 .problem = std::move(problem),
                 .advice = "Use adapters of this model, with the ranks and targets of the plan."};
  };
  for (const NamedShape& weight : list->weights) {
    if (!is_adapter_weight(weight.name)) continue;
    const auto found = names_in_file_.find(weight.name);
    const WeightEntry* entry = found == names_in_file_.end() ? nullptr : file_.find(found->second);
    if (entry != nullptr) wanted.insert(found->second);
    if (entry == nullptr)
      return wrong(weight.name, "is a weight of the model's adapters, but the file does not have it");
    if (entry->info.shape != weight.shape)
      return wrong(weight.name, fmt::format("has the shape [{}], but the model's adapters make it [{}]",
                                            fmt::join(entry->info.shape, ", "), fmt::join(weight.shape, ", ")));
  }
  for (const WeightEntry& entry : file_.entries()) {
    if (!wanted.contains(entry.info.name)) return wrong(entry.info.name, "is of no adapter of the model");
  }
  return std::nullopt;
}

Result<at::Tensor> AdapterFolder::value(const std::string& name) const {
  const auto found = names_in_file_.find(name);
  const WeightEntry* entry = found == names_in_file_.end() ? nullptr : file_.find(found->second);
  const auto type = entry != nullptr ? tensor_type(entry->info.type) : std::nullopt;
  if (!type) {
    return Error{.source = file_.path().string(),
                 .field = name,
                 .problem = entry == nullptr ? "is not there" : "is of a type that cannot be read",
                 .advice = "Use adapters of this model, in F32, F64, F16 or BF16."};
  }
  at::Tensor value = at::empty(entry->info.shape, at::TensorOptions().dtype(*type));
  std::memcpy(value.data_ptr(), entry->bytes.data(), entry->bytes.size());
  if (value.isfinite().all().item<bool>()) return value;
  return Error{.source = file_.path().string(),
               .field = name,
               .problem = "holds a value that is not a finite number",
               .advice = "The file is damaged, or the training that wrote it diverged."};
}

std::optional<Error> AdapterFolder::fill(const std::vector<ParameterPtr>& parameters) const {
  const at::NoGradGuard no_graph;
  for (const ParameterPtr& parameter : parameters) {
    int64_t row = 0;
    at::Tensor values = parameter->value.detach();
    if (values.dim() == 3) values = values.view({-1, values.size(2)});  // experts
    for (const WeightPiece& piece : parameter->spec.pieces) {
      at::Tensor rows = values.narrow(0, row, piece.num_rows);
      row += piece.num_rows;
      if (piece.name.empty()) {
        rows.zero_();
        continue;
      }
      const auto whole = value(piece.name);
      if (!whole) return whole.error();
      rows.copy_(held_part(piece, *whole));
    }
  }
  return std::nullopt;
}

std::optional<Error> write_adapter_folder(const std::filesystem::path& folder, const Model& model,
                                          const std::string& base_model,
                                          const std::function<Result<at::Tensor>(const std::string&)>& value) {
  const auto list = list_weights(model);
  if (!list) return list.error();
  std::vector<at::Tensor> kept;
  std::vector<WeightEntry> entries;
  Json targets = Json::array(), ranks = Json::object(), alphas = Json::object();
  const std::map<std::string, double> scales = adapter_scales(model);
  for (const NamedShape& weight : list->weights) {
    if (!is_adapter_weight(weight.name)) continue;
    auto tensor = value(weight.name);
    if (!tensor) return tensor.error();
    kept.push_back(tensor->contiguous());
    WeightEntry entry;
    entry.info = {.name = std::string(kPrefix) + name_in_memory(model.numbers.files, weight.name),
                  .type = *weight_type(kept.back().scalar_type()),
                  .shape = weight.shape};
    entry.bytes = {static_cast<const std::byte*>(kept.back().data_ptr()), kept.back().nbytes()};
    entries.push_back(std::move(entry));
    if (!weight.name.ends_with(".lora_A.weight")) continue;
    const std::string own = weight.name.substr(0, weight.name.size() - strlen(".lora_A.weight"));
    const std::string layer = name_in_memory(model.numbers.files, own);
    targets.push_back(layer);
    ranks[layer] = weight.shape.front();
    alphas[layer] = scales.at(own + std::string(kWeight)) * static_cast<double>(weight.shape.front());
  }
  const std::vector<AdapterRule> rules = adapters_of(model);
  WEFT_CHECK(!rules.empty() && !entries.empty(), "{} has no adapters", model.name);
  bool is_one = true;
  for (const auto& [layer, rank] : ranks.items())
    is_one = is_one && rank == ranks.front() && alphas[layer] == alphas.front();
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", nullptr},
                       {"base_model_name_or_path", base_model.empty() ? Json() : Json(base_model)},
                       {"r", ranks.front()},
                       {"lora_alpha", alphas.front()},
                       {"lora_dropout", rules.front().dropout},
                       {"target_modules", targets},
                       {"rank_pattern", is_one ? Json::object() : ranks},
                       {"alpha_pattern", is_one ? Json::object() : alphas},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"use_rslora", false},
                       {"use_dora", false},
                       {"inference_mode", true}};
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (auto error = write_safetensors(folder / kWeightsName, entries,
                                     std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}))
    return error;
  return write_file(folder / kConfigName, config.dump(2) + "\n");
}

}  // namespace weft
