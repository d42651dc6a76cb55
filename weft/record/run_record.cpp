#include "weft/record/run_record.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file.h"
#include "weft/base/text_hash.h"
#include "weft/plan/plan_json.h"
#include "weft/program/module_kinds.h"

namespace weft {
namespace {

constexpr int64_t kVersion = 1;
constexpr size_t kMostBytes = size_t{1} << 30;
constexpr DocumentLimits kLineLimits{.max_bytes = 256u << 20, .max_depth = 16, .max_values = 20'000'000};
constexpr NumberRange kMsRange{0, 1e9};
constexpr int64_t kMostSteps = int64_t{1} << 48;
/// Ranks on different hosts begin a little apart, and what they send each other may end behind the step.
constexpr double kSlackMs = 10'000;
/// Times are rounded as they are written.
constexpr double kRoundingMs = 1e-3;
constexpr const char* kAdvice = "Run it again with another --run, or take the line away.";

/// Microseconds are as fine as clocks are worth.
double rounded(double ms) {
  return std::round(ms * 1e4) * 1e-4;
}

/// Ends an object with the hash of its text.
std::string sealed(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.pop_back();
  return fmt::format("{}, \"seal\": \"{:016x}\"}}\n", text, text_hash(text));
}

/// The text before the seal; nothing where it does not fit.
std::optional<std::string> unsealed(std::string_view line) {
  const size_t at = line.rfind(", \"seal\": \"");
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view before = line.substr(0, at);
  if (line.substr(at) != fmt::format(", \"seal\": \"{:016x}\"}}", text_hash(before))) return std::nullopt;
  return std::string(before) + "}";
}

Segments& segments_of(SampleLoad& load, ModuleKind kind) {
  return kind == ModuleKind::kVision ? load.vision : kind == ModuleKind::kAudio ? load.audio : load.llm;
}

Json sample_json(const SampleLoad& load) {
  Json json = Json::object();
  for (const ModuleKind kind : kModuleKinds) {
    if (load.of(kind).empty()) continue;
    Json& list = json[std::string(name_of(kind))];
    for (const Segment& segment : load.of(kind)) list.push_back({segment.length, segment.count});
  }
  return json;
}

bool is_number(const Json& json, NumberRange range) {
  return json.is_number() && json.get<double>() >= range.min && json.get<double>() <= range.max;
}

SampleLoad read_sample(Fields& fields) {
  SampleLoad load;
  for (const ModuleKind kind : kModuleKinds) {
    const std::string key(name_of(kind));
    const Json* raw = fields.raw(key);
    if (raw == nullptr) continue;
    const bool is_good =
        raw->is_array() && std::all_of(raw->begin(), raw->end(), [](const Json& s) {
          return s.is_array() && s.size() == 2 && is_number(s[0], {0, 1e9}) && is_number(s[1], {0, 1e9});
        });
    if (!is_good) {
      fields.complain(key, "is not a list of lengths and counts");
      continue;
    }
    for (const Json& segment : *raw)
      segments_of(load, kind).push_back({segment[0].get<double>(), segment[1].get<double>()});
  }
  fields.reject_unknown();
  return load;
}

/// ["0F0", stream, start, end, blocked], of a step that took so long.
std::optional<TimelineEvent> event_in(const Json& json, double step_ms) {
  if (!json.is_array() || json.size() != 5 || !json[0].is_string()) return std::nullopt;
  Result<Action> action = parse_action(json[0].get<std::string>());
  const auto stream = whole_number(json[1], {0, static_cast<int64_t>(Stream::kReduce)});
  if (!action || !stream) return std::nullopt;
  for (size_t i = 2; i < 5; ++i) {
    if (!is_number(json[i], {-kSlackMs - step_ms, kSlackMs + 2 * step_ms})) return std::nullopt;
  }
  TimelineEvent event{.action = *action,
                      .stream = static_cast<Stream>(*stream),
                      .start_ms = json[2].get<double>(),
                      .end_ms = json[3].get<double>(),
                      .blocked_ms = json[4].get<double>()};
  const double duration = event.end_ms - event.start_ms;
  if (duration < 0 || event.blocked_ms < 0 || event.blocked_ms > duration + kRoundingMs) return std::nullopt;
  return event;
}

RecordedRank read_rank(Fields& fields, double step_ms) {
  RecordedRank rank{.peak_bytes = fields.number("peak_bytes", {0, 1e16})};
  const Json* events = fields.raw("events");
  if (events == nullptr || !events->is_array()) {
    fields.complain("events", "is not a list");
    return rank;
  }
  for (size_t i = 0; i < events->size(); ++i) {
    const auto event = event_in((*events)[i], step_ms);
    if (!event) {
      fields.complain(fmt::format("events[{}]", i),
                      "is not an action, its stream, start, end and time blocked, within its step");
      break;
    }
    rank.events.push_back(*event);
  }
  fields.reject_unknown();
  return rank;
}

Result<RunHeader> read_header(const Document& document) {
  Findings findings(document.source);
  Fields fields(document, findings);
  fields.integer("weft_run", {1, kVersion});
  RunHeader header{.software = fields.text_or("software", ""),
                   .device = fields.text("device"),
                   .device_name = fields.text_or("device_name", ""),
                   .date = fields.text_or("date", ""),
                   .threads_per_rank = fields.integer_or("threads_per_rank", 1, {0, 1 << 20}),
                   .ranks_here = fields.integer_or("ranks_here", 1, {0, 1 << 20}),
                   .cores = fields.integer_or("cores", 0, {0, 1 << 20}),
                   .plan = fields.text_or("plan", "")};
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return header;
}

Result<StepRecord> read_step(const Document& document, NumberBudget& budget) {
  Findings findings(document.source);
  Fields fields(document, findings);
  StepRecord record{.step = fields.integer("step", {1, kMostSteps}),
                    .steps_before = fields.integer("steps_before", {0, kMostSteps}),
                    .step_ms = fields.number("step_ms", kMsRange)};
  for (Fields& rank : fields.objects("ranks")) record.ranks.push_back(read_rank(rank, record.step_ms));
  for (Fields& sample : fields.objects("samples")) record.samples.push_back(read_sample(sample));
  const Json* load = fields.raw("load");
  record.load_is_too_large = load != nullptr && budget.left < 0;
  if (load != nullptr && !record.load_is_too_large) {
    Result<RecordedLoad> read = read_load(*load, budget);
    record.load_is_too_large = budget.left < 0;
    if (record.load_is_too_large) {
      // As where a run has not written it down.
    } else if (!read) {
      const Error& error = read.error();
      fields.complain(error.field.empty() ? "load" : "load." + error.field, error.problem, error.advice);
    } else {
      record.load = *std::move(read);
    }
  }
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return record;
}

Error bad_line(const std::string& source, int64_t line, std::string problem) {
  return {.source = fmt::format("{}:{}", source, line), .problem = std::move(problem), .advice = kAdvice};
}

constexpr std::string_view kPredictionFields[] = {"predicted", "cluster", "batches", "batch_seed", "model.name"};

}  // namespace

bool is_of_prediction(std::string_view field) {
  return std::any_of(std::begin(kPredictionFields), std::end(kPredictionFields), [&](std::string_view name) {
    return field.starts_with(name) && (field.size() == name.size() || field[name.size()] == '.');
  });
}

std::string work_hash(const Plan& plan) {
  Json work = plan_to_json(plan).flatten();
  Json kept = Json::object();
  for (const auto& [place, value] : work.items()) {
    std::string field = place.substr(1);
    std::replace(field.begin(), field.end(), '/', '.');
    if (!is_of_prediction(field)) kept[place] = value;
  }
  return hash_of(kept);
}

std::string to_line(const RunHeader& header) {
  Json json = {{"weft_run", kVersion}, {"software", header.software}, {"device", header.device}};
  if (!header.device_name.empty()) json["device_name"] = header.device_name;
  if (!header.date.empty()) json["date"] = header.date;
  json["threads_per_rank"] = header.threads_per_rank;
  json["ranks_here"] = header.ranks_here;
  if (header.cores > 0) json["cores"] = header.cores;
  if (!header.plan.empty()) json["plan"] = header.plan;
  return sealed(json);
}

std::string to_line(const StepRecord& step) {
  Json json = {{"step", step.step}, {"steps_before", step.steps_before}, {"step_ms", rounded(step.step_ms)}};
  json["ranks"] = Json::array();
  for (const RecordedRank& rank : step.ranks) {
    Json events = Json::array();
    for (const TimelineEvent& event : rank.events) {
      events.push_back({to_text(event.action), static_cast<int64_t>(event.stream), rounded(event.start_ms),
                        rounded(event.end_ms), rounded(event.blocked_ms)});
    }
    json["ranks"].push_back({{"peak_bytes", rank.peak_bytes}, {"events", std::move(events)}});
  }
  json["samples"] = Json::array();
  for (const SampleLoad& sample : step.samples) json["samples"].push_back(sample_json(sample));
  if (step.load) json["load"] = to_json(*step.load);
  return sealed(json);
}

Result<RunRecord> parse_run_record(std::string_view text, std::string source) {
  RunRecord record{.source = std::move(source)};
  std::vector<std::string> plans;  // of each step
  int64_t last_step = 0;
  bool has_header = false;
  NumberBudget budget{kMostRecordedNumbers};
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    ++number;
    if (end == std::string_view::npos) return bad_line(record.source, number, "is cut off: the line does not end");
    text.remove_prefix(end + 1);
    const auto content = unsealed(line);
    if (!content) return bad_line(record.source, number, "is cut off or was changed: its seal does not fit");
    WEFT_TRY(const Document document,
             parse_document(*content, fmt::format("{}:{}", record.source, number), Syntax::kJson, kLineLimits));
    if (document.root.is_object() && document.root.contains("weft_run")) {
      // A run that goes on tells of itself again.
      WEFT_TRY(record.header, read_header(document));
      has_header = true;
      continue;
    }
    if (!has_header) return bad_line(record.source, number, "comes before the line that says what ran");
    WEFT_TRY(StepRecord step, read_step(document, budget));
    if (step.step <= last_step) return bad_line(record.source, number, fmt::format("has step {} again", step.step));
    last_step = step.step;
    record.steps.push_back(std::move(step));
    plans.push_back(record.header.plan);
  }
  // A run may have changed its plan more than once, and come back to one.
  std::vector<StepRecord> own;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i] == record.header.plan) own.push_back(std::move(record.steps[i]));
  }
  record.num_other_plan_steps = std::ssize(plans) - std::ssize(own);
  record.steps = std::move(own);
  return record;
}

Result<RunRecord> read_run_record(const std::filesystem::path& run_folder) {
  const std::filesystem::path path = run_folder / kRunRecordName;
  std::error_code ignored;
  if (!std::filesystem::is_directory(run_folder, ignored)) {
    return Error{.source = run_folder.string(),
                 .problem = "is no folder, the folder of a run is needed",
                 .advice = "'weft train' says at its end where its run folder is."};
  }
  if (!std::filesystem::exists(path, ignored)) {
    return Error{.source = run_folder.string(),
                 .problem = fmt::format("has no {}, so no step of a run was written down there", kRunRecordName),
                 .advice = "Give the folder of a run of this version of 'weft train'."};
  }
  WEFT_TRY(const std::string text, read_file(path, kMostBytes));
  WEFT_TRY(RunRecord record, parse_run_record(text, path.string()));
  if (record.steps.empty()) {
    return Error{.source = path.string(),
                 .problem = record.num_other_plan_steps == 0 ? "has no step: the run ended before its first"
                                                             : "has no step by the plan that the run went on by last",
                 .advice = "Train at least one step, better ten."};
  }
  return record;
}

std::string rewound(std::string_view text, int64_t step) {
  std::string kept;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
    const auto content = unsealed(line);
    if (!content) continue;
    const Json json = Json::parse(*content, nullptr, /*allow_exceptions=*/false);
    const bool is_later = json.is_object() && json.contains("step") && json["step"].is_number_integer() &&
                          !whole_number(json["step"], {INT64_MIN, step});
    if (!is_later) kept += std::string(line) + "\n";
  }
  return kept;
}

bool is_recorded(int64_t steps_done, int64_t num_steps, int64_t events_per_step) {
  constexpr int64_t kMostRecorded = 16, kFewestRecorded = 2, kMostEvents = 1'000'000;
  const int64_t count = std::clamp(kMostEvents / std::max<int64_t>(1, events_per_step), kFewestRecorded, kMostRecorded);
  if (steps_done + 1 >= num_steps || num_steps <= count) return true;
  // The first of each of `count` equal parts.
  return (steps_done * count) / num_steps != ((steps_done - 1) * count) / num_steps || steps_done == 0;
}

}  // namespace weft
