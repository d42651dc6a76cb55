#include "weft/profile/profile.h"

#include <array>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file_kind.h"

namespace weft {
namespace {

const std::array<std::string, 3> kModules = {"vision", "audio", "llm"};
const std::array<std::string, 2> kAttention = {"fused", "unfused"};
const std::array<std::string, 2> kLinks = {"within_node", "between_nodes"};
const std::array<std::string, 5> kCollectives = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"};
constexpr int64_t kVersion = 2;  // 1 had fewer fields
constexpr NumberRange kMsRange{0, 1e7};
constexpr NumberRange kMeasuredMsRange{1e-6, 1e7};
constexpr NumberRange kTokenRange{1, 1e9};
constexpr IntegerRange kDegreeRange{1, 1 << 20};

constexpr NumberRange kBytesRange{0, 1e15};
constexpr IntegerRange kRunsRange{0, 1'000'000'000};

Sureness read_sureness(Fields& fields) {
  return {.runs = fields.integer_or("runs", 0, kRunsRange),
          .spread_percent = fields.number_or("spread_percent", 0, {0, 1e6})};
}

BlockShape read_shape(Fields& fields) {
  BlockShape shape;
  shape.module = static_cast<ModuleKind>(fields.choice("module", kModules));
  shape.block = fields.text("block");
  shape.tp = fields.integer_or("tp", 1, kDegreeRange);
  shape.cp = fields.integer_or("cp", 1, kDegreeRange);
  shape.cp_ulysses = fields.integer_or("cp_ulysses", 1, kDegreeRange);
  shape.ep = fields.integer_or("ep", 1, kDegreeRange);
  shape.sequence_parallel = fields.flag_or("sequence_parallel", false);
  shape.experts_over_tp = fields.flag_or("experts_over_tp", false);
  shape.attention = static_cast<AttentionKernel>(fields.choice_or("attention", 0, kAttention));
  shape.busy_ranks = fields.integer_or("busy_ranks", 1, kDegreeRange);
  shape.tokens = fields.number("tokens", kTokenRange);
  shape.sequence_tokens = fields.number("sequence_tokens", kTokenRange);
  if (shape.sequence_tokens > shape.tokens) {
    fields.complain("sequence_tokens",
                    fmt::format("is {}, but there are only {} tokens", shape.sequence_tokens, shape.tokens));
  }
  if (shape.cp % shape.cp_ulysses != 0) {
    fields.complain("cp_ulysses", fmt::format("is {}, which does not divide cp {}", shape.cp_ulysses, shape.cp));
  }
  return shape;
}

BlockMeasurement read_block(Fields& fields) {
  BlockMeasurement block;
  block.shape = read_shape(fields);
  block.forward_ms = fields.number("forward_ms", kMeasuredMsRange);
  block.backward_input_ms = fields.number("backward_input_ms", kMsRange);
  block.backward_weight_ms = fields.number("backward_weight_ms", kMsRange);
  block.attention_ms = fields.number_or("attention_ms", 0, kMsRange);
  block.kept_bytes = fields.number_or("kept_bytes", 0, kBytesRange);
  block.forward_peak_bytes = fields.number_or("forward_peak_bytes", 0, kBytesRange);
  block.backward_peak_bytes = fields.number_or("backward_peak_bytes", 0, kBytesRange);
  block.sureness = read_sureness(fields);
  return block;
}

UpdateMeasurement read_update(Fields& fields) {
  UpdateMeasurement update;
  update.busy_ranks = fields.integer_or("busy_ranks", 1, kDegreeRange);
  update.elements = fields.number("elements", {1, 1e15});
  update.ms = fields.number("ms", kMeasuredMsRange);
  update.sureness = read_sureness(fields);
  return update;
}

LinkMeasurement read_link(Fields& fields) {
  LinkMeasurement link;
  link.is_between_nodes = fields.choice("link", kLinks) == 1;
  link.collective = kCollectives[fields.choice("collective", kCollectives)];
  link.ranks = fields.integer("ranks", {2, kDegreeRange.max});
  link.ranks_per_node = fields.integer_or("ranks_per_node", 1, {1, kDegreeRange.max});
  link.bytes = fields.number("bytes", {1, 1e15});
  link.ms = fields.number("ms", kMeasuredMsRange);
  link.sureness = read_sureness(fields);
  return link;
}

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
  profile.device = fields.text("device");
  profile.software = fields.text_or("software", "");
  profile.date = fields.text_or("date", "");
  profile.model = fields.text("model");
  profile.model_hash = fields.text("model_hash");
  profile.precision =
      static_cast<Precision>(fields.choice_or("precision", static_cast<size_t>(Precision::kBf16), precision_names()));
  profile.action_ms = fields.number_or("action_ms", 0, kMsRange);
  profile.step_ms = fields.number_or("step_ms", 0, kMsRange);
  profile.reserved_bytes = fields.number_or("reserved_bytes", 0, kBytesRange);
  profile.blocks = read_list<BlockMeasurement>(fields, "blocks", read_block);
  profile.updates = read_list<UpdateMeasurement>(fields, "updates", read_update);
  profile.links = read_list<LinkMeasurement>(fields, "links", read_link);
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return profile;
}

Result<Profile> read_profile_file(const std::filesystem::path& path) {
  WEFT_TRY(const Document document, read_document(path, {.max_bytes = 64u << 20, .max_values = 5'000'000}));
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

Json to_json(const UpdateMeasurement& update) {
  Json json = Json::object();
  if (update.busy_ranks > 1) json["busy_ranks"] = update.busy_ranks;
  json["elements"] = update.elements;
  json["ms"] = update.ms;
  add_sureness(update.sureness, json);
  return json;
}

Json to_json(const LinkMeasurement& link) {
  Json json = {{"link", kLinks[link.is_between_nodes ? 1 : 0]}, {"collective", link.collective}, {"ranks", link.ranks},
               {"ranks_per_node", link.ranks_per_node},         {"bytes", link.bytes},           {"ms", link.ms}};
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
  json["blocks"] = to_list(profile.blocks);
  if (!profile.updates.empty()) json["updates"] = to_list(profile.updates);
  json["links"] = to_list(profile.links);
  return json;
}

}  // namespace weft
