#include "weft/exchange/settings_edit.h"

#include <algorithm>
#include <cctype>
#include <map>

#include <fmt/format.h>

#include "weft/exchange/import_parts.h"
#include "weft/exchange/megatron_keys.h"
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
                                      "num-virtual-stages-per-pipeline-rank",
                                      "recompute-activations"};

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

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines = {""};
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

bool is_word_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
}

/// Where a value stands alone in a line, from some place on; letters' case does not matter.
size_t find_value(const std::string& line, const std::string& value, size_t from) {
  const auto lower = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
  };
  const std::string hay = lower(line), needle = lower(value);
  for (size_t at = hay.find(needle, from); at != std::string::npos; at = hay.find(needle, at + 1)) {
    const bool begins = at == 0 || !is_word_letter(line[at - 1]) || !is_word_letter(value.front());
    const size_t end = at + value.size();
    const bool ends = end == line.size() || !is_word_letter(line[end]) || !is_word_letter(value.back());
    if (begins && ends) return at;
  }
  return std::string::npos;
}

class SettingsEditor {
 public:
  SettingsEditor(const ImportRequest& request, const ImportedRun& run, const Plan& wanted)
      : request_(request), run_(run), wanted_(wanted) {}

  Result<SettingsEdit> run() {
    WEFT_TRY(edit_.exported, export_plan(wanted_, request_.system));
    ImportRequest again{
        .system = request_.system, .files = {}, .arguments = "", .model = wanted_.model, .cluster = wanted_.cluster};
    for (const ExportedFile& file : edit_.exported) again.files.push_back({file.name, file.text});
    again.workload = wanted_.workload;
    again.version = request_.version;
    again.is_lenient = true;
    WEFT_TRY(const ImportedRun exported, import_settings(again));
    for (const SettingsFile& file : request_.files) texts_.push_back(lines_of(file.text));
    list_changes(exported);
    apply();
    return std::move(edit_);
  }

 private:
  static const ImportedKey* find(const ImportedRun& run, const std::string& key) {
    for (const ImportedKey& row : run.keys) {
      if (row.key == key) return &row;
    }
    return nullptr;
  }

  void list_changes(const ImportedRun& exported) {
    for (const ImportedKey& row : exported.keys) {
      if (row.fate != KeyFate::kRead || row.key.starts_with("rl_config.")) continue;
      const auto named = script_names().find(row.key);
      const std::string key = named == script_names().end() ? row.key : named->second;
      if (key.starts_with("parallel_config.DP") || key.starts_with("layer_recompute.")) continue;
      const ImportedKey* own = find(run_, key);
      const bool is_given = own != nullptr && own->fate == KeyFate::kRead;
      if (own != nullptr && own->fate != KeyFate::kIgnored && own->value == row.value) continue;
      // A batch that the files compute stays: the search keeps it.
      if (key == megatron_key::kBatch && request_.system == Target::kMindspeedMm) continue;
      if (key == megatron_key::kBatch && own != nullptr) continue;
      edit_.changes.push_back(
          {key, is_given ? (own->value.empty() ? "given" : own->value) : "", row.value.empty() ? "given" : row.value});
      is_good_ &= is_given ? replace(*own, row.value) : add(key, row.value);
    }
    for (const char* key : kRemovable) {
      const ImportedKey* own = find(run_, key);
      const ImportedKey* wanted = find(exported, key);
      if (own == nullptr || own->fate != KeyFate::kRead || (wanted != nullptr && wanted->fate == KeyFate::kRead))
        continue;
      edit_.changes.push_back({key, own->value.empty() ? "given" : own->value, ""});
      is_good_ &= remove(*own);
    }
  }

  std::string* line_at(Place place) {
    if (place.line == 0 || place.file >= texts_.size() || place.line > texts_[place.file].size()) return nullptr;
    return &texts_[place.file][place.line - 1];
  }

  bool replace(const ImportedKey& own, const std::string& value) {
    std::string* line = line_at(own.place);
    if (line == nullptr || own.value.empty() || value.empty()) return false;
    // Behind the key, where it stands in the same line.
    std::string name = own.key.substr(own.key.rfind('.') + 1);
    size_t from = line->find(name);
    std::replace(name.begin(), name.end(), '-', '_');
    if (from == std::string::npos) from = line->find(name);
    from = from == std::string::npos ? line->find('=') : from + name.size();
    const size_t at = find_value(*line, own.value, from == std::string::npos ? 0 : from);
    if (at == std::string::npos) return false;
    std::string text = value;
    const bool has_capital = std::isupper(static_cast<unsigned char>((*line)[at])) != 0;
    if (has_capital) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    line->replace(at, own.value.size(), text);
    return true;
  }

  bool is_yaml() const { return request_.system == Target::kMindformers || request_.system == Target::kMindspeedRl; }

  bool add(const std::string& key, const std::string& value) {
    if (is_yaml()) return add_to_yaml(key, value);
    if (key.find('.') != std::string::npos) return false;
    for (auto& lines : texts_) {
      for (std::string& line : lines) {
        const size_t at = line.find(std::string("--") + megatron_key::kMbs);
        if (at == std::string::npos) continue;
        line.insert(at, fmt::format("--{}{}{} ", key, value.empty() ? "" : " ", value));
        return true;
      }
    }
    return false;
  }

  bool add_to_yaml(const std::string& key, const std::string& value) {
    const bool is_actor = request_.system == Target::kMindspeedRl;
    const size_t dot = key.rfind('.');
    std::vector<std::string> section = {"actor_config"};
    std::string name = key.substr(dot + 1);
    if (is_actor) {
      std::replace(name.begin(), name.end(), '-', '_');
    } else {
      if (dot == std::string::npos) return false;
      section.clear();
      const std::string path = key.substr(0, dot);
      for (size_t begin = 0; begin <= path.size();) {
        const size_t end = std::min(path.find('.', begin), path.size());
        section.push_back(path.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    for (size_t file = 0; file < texts_.size(); ++file) {
      const uint32_t line = line_of(request_.files[file].text, section);
      if (line == 0 || line >= texts_[file].size()) continue;
      // Behind the section's first line, in the next one's indentation; added text stays in that line until it is
      // split.
      std::string& below = texts_[file][line];
      const size_t indent = below.find_first_not_of(' ');
      if (indent == std::string::npos || indent == 0) return false;
      below = fmt::format("{}{}: {}\n{}", std::string(indent, ' '), name, value.empty() ? "true" : value, below);
      return true;
    }
    return false;
  }

  bool remove(const ImportedKey& own) {
    std::string* line = line_at(own.place);
    if (line == nullptr || is_yaml()) return false;
    const std::string flag = "--" + own.key + (own.value.empty() ? "" : " " + own.value);
    const size_t at = line->find(flag);
    if (at == std::string::npos) return false;
    line->erase(at, flag.size());
    return true;
  }

  /// Of modules that recompute nothing, no list and a list of nothing are the same.
  static Json modules_of(const Json& plan) {
    Json modules = plan["modules"];
    for (Json& module : modules) {
      const auto recompute = module.find("recompute");
      if (recompute == module.end()) continue;
      const Json flat = recompute->flatten();
      if (std::all_of(flat.begin(), flat.end(), [](const Json& value) { return value.empty(); }))
        module.erase(recompute);
    }
    return modules;
  }

  /// Only files that, read again, describe the plan.
  void apply() {
    if (!is_good_ || edit_.changes.empty()) return;
    ImportRequest again = request_;
    for (size_t file = 0; file < texts_.size(); ++file) {
      std::string text = fmt::format("{}", fmt::join(texts_[file], "\n"));
      again.files[file].text = std::move(text);
    }
    const auto run = import_settings(again);
    if (!run) return;
    const Json now = plan_to_json(run->plan), goal = plan_to_json(wanted_);
    if (modules_of(now) != modules_of(goal) || now["schedule"] != goal["schedule"] ||
        now["precision"] != goal["precision"])
      return;
    for (size_t file = 0; file < texts_.size(); ++file) {
      if (again.files[file].text != request_.files[file].text) edit_.files.push_back(again.files[file]);
    }
  }

  const ImportRequest& request_;
  const ImportedRun& run_;
  const Plan& wanted_;
  SettingsEdit edit_;
  std::vector<std::vector<std::string>> texts_;
  bool is_good_ = true;
};

}  // namespace

Result<SettingsEdit> edit_settings(const ImportRequest& request, const ImportedRun& run, const Plan& wanted) {
  return SettingsEditor(request, run, wanted).run();
}

std::string difference_of(const SettingsFile& before, const SettingsFile& after) {
  // Edits keep their lines, but for lines that were added: what begins and ends alike is left out around each place.
  const std::vector<std::string> a = lines_of(before.text), b = lines_of(after.text);
  std::string text = fmt::format("--- {}\n+++ {}\n", before.name, before.name);
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      ++i, ++j;
      continue;
    }
    // The nearest line of the new text that goes on as the old one does.
    size_t added = 0;
    while (j + added < b.size() && (i >= a.size() || b[j + added] != a[i]) && added < 20) ++added;
    const bool is_only_added = i < a.size() && j + added < b.size() && b[j + added] == a[i];
    text += fmt::format("@@ line {} @@\n", i + 1);
    if (is_only_added) {
      for (size_t k = 0; k < added; ++k) text += "+" + b[j + k] + "\n";
      j += added;
    } else {
      if (i < a.size()) text += "-" + a[i++] + "\n";
      if (j < b.size()) text += "+" + b[j++] + "\n";
    }
  }
  return text;
}

}  // namespace weft
