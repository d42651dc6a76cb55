#include "weft/engine/same_model.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/families/family.h"
#include "weft/spec/adapters.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

/// Keys that say nothing of the weights.
bool matters(const std::string& key) {
  static const std::array<std::string_view, 12> ignored = {
      "_name_or_path", "architectures", "attn_implementation",  "dtype",     "eos_token_id", "bos_token_id",
      "pad_token_id",  "torch_dtype",   "transformers_version", "use_cache", "name_or_path", "attention_dropout"};
  return std::find(ignored.begin(), ignored.end(), key) == ignored.end() && !key.starts_with("_");
}

/// The fields of two configurations that differ, as lines; a field that only one has is not told.
void list_differences(const Json& there, const Json& here, const std::string& path, std::vector<std::string>& lines) {
  for (const auto& [key, value] : there.items()) {
    if (!matters(key) || !here.contains(key)) continue;
    const std::string field = path.empty() ? key : path + "." + key;
    if (value.is_object() && here[key].is_object()) {
      list_differences(value, here[key], field, lines);
    } else if (value != here[key]) {
      lines.push_back(
          fmt::format("  {}: {} there, {} in the plan\n", field, printable(value.dump()), printable(here[key].dump())));
    }
  }
}

/// The same of fields on which computing depends, or that only one has.
void list_changes(const Json& there, const Json& here, const std::string& path, std::vector<std::string>& lines) {
  const auto is_told = [](const std::string& key) { return matters(key) || key == "attention_dropout"; };
  const auto side = [](const Json& json, const std::string& key) {
    return json.contains(key) ? printable(json[key].dump()) : std::string("not given");
  };
  std::set<std::string> keys;
  for (const Json* json : {&there, &here})
    for (const auto& [key, value] : json->items()) keys.insert(key);
  for (const std::string& key : keys) {
    if (!is_told(key)) continue;
    const std::string field = path.empty() ? key : path + "." + key;
    const bool are_both = there.contains(key) && here.contains(key);
    if (are_both && there[key].is_object() && here[key].is_object()) {
      list_changes(there[key], here[key], field, lines);
    } else if (!are_both || there[key] != here[key]) {
      lines.push_back(fmt::format("  {}: {} there, {} in the plan\n", field, side(there, key), side(here, key)));
    }
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// A program as it is written, without the length of its dim of samples, of which nothing but `weft shard` knows.
std::vector<std::string> trained_lines(const Model& model) {
  std::vector<std::string> lines = lines_of(model.config.at(kProgramKey).get<std::string>());
  // Dims stand behind the first line, in their order.
  std::string& dim = lines.at(1 + model.numbers.program->rows.sample_dim);
  dim = dim.substr(0, dim.rfind(' '));
  return lines;
}

/// Where two programs differ: their first line that does.
std::vector<std::string> program_difference(const Model& there, const Model& here) {
  const std::vector<std::string> before = trained_lines(there), now = trained_lines(here);
  const auto said = [](const std::vector<std::string>& lines, size_t i) {
    return i < lines.size() ? in_quotes(printable(lines[i], 200)) : std::string("nothing");
  };
  for (size_t i = 0; i < std::max(before.size(), now.size()); ++i) {
    if (i >= before.size() || i >= now.size() || before[i] != now[i])
      return {
          fmt::format("  {}: line {}: {} there, {} in the plan\n", kProgramKey, i + 1, said(before, i), said(now, i))};
  }
  return {};
}

/// Models that have little in common differ in dozens of fields.
void add_lines(const std::vector<std::string>& lines, Error& error) {
  constexpr size_t kMost = 12;
  for (size_t i = 0; i < std::min(kMost, lines.size()); ++i) error.details += lines[i];
  if (lines.size() > kMost) error.details += fmt::format("  and {} more\n", lines.size() - kMost);
}

/// One and the same model, with adapters and without.
std::string adapter_advice(bool has_plan_adapters) {
  constexpr std::string_view kFolder =
      "make a Hugging Face folder with weft convert and name it as weights: in the "
      "configuration";
  return has_plan_adapters ? fmt::format("To train adapters on these weights, {}.", kFolder)
                           : fmt::format(
                                 "Use a plan with these adapters. To train all of the weights, {}; it has the "
                                 "adapters added to them.",
                                 kFolder);
}

}  // namespace

std::optional<Error> check_same_model(const Model& there, const std::string& source, const Model& model) {
  std::vector<std::string> lines;
  if (there.numbers.program && model.numbers.program) {
    lines = program_difference(there, model);
  } else {
    list_changes(there.config, model.config, "", lines);
  }
  if (lines.empty() && num_parameters(there) == num_parameters(model)) return std::nullopt;
  Error error{.field = "model",
              .problem = there.name == model.name
                             ? fmt::format("is {}, but {} is of another configuration of it", model.name, source)
                             : fmt::format("is {}, but {} is of {}", model.name, source, there.name),
              .advice = lines.size() == 1 && has_adapters(there) != has_adapters(model)
                            ? adapter_advice(has_adapters(model))
                            : "Use a plan for that model."};
  add_lines(lines, error);
  return error;
}

std::optional<Error> check_same_model(const std::filesystem::path& folder, const Model& model) {
  const auto there = read_model_file(folder);
  if (!there) return there.error();
  std::vector<std::string> lines;
  list_differences(there->config, model.config, "", lines);
  const int64_t own = num_parameters(model) - num_adapter_parameters(model);
  if (lines.empty() && num_parameters(*there) == own) return std::nullopt;
  Error error{.source = folder.string(),
              .field = "config.json",
              .problem = fmt::format("is of another model than the plan's {}", model.name),
              .advice = "Make a plan for this model, or use the weights of the plan's."};
  if (lines.empty()) {
    error.problem += fmt::format(": it has {} parameters, the plan's {}", num_parameters(*there), own);
  }
  add_lines(lines, error);
  return error;
}

}  // namespace weft
