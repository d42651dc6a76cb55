#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/text.h"
#include "weft/meaning/strategy.h"
#include "weft/program/program_builder.h"

namespace weft {
namespace {

constexpr size_t kMostEntries = 10'000;

const std::vector<std::pair<std::string, StepKind>>& forbidden_names() {
  static const std::vector<std::pair<std::string, StepKind>> names{{"all_to_all", StepKind::kAllToAll},
                                                                   {"all_gather", StepKind::kAllGather},
                                                                   {"reduce_scatter", StepKind::kReduceScatter}};
  return names;
}

/// [[12, 20], [4]]: for every repeat numbers of layers.
std::vector<std::vector<int64_t>> read_layers(Fields& fields) {
  const Json* raw = fields.raw("layers");
  if (raw == nullptr) return {};
  std::vector<std::vector<int64_t>> layers;
  bool is_good = raw->is_array() && raw->size() <= kMostEntries;
  if (is_good) {
    for (const Json& repeat : *raw) {
      std::vector<int64_t>& parts = layers.emplace_back();
      is_good = is_good && repeat.is_array() && repeat.size() <= kMostEntries;
      if (!is_good) break;
      for (const Json& count : repeat) {
        is_good = is_good && count.is_number_integer() && count.get<int64_t>() >= 1;
        if (is_good) parts.push_back(count.get<int64_t>());
      }
    }
  }
  if (!is_good)
    fields.complain("layers", "is no list of numbers of layers for every repeat", "Write it like '[[12, 20]]'.");
  return layers;
}

}  // namespace

std::string_view name_of(ShardMode mode) {
  switch (mode) {
    case ShardMode::kData:
      return "data";
    case ShardMode::kSemi:
      return "semi";
    case ShardMode::kAuto:
      return "auto";
    case ShardMode::kExplicit:
      return "explicit";
  }
  return "";
}

Result<ShardMode> parse_mode(const std::string& text, const std::string& source) {
  // The numbers are MindFormers' parallel_mode.
  if (text == "data" || text == "0") return ShardMode::kData;
  if (text == "semi" || text == "1") return ShardMode::kSemi;
  if (text == "auto" || text == "2") return ShardMode::kAuto;
  if (text == "explicit") return ShardMode::kExplicit;
  if (text == "3")
    return Error{.source = source,
                 .problem = "3 is MindFormers' word for parallelism that is written by hand",
                 .advice = "That is a plan with all of its settings: see 'weft plan'."};
  const std::vector<std::string> known{"data", "semi", "auto", "explicit"};
  return Error{.source = source,
               .problem = fmt::format("{} is no mode", in_quotes(text)),
               .advice = fmt::format("Known are {}.{}", joined_or(known), did_you_mean(text, known))};
}

Result<ShardSearch> parse_search(const std::string& text, const std::string& source) {
  if (text == "exact" || text == "dynamic_programming") return ShardSearch::kExact;
  if (text == "recursive" || text == "recursive_programming") return ShardSearch::kRecursive;
  if (text == "propagate" || text == "sharding_propagation") return ShardSearch::kPropagate;
  const std::vector<std::string> known{"exact", "recursive", "propagate"};
  return Error{.source = source,
               .problem = fmt::format("{} is no search", in_quotes(text)),
               .advice = fmt::format("Known are {}.{}", joined_or(known), did_you_mean(text, known))};
}

Result<std::vector<Axis>> parse_mesh(const std::string& text) {
  std::vector<Axis> axes;
  std::string_view left = text;
  while (true) {
    const std::string_view part = left.substr(0, left.find(','));
    const size_t equals = part.find('=');
    int64_t size = 0;
    const std::string_view number = equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), size);
    const bool is_good = equals != std::string_view::npos && equals > 0 && !number.empty() && error == std::errc() &&
                         end == number.data() + number.size() && size >= 1;
    if (!is_good)
      return Error{.source = "--mesh",
                   .problem = fmt::format("{} is no axis with its size", in_quotes(part)),
                   .advice = "Write axes like 'tp=8,dp=4', those of ranks next to each other first."};
    axes.push_back({std::string(part.substr(0, equals)), size});
    if (left.find(',') == std::string_view::npos) break;
    left = left.substr(left.find(',') + 1);
  }
  return axes;
}

Result<StrategyFile> read_strategy(const Document& document) {
  Findings findings(document.source);
  Fields fields(document, findings);
  StrategyFile file{.source = document.source};
  fields.integer("weft_strategy", {1, 1});
  const auto take = [&](std::string_view key, const auto& parse, auto& target) {
    const Json* raw = fields.raw(key);
    if (raw == nullptr) return;
    const std::string text = raw->is_string() ? raw->get<std::string>() : raw->dump();
    auto parsed = parse(text, std::string(key));
    if (!parsed) {
      fields.complain(key, parsed.error().problem, parsed.error().advice);
    } else if (target && *target != *parsed) {
      fields.complain(key,
                      fmt::format("says {}, where another word for it says {}", name_of(*parsed), name_of(*target)),
                      "Leave one of them out.");
    } else {
      target = *parsed;
    }
  };
  take("mode", parse_mode, file.mode);
  take("parallel_mode", parse_mode, file.mode);
  take("search", parse_search, file.search);
  take("search_mode", parse_search, file.search);
  if (fields.has("memory_gib")) file.memory_gib = fields.number("memory_gib", {1e-9, 1e9});
  file.full_batch = fields.flag_or("full_batch", false);
  file.mesh = read_axes(fields, "mesh");
  file.inputs = read_entries(fields, "inputs");
  file.operators = read_entries(fields, "operators");
  file.zero = read_entries(fields, "zero");
  for (const std::string& name : fields.texts_or_empty("forbid")) {
    const auto& names = forbidden_names();
    const auto found = std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.first == name; });
    if (found == names.end()) {
      fields.complain("forbid", fmt::format("{} cannot be forbidden", in_quotes(name)),
                      "Possible are all_to_all, all_gather and reduce_scatter.");
    } else {
      file.forbidden.push_back(found->second);
    }
  }
  file.layers = read_layers(fields);
  file.program = fields.texts_or_empty("program");
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return file;
}

}  // namespace weft
