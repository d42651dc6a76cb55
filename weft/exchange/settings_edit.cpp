#include "weft/exchange/settings_edit.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "weft/exchange/json_edit.h"
#include "weft/exchange/megatron_keys.h"
#include "weft/exchange/mindformers_keys.h"
#include "weft/exchange/mindspeed_mm.h"
#include "weft/exchange/script_edit.h"
#include "weft/exchange/yaml_edit.h"
#include "weft/meaning/trainable.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

/// Arguments that say how, and that a plan which does without them has to lose.
constexpr const char* kRemovable[] = {megatron_key::kSequenceParallel,
                                      megatron_key::kLayersPerChunk,
                                      megatron_key::kLayout,
                                      megatron_key::kRecompute,
                                      megatron_key::kRecomputeMethod,
                                      megatron_key::kRecomputeLayers,
                                      megatron_key::kRecomputeModules,
                                      megatron_key::kDistributedOptimizer,
                                      megatron_key::kFsdp,
                                      megatron_key::kSharding,
                                      megatron_key::kStagesInside,
                                      megatron_key::kOverlapReduce,
                                      megatron_key::kOverlapGather,
                                      megatron_key::kBucket,
                                      megatron_key::kTpOverlap,
                                      megatron_key::kReduceFp32,
                                      megatron_key::kReduceBf16,
                                      megatron_key::kCpKind,
                                      megatron_key::kCpSizes,
                                      megatron_key::kExpertTp,
                                      megatron_key::kFsdpBucket,
                                      megatron_key::kTpOverlapAscend,
                                      "num-virtual-stages-per-pipeline-rank",
                                      "recompute-activations",
                                      "image_encoder.vision_encoder.recompute_granularity",
                                      "image_encoder.vision_encoder.recompute_method",
                                      "image_encoder.vision_encoder.recompute_num_layers",
                                      "audio_encoder.audio_encoder.recompute_granularity",
                                      "audio_encoder.audio_encoder.recompute_method",
                                      "audio_encoder.audio_encoder.recompute_num_layers",
                                      "text_decoder.recompute_granularity",
                                      "text_decoder.recompute_method",
                                      "text_decoder.recompute_num_layers"};

/// The search's file of MindSpeed-MM says what a script and model.json say under other names.
const std::map<std::string, std::string>& script_names() {
  static const std::map<std::string, std::string> names = {
      {"parallel_config.PP", megatron_key::kPp},
      {"parallel_config.TP", megatron_key::kTp},
      {"parallel_config.MBS", megatron_key::kMbs},
      {"layer_placement.vit_layer_placement", "image_encoder.vision_encoder.pipeline_num_layers"},
      {"layer_placement.llm_layer_placement", "text_decoder.pipeline_num_layers"},
  };
  return names;
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string with_underscores(std::string key) {
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

/// A setting as one file is to have it.
struct Edit {
  enum class Kind { kReplace, kAdd, kRemove };

  Kind kind = Kind::kReplace;
  std::string key;
  std::string value;
  ImportedKey own;               ///< as it was read; of what is added, nothing
  bool may_be_left_out = false;  ///< where the files mean the same without it
  SettingChange change() const {
    return {key,
            kind == Kind::kAdd  ? ""
            : own.value.empty() ? "given"
                                : own.value,
            kind == Kind::kRemove ? ""
            : value.empty()       ? "given"
                                  : value};
  }
};

/// Where values of scripts are changed: where they are written, which may be a variable that others are computed from,
/// or behind their keys. A batch that is computed from what has changed is written out.
struct Manner {
  bool is_at_use = false;
  bool writes_batch = false;
};

class SettingsEditor {
 public:
  SettingsEditor(const ImportRequest& request, const ImportedRun& run, const Plan& wanted)
      : request_(request), run_(run), wanted_(wanted) {}

  Result<SettingsEdit> run() {
    WEFT_TRY(edit_.exported, exported_files());
    ImportRequest again{
        .system = request_.system, .files = {}, .arguments = "", .model = wanted_.model, .cluster = wanted_.cluster};
    for (const ExportedFile& file : edit_.exported) again.files.push_back({file.name, file.text});
    again.workload = wanted_.workload;
    again.version = request_.version;
    again.is_lenient = true;
    WEFT_TRY(const ImportedRun exported, import_settings(again));
    goal_ = plan_to_json(wanted_);
    is_search_result_ = edit_.exported.front().name.starts_with("auto_parallel");
    if (!is_search_result_) {
      // What a system's settings make of these is what they can say.
      const Json said = plan_to_json(exported.plan);
      for (const char* key : {"overlap", "buckets_mb", "precision"}) goal_[key] = said[key];
    }
    list_edits(exported);
    find_files();
    for (const Edit& edit : edits_) edit_.changes.push_back(edit.change());
    return std::move(edit_);
  }

 private:
  /// In the form that the user's files have.
  Result<std::vector<ExportedFile>> exported_files() const {
    const bool has_model_file = std::any_of(run_.keys.begin(), run_.keys.end(), [](const ImportedKey& key) {
      return key.key.starts_with("text_decoder.") || key.key.starts_with("image_encoder.");
    });
    if (request_.system == Target::kMindspeedMm && has_model_file && is_one_pipeline(wanted_)) {
      if (auto files = export_mindspeed_pipeline(wanted_)) return files;
    }
    return export_plan(wanted_, request_.system);
  }

  static const ImportedKey* find(const ImportedRun& run, const std::string& key) {
    for (const ImportedKey& row : run.keys) {
      if (row.key == key) return &row;
    }
    return nullptr;
  }

  void list_edits(const ImportedRun& exported) {
    for (const ImportedKey& row : exported.keys) {
      // Megatron-LM refuses FSDP without it.
      const bool is_needed = row.key == megatron_key::kCheckpointFormat && !row.value.empty();
      if ((row.fate != KeyFate::kRead && !is_needed) || row.key.starts_with("rl_config.")) continue;
      const auto named = script_names().find(row.key);
      const bool has_own_name = find(run_, row.key) != nullptr;
      std::string key = named == script_names().end() || has_own_name ? row.key : named->second;
      // Newer files of MindFormers have another name for it.
      if (key == mindformers_key::kParameterType && find(run_, mindformers_key::kParameterTypeNew) != nullptr)
        key = mindformers_key::kParameterTypeNew;
      if (key.starts_with("parallel_config.DP") || (key.starts_with("layer_recompute.") && !has_own_name)) continue;
      const ImportedKey* own = find(run_, key);
      const bool is_given = own != nullptr && (own->fate == KeyFate::kRead || own->fate == KeyFate::kIgnored);
      if (key == megatron_key::kBatch) {
        if (is_given) batch_ = {.kind = Edit::Kind::kReplace, .key = key, .value = row.value, .own = *own};
        continue;
      }
      const bool is_listed =
          std::any_of(edits_.begin(), edits_.end(), [&](const Edit& edit) { return edit.key == key; });
      if (is_listed) continue;
      if (own != nullptr && own->value == row.value && (own->fate != KeyFate::kIgnored || is_needed)) continue;
      edits_.push_back({.kind = is_given ? Edit::Kind::kReplace : Edit::Kind::kAdd,
                        .key = key,
                        .value = row.value,
                        .own = is_given ? *own : ImportedKey{},
                        .may_be_left_out = !is_needed && key != megatron_key::kSharding});
    }
    for (const char* key : kRemovable) {
      const ImportedKey* own = find(run_, key);
      const ImportedKey* wanted = find(exported, key);
      if (own == nullptr || own->fate != KeyFate::kRead || (wanted != nullptr && wanted->fate == KeyFate::kRead))
        continue;
      edits_.push_back({.kind = Edit::Kind::kRemove, .key = key, .value = "", .own = *own});
    }
  }

  // Files of each kind.

  bool is_yaml_system() const {
    return request_.system == Target::kMindformers || request_.system == Target::kMindspeedRl;
  }
  static std::string extension(const SettingsFile& file) {
    return std::filesystem::path(file.name).extension().string();
  }
  static bool is_json(const SettingsFile& file) { return extension(file) == ".json"; }
  bool is_yaml(const SettingsFile& file) const {
    return is_yaml_system() || extension(file) == ".yaml" || extension(file) == ".yml";
  }

  /// Texts stand in quotes there.
  static std::string json_text(const std::string& value) {
    return Json::parse(value, nullptr, false).is_discarded() ? Json(value).dump() : value;
  }

  /// The path of a setting in a YAML file.
  std::vector<std::string> yaml_path(const std::string& key, const std::string& section) const {
    if (request_.system == Target::kMindformers) return parts_of(key);
    if (request_.system == Target::kMindspeedRl) return {section, with_underscores(key)};
    return {"MODEL_ARGS", "--" + key};
  }

  std::optional<std::string> replaced(const SettingsFile& file, const Edit& edit, Manner manner) const {
    if (is_json(file)) return with_json_value(file.text, parts_of(edit.key), json_text(edit.value));
    const std::string value = edit.value.empty() ? "true" : edit.value;
    if (request_.system == Target::kMindformers) return with_yaml_value(file.text, parts_of(edit.key), value);
    if (is_yaml(file)) return with_value_in_line(file.text, edit.own.place.line, edit.key, edit.own.value, value);
    if (!manner.is_at_use) {
      if (auto text = with_value_in_line(file.text, edit.own.place.line, edit.key, edit.own.value, edit.value))
        return text;
    }
    return with_argument(file.text, edit.key, edit.value);
  }

  std::optional<std::string> with_added(const SettingsFile& file, const Edit& edit) const {
    const bool is_path = edit.key.find('.') != std::string::npos;
    if (is_json(file))
      return is_path ? with_json_value(file.text, parts_of(edit.key), json_text(edit.value)) : std::nullopt;
    if (is_yaml(file)) {
      const std::vector<std::string> path = yaml_path(edit.key, "actor_config");
      // Settings go where their system looks for them.
      const bool has_place =
          request_.system == Target::kMindformers || file.text.find(path.front() + ":") != std::string::npos;
      return has_place ? with_yaml_value(file.text, path, edit.value.empty() ? "true" : edit.value) : std::nullopt;
    }
    return is_path ? std::nullopt : with_new_argument(file.text, megatron_key::kMbs, edit.key, edit.value);
  }

  std::optional<std::string> without(const SettingsFile& file, const Edit& edit) const {
    if (is_json(file)) return without_json_value(file.text, parts_of(edit.key));
    if (!is_yaml(file)) return without_argument(file.text, edit.key, !edit.own.value.empty());
    for (const char* section : {"actor_config", "megatron_training"}) {
      if (auto text = without_yaml_value(file.text, yaml_path(edit.key, section))) return text;
    }
    return std::nullopt;
  }

  /// Changes the file that the setting was read from, or the last that has a place for it.
  bool apply(const Edit& edit, Manner manner, std::vector<SettingsFile>& files) const {
    const bool has_place = edit.kind != Edit::Kind::kAdd && edit.own.place.line > 0;
    if (has_place && edit.own.place.file >= files.size()) return false;  // it was given with --args
    for (size_t i = files.size(); i-- > 0;) {
      if (has_place && i != edit.own.place.file) continue;
      SettingsFile& file = files[i];
      const auto text = edit.kind == Edit::Kind::kReplace ? replaced(file, edit, manner)
                        : edit.kind == Edit::Kind::kAdd   ? with_added(file, edit)
                                                          : without(file, edit);
      if (!text) continue;
      file.text = *text;
      return true;
    }
    return false;
  }

  /// Of modules that recompute nothing, no list and a list of nothing are the same; of modules that are not trained,
  /// ZeRO divides nothing.
  Json modules_of(const Json& plan) const {
    Json modules = plan["modules"];
    for (const ModulePlan& module : wanted_.modules) {
      const std::string name(name_of(module.kind));
      if (modules.contains(name) && !trains(wanted_, module.kind)) modules[name].erase("zero");
    }
    for (Json& module : modules) {
      const auto recompute = module.find("recompute");
      if (recompute == module.end()) continue;
      const Json flat = recompute->flatten();
      if (std::all_of(flat.begin(), flat.end(), [](const Json& value) { return value.empty(); }))
        module.erase(recompute);
    }
    return modules;
  }

  /// The files with these edits, where they then describe the plan.
  std::optional<std::vector<SettingsFile>> edited(const std::vector<Edit>& edits, Manner manner) const {
    ImportRequest again = request_;
    for (const Edit& edit : edits) {
      if (!apply(edit, manner, again.files)) return std::nullopt;
    }
    if (manner.writes_batch && (!batch_ || !apply(*batch_, {.is_at_use = true}, again.files))) return std::nullopt;
    const auto run = import_settings(again);
    if (!run || run->searches) return std::nullopt;
    const Json now = plan_to_json(run->plan);
    if (modules_of(now) != modules_of(goal_) || now["schedule"] != goal_["schedule"]) return std::nullopt;
    for (const char* key : {"overlap", "buckets_mb", "precision"}) {
      if (!is_search_result_ && now[key] != goal_[key]) return std::nullopt;
    }
    return again.files;
  }

  void find_files() {
    for (const Manner manner : {Manner{}, Manner{.writes_batch = true}, Manner{.is_at_use = true},
                                Manner{.is_at_use = true, .writes_batch = true}}) {
      auto files = edited(edits_, manner);
      if (!files) continue;
      // What the files mean already needs no change: a list of nothing for 0, or a default that all releases have.
      for (size_t i = edits_.size(); i-- > 0;) {
        if (!edits_[i].may_be_left_out) continue;
        std::vector<Edit> fewer = edits_;
        fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
        if (auto others = edited(fewer, manner)) {
          edits_ = std::move(fewer);
          files = std::move(others);
        }
      }
      if (manner.writes_batch) {
        edits_.push_back(*batch_);
        edits_.back().own.value += " (computed)";
      }
      for (size_t i = 0; i < files->size(); ++i) {
        if ((*files)[i].text != request_.files[i].text) edit_.files.push_back((*files)[i]);
      }
      return;
    }
  }

  const ImportRequest& request_;
  const ImportedRun& run_;
  const Plan& wanted_;
  SettingsEdit edit_;
  Json goal_;
  bool is_search_result_ = false;
  std::vector<Edit> edits_;
  std::optional<Edit> batch_;
};

}  // namespace

Result<SettingsEdit> edit_settings(const ImportRequest& request, const ImportedRun& run, const Plan& wanted) {
  return SettingsEditor(request, run, wanted).run();
}

}  // namespace weft
