#include "weft/search/plan_space.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file_kind.h"
#include "weft/base/text.h"
#include "weft/program/module_kinds.h"

namespace weft {
namespace {

constexpr int64_t kMostDegree = 1 << 20;
constexpr int64_t kMostZero = 3;

int64_t read_number(Fields& fields, std::string_view key, const Json& value, IntegerRange range) {
  const bool fits = value.is_number_integer() && value.get<int64_t>() >= range.min && value.get<int64_t>() <= range.max;
  if (fits) return value.get<int64_t>();
  fields.complain(
      key, fmt::format("holds {}, a whole number from {} to {} is needed", describe_value(value), range.min, range.max),
      "Correct it, or leave the setting out to search all of its values.");
  return range.min;
}

Allowed read_allowed(Fields& fields, std::string_view key, Allowed fallback, int64_t most = kMostDegree) {
  const Json* raw = fields.raw(key);
  if (raw == nullptr) return fallback;
  const int64_t least = std::min<int64_t>(fallback.at_least, 1);
  const IntegerRange range{least, most};
  Allowed allowed{.values = {}, .at_least = least};
  if (raw->is_object()) {
    Fields bounds = fields.object(key);
    allowed.at_least = bounds.integer_or("at_least", least, range);
    allowed.at_most = bounds.integer_or("at_most", most, range);
    bounds.reject_unknown();
    if (allowed.at_most < allowed.at_least)
      fields.complain(key, fmt::format("allows nothing: at_least is {}, at_most {}", allowed.at_least, allowed.at_most),
                      "Swap them, or leave one out.");
    allowed.values = fallback.values;
    const bool has_any = allowed.values.empty() || std::any_of(allowed.values.begin(), allowed.values.end(),
                                                               [&](int64_t value) { return allowed.contains(value); });
    if (!has_any)
      fields.complain(key,
                      fmt::format("allows none of the values that are searched: {}", fmt::join(fallback.values, ", ")),
                      "Name the values that you want as a list.");
    return allowed;
  }
  if (!raw->is_array()) {
    allowed.values.push_back(read_number(fields, key, *raw, range));
    return allowed;
  }
  for (const Json& value : *raw) allowed.values.push_back(read_number(fields, key, value, range));
  if (allowed.values.empty())
    fields.complain(key, "is an empty list, which allows nothing", "Leave it out or name values.");
  return allowed;
}

/// A word or a list of words.
std::vector<std::string> read_words(Fields& fields, std::string_view key) {
  const Json* raw = fields.raw(key);
  if (raw != nullptr && raw->is_string()) return {raw->get<std::string>()};
  if (raw != nullptr && raw->is_array() && raw->empty())
    fields.complain(key, "is an empty list, which allows nothing", "Leave it out or name values.");
  return fields.texts_or_empty(key);
}

using Flags = std::vector<std::pair<std::string, bool*>>;

/// Sets the flags that are named and clears the others; leaves all of them where the key is missing.
void read_flags(Fields& fields, std::string_view key, const Flags& known) {
  const std::vector<std::string> words = read_words(fields, key);
  if (words.empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, flag] : known) {
    *flag = false;
    names.push_back(name);
  }
  for (const std::string& word : words) {
    const auto it = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.first == word; });
    if (it == known.end()) {
      fields.complain(
          key, fmt::format("names {}, {} is needed.{}", in_quotes(word), joined_or(names), did_you_mean(word, names)));
    } else {
      *it->second = true;
    }
  }
}

void read_flag(Fields& fields, const char* key, std::optional<bool>& flag) {
  if (fields.has(key)) flag = fields.flag_or(key, true);
  fields.raw(key);
}

void note_given(const Fields& fields, std::initializer_list<const char*> keys, std::set<std::string>& given) {
  for (const char* key : keys) {
    if (fields.has(key)) given.insert(key);
  }
}

void read_encoder(Fields fields, EncoderSpace& space) {
  note_given(fields, {"form", "cp", "sequence_parallel", "mbs_scale", "mbs_parts"}, space.given);
  read_flags(fields, "placement",
             {{"inline", &space.allows_inline},
              {"colocated", &space.allows_colocated},
              {"disjoint", &space.allows_disjoint},
              {"partial", &space.allows_partial}});
  read_flags(fields, "form",
             {{"before", &space.allows_before}, {"fill", &space.allows_fill}, {"on_demand", &space.allows_on_demand}});
  space.tp = read_allowed(fields, "tp", space.tp);
  space.mbs_scale = read_allowed(fields, "mbs_scale", space.mbs_scale, kMostScale);
  space.ranks = read_allowed(fields, "ranks", space.ranks);
  space.stages = read_allowed(fields, "stages", space.stages);
  read_flag(fields, "recompute_from_inputs", space.recompute_from_inputs);
  space.mbs_parts = read_allowed(fields, "mbs_parts", space.mbs_parts, kMostScale);
  space.cp = read_allowed(fields, "cp", space.cp);
  read_flag(fields, "sequence_parallel", space.sequence_parallel);
  if (fields.has("zero")) space.zero = read_allowed(fields, "zero", PlanSpace{}.zero, kMostZero);
  fields.reject_unknown();
}

void read_llm(Fields llm, PlanSpace& space) {
  note_given(llm, {"cp", "vpp"}, space.given);
  const auto allowed = space.all();
  for (size_t i = 0; i < allowed.size(); ++i) {
    const DegreeName& degree = kDegreeNames[i];
    *allowed[i] =
        read_allowed(llm, degree.name, *allowed[i], degree.value == &Degrees::vpp ? kMostChunks : kMostDegree);
  }
  space.zero = read_allowed(llm, "zero", space.zero, kMostZero);
  read_flag(llm, "zero_keep_gathered", space.zero_keep_gathered);
  read_flag(llm, "sequence_parallel", space.sequence_parallel);
  read_flag(llm, "stages_are_neighbours", space.stages_are_neighbours);
  read_flag(llm, "experts_over_tp", space.experts_over_tp);
  llm.reject_unknown();
}

void read_balances(Fields& fields, PlanSpace& space) {
  std::array<bool, 4> allowed{};
  allowed.fill(true);
  Flags flags;
  for (size_t i = 0; i < allowed.size(); ++i) flags.emplace_back(balance_names()[i], &allowed[i]);
  read_flags(fields, "balance", flags);
  space.balances.clear();
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (allowed[i]) space.balances.push_back(static_cast<Balance>(i));
  }
}

void read_frozen(Fields& fields, PlanSpace& space) {
  const std::vector<std::string> names = fields.texts_or_empty("frozen");
  if (!fields.has("frozen")) return;
  space.frozen.emplace();
  // An empty list says that nothing is frozen.
  for (const std::string& name : names) {
    if (const auto kind = module_kind_named(name)) {
      space.frozen->push_back(*kind);
    } else {
      fields.complain("frozen", fmt::format("names {}, vision, audio or llm is needed", in_quotes(name)));
    }
  }
}

}  // namespace

bool Allowed::contains(int64_t value) const {
  if (value < at_least || value > at_most) return false;
  return values.empty() || std::find(values.begin(), values.end(), value) != values.end();
}

Result<PlanSpace> read_plan_space(const Document& document) {
  if (auto error = find_wrong_kind(document, FileKind::kSpace)) return *std::move(error);
  Findings findings(document.source);
  Fields fields(document, findings);
  PlanSpace space;
  note_given(fields, {"mbs", "schedule", "recompute"}, space.given);
  if (fields.has("llm")) read_llm(fields.object("llm"), space);
  space.mbs = read_allowed(fields, "mbs", space.mbs);
  if (const std::vector<std::string> names = read_words(fields, "schedule"); !names.empty()) {
    space.schedules.clear();
    for (const std::string& name : names) {
      const Result<ScheduleName> schedule = parse_schedule_name(name);
      if (schedule) {
        space.schedules.push_back(*schedule);
      } else {
        fields.complain("schedule", schedule.error().problem, schedule.error().advice);
      }
    }
  }
  bool allows_none = true;
  read_flags(fields, "recompute",
             {{"none", &allows_none},
              {"selective", &space.recompute.allows_selective},
              {"full", &space.recompute.allows_full},
              {"logits", &space.recompute.allows_logits}});
  read_balances(fields, space);
  read_frozen(fields, space);
  space.allows_strategies = fields.flag_or("strategies", true);
  if (fields.has("encoders")) {
    for (const ModuleKind kind : kEncoderKinds) read_encoder(fields.object("encoders"), space.encoders[kind]);
  }
  for (const ModuleKind kind : kEncoderKinds) {
    const std::string key(name_of(kind));
    if (fields.has(key)) read_encoder(fields.object(key), space.encoders[kind]);
    fields.raw(key);
  }
  for (const char* key : {"llm", "encoders"}) fields.raw(key);
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return space;
}

PlanSpace widened(const PlanSpace& space) {
  static const PlanSpace kUsual;
  static const EncoderSpace kUsualEncoder;
  constexpr int64_t kMostSamples = 64, kMostContext = 64, kMoreChunks = 8;
  const auto widen = [](bool is_given, Allowed& allowed, const Allowed& usual, int64_t most) {
    if (!is_given && allowed == usual) allowed = {.at_least = usual.at_least, .at_most = most};
  };
  PlanSpace wide = space;
  const auto is_given = [&](const char* key) { return space.given.contains(key); };
  widen(is_given("mbs"), wide.mbs, kUsual.mbs, kMostSamples);
  widen(is_given("cp"), wide.cp, kUsual.cp, kMostContext);
  widen(is_given("vpp"), wide.vpp, kUsual.vpp, kMoreChunks);
  if (!is_given("recompute")) wide.recompute.allows_logits |= space.recompute.allows_full;
  for (auto& [kind, encoder] : wide.encoders) {
    const std::set<std::string>& given = encoder.given;
    widen(given.contains("mbs_scale"), encoder.mbs_scale, kUsualEncoder.mbs_scale, kMostScale);
    widen(given.contains("mbs_parts"), encoder.mbs_parts, kUsualEncoder.mbs_parts, kMostScale);
    widen(given.contains("cp"), encoder.cp, kUsualEncoder.cp, kMostContext);
    if (!given.contains("sequence_parallel") && encoder.sequence_parallel == kUsualEncoder.sequence_parallel)
      encoder.sequence_parallel.reset();
    if (!encoder.zero) encoder.zero = kUsual.zero;
    if (!given.contains("form") && encoder.allows_before && encoder.allows_fill) encoder.allows_on_demand = true;
  }
  return wide;
}

Result<PlanSpace> fitted(PlanSpace space, const Model& model) {
  if (!model.numbers.program) return space;
  std::optional<Error> error;
  const auto pin = [&](const char* degree, Allowed& allowed, const char* why) {
    if (!error && !allowed.contains(1))
      error = Error{.field = fmt::format("llm.{}", degree),
                    .problem = fmt::format("does not allow 1, but {}", why),
                    .advice = "Allow 1."};
    allowed = {.values = {1}};
  };
  pin("cp", space.cp, "context parallelism is of transformer layers, not of programs");
  if (!model.numbers.program->marks_layers) {
    const char* why = "the program marks no layers as a repeat, so that it is one block";
    pin("pp", space.pp, why);
    pin("vpp", space.vpp, why);
  }
  if (space.sequence_parallel.value_or(false) && !error)
    error = Error{.field = "llm.sequence_parallel",
                  .problem = "is true, but rows between blocks of a program are whole",
                  .advice = "Leave it out."};
  if (error) return *std::move(error);
  space.sequence_parallel = false;
  space.recompute.allows_selective = false;
  return space;
}

std::optional<Error> find_foreign_module(const Document& document, const Model& model) {
  const auto error = [&](std::string field, const std::string& name) {
    std::vector<std::string> modules;
    for (const Module& module : model.modules) modules.emplace_back(name_of(module.kind));
    return Error{.source = document.source,
                 .field = std::move(field),
                 .problem = fmt::format("is about the module {}, which {} does not have; it has {}", in_quotes(name),
                                        printable(model.name), fmt::join(modules, ", ")),
                 .advice = "Remove it, or plan for another model."};
  };
  for (const ModuleKind kind : kEncoderKinds) {
    const std::string name(name_of(kind));
    if (model.find(kind) != nullptr) continue;
    if (document.root.contains(name)) return error(name, name);
    const auto frozen = document.root.find("frozen");
    if (frozen == document.root.end()) continue;
    for (const Json& word : *frozen) {
      if (word == name) return error("frozen", name);
    }
  }
  return std::nullopt;
}

}  // namespace weft
