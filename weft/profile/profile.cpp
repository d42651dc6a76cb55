#include "weft/profile/profile.h"

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file.h"
#include "weft/base/file_kind.h"
#include "weft/profile/measurement_fields.h"

namespace weft {
namespace {

constexpr int64_t kVersion = 3;  // those before had fewer fields
constexpr DocumentLimits kLimits{.max_bytes = 64u << 20, .max_values = 5'000'000};
constexpr NumberRange kMsRange{0, 1e7};

/// A list of objects, each read by `read`.
template <typename T, typename Read>
std::vector<T> read_list(Fields& fields, const char* key, Read read) {
  std::vector<T> items;
  const Json* raw = fields.raw(key);
  if (raw == nullptr) return items;
  if (!raw->is_array()) {
    fields.complain(key, "must be a list of measurements");
    return items;
  }
  for (size_t i = 0; i < raw->size(); ++i) {
    const Document document{.source = "", .root = (*raw)[i]};
    Findings findings("");
    Fields item(document, findings);
    items.push_back(read(item));
    item.reject_unknown();
    if (const auto& error = findings.first()) {
      fields.findings().add(
          fmt::format("{}[{}]{}{}", fields.path_of(key), i, error->field.empty() ? "" : ".", error->field),
          error->problem, error->advice);
      break;
    }
  }
  return items;
}

}  // namespace

Result<Profile> read_profile(const Document& document) {
  if (auto error = find_wrong_kind(document, FileKind::kProfile)) return *std::move(error);
  Findings findings(document.source);
  Fields fields(document, findings);
  fields.integer("weft_profile", {1, kVersion});
  Profile profile{.source = document.source};
  profile.device = fields.name("device");
  profile.software = fields.name_or("software", "");
  profile.date = fields.name_or("date", "");
  profile.model = fields.name("model");
  profile.model_hash = fields.text("model_hash");
  profile.precision =
      static_cast<Precision>(fields.choice_or("precision", static_cast<size_t>(Precision::kBf16), precision_names()));
  profile.action_ms = fields.number_or("action_ms", 0, kMsRange);
  profile.step_ms = fields.number_or("step_ms", 0, kMsRange);
  profile.reserved_bytes = fields.number_or("reserved_bytes", 0, {0, 1e15});
  profile.clock_mhz = fields.number_or("clock_mhz", 0, {0, 1e6});
  profile.lowest_clock_mhz = fields.number_or("lowest_clock_mhz", 0, {0, 1e6});
  profile.blocks = read_list<BlockMeasurement>(fields, "blocks", read_block);
  profile.operators = read_list<OperatorMeasurement>(fields, "operators", read_operator);
  profile.updates = read_list<UpdateMeasurement>(fields, "updates", read_update);
  profile.links = read_list<LinkMeasurement>(fields, "links", read_link);
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return profile;
}

Result<Profile> read_profile_file(const std::filesystem::path& path) {
  WEFT_TRY(const Document document, read_document(path, kLimits));
  return read_profile(document);
}

namespace {

void add_sureness(const Sureness& sureness, Json& json) {
  if (sureness.runs == 0) return;
  json["runs"] = sureness.runs;
  json["spread_percent"] = sureness.spread_percent;
}

/// Fields that say nothing are left out.
void add_positive(const char* key, double value, Json& json) {
  if (value > 0) json[key] = value;
}

Json to_json(const BlockMeasurement& block) {
  const BlockShape& shape = block.shape;
  Json json = {{"module", name_of(shape.module)}, {"block", shape.block}, {"tp", shape.tp}, {"ep", shape.ep}};
  if (!shape.strategy.empty()) json["strategy"] = shape.strategy;
  if (shape.cp > 1) json["cp"] = shape.cp;
  if (shape.cp_ulysses > 1) json["cp_ulysses"] = shape.cp_ulysses;
  json["sequence_parallel"] = shape.sequence_parallel;
  if (shape.experts_over_tp) json["experts_over_tp"] = true;
  json["attention"] = name_of(shape.attention);
  if (shape.busy_ranks > 1) json["busy_ranks"] = shape.busy_ranks;
  json["tokens"] = shape.tokens;
  json["sequence_tokens"] = shape.sequence_tokens;
  json["forward_ms"] = block.forward_ms;
  json["backward_input_ms"] = block.backward_input_ms;
  json["backward_weight_ms"] = block.backward_weight_ms;
  add_positive("attention_ms", block.attention_ms, json);
  add_positive("kept_bytes", block.kept_bytes, json);
  add_positive("forward_peak_bytes", block.forward_peak_bytes, json);
  add_positive("backward_peak_bytes", block.backward_peak_bytes, json);
  add_sureness(block.sureness, json);
  return json;
}

Json to_json(const OperatorMeasurement& op) {
  Json json = {{"operator", op.part.op}, {"parts", op.part.parts}};
  if (!op.part.inside.empty()) json["inside"] = op.part.inside;
  if (op.busy_ranks > 1) json["busy_ranks"] = op.busy_ranks;
  json["forward_ms"] = op.forward_ms;
  json["backward_input_ms"] = op.backward_input_ms;
  json["backward_weight_ms"] = op.backward_weight_ms;
  add_sureness(op.sureness, json);
  return json;
}

Json to_json(const UpdateMeasurement& update) {
  Json json = Json::object();
  if (update.busy_ranks > 1) json["busy_ranks"] = update.busy_ranks;
  json["elements"] = update.elements;
  json["ms"] = update.ms;
  add_sureness(update.sureness, json);
  return json;
}

Json to_json(const LinkMeasurement& link) {
  Json json = {{"link", link.is_between_nodes ? "between_nodes" : "within_node"},
               {"collective", link.collective},
               {"ranks", link.ranks},
               {"ranks_per_node", link.ranks_per_node},
               {"bytes", link.bytes},
               {"ms", link.ms}};
  add_sureness(link.sureness, json);
  return json;
}

template <typename T>
Json to_list(const std::vector<T>& items) {
  Json list = Json::array();
  for (const T& item : items) list.push_back(to_json(item));
  return list;
}

}  // namespace

Json to_json(const Profile& profile) {
  Json json = {{"weft_profile", kVersion}, {"device", profile.device}};
  if (!profile.software.empty()) json["software"] = profile.software;
  if (!profile.date.empty()) json["date"] = profile.date;
  json["model"] = profile.model;
  json["model_hash"] = profile.model_hash;
  json["precision"] = name_of(profile.precision);
  add_positive("action_ms", profile.action_ms, json);
  add_positive("step_ms", profile.step_ms, json);
  add_positive("reserved_bytes", profile.reserved_bytes, json);
  add_positive("clock_mhz", profile.clock_mhz, json);
  add_positive("lowest_clock_mhz", profile.lowest_clock_mhz, json);
  json["blocks"] = to_list(profile.blocks);
  if (!profile.operators.empty()) json["operators"] = to_list(profile.operators);
  if (!profile.updates.empty()) json["updates"] = to_list(profile.updates);
  json["links"] = to_list(profile.links);
  return json;
}

namespace {

size_t num_values(const Json& json) {
  size_t count = 1;
  for (const Json& value : json) count += value.is_structured() ? num_values(value) : 1;
  return count;
}

}  // namespace

std::optional<Error> write_profile_file(const std::filesystem::path& path, const Profile& profile) {
  const Json json = to_json(profile);
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  const size_t count = num_values(json);
  if (text.size() <= kLimits.max_bytes && count <= kLimits.max_values) return write_file(path, text);
  return Error{.source = path.string(),
               .problem = fmt::format("would be a profile of {} bytes and {} values, {} and {} are read", text.size(),
                                      count, kLimits.max_bytes, kLimits.max_values),
               .advice = "Measure fewer blocks and sizes, or give fewer rows of the table."};
}

void keep_in_range(Profile& profile) {
  for (double* ms : {&profile.action_ms, &profile.step_ms}) keep_in_range(*ms, kMsRange);
  for (BlockMeasurement& block : profile.blocks) keep_in_range(block);
  for (UpdateMeasurement& update : profile.updates) keep_in_range(update);
  for (LinkMeasurement& link : profile.links) keep_in_range(link);
}

}  // namespace weft
