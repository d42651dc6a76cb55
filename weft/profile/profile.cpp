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
const std::array<std::string, 3> kCollectives = {"all_reduce", "all_gather", "reduce_scatter"};
constexpr NumberRange kMsRange{0, 1e7};
constexpr NumberRange kMeasuredMsRange{1e-6, 1e7};
constexpr NumberRange kTokenRange{1, 1e9};
constexpr IntegerRange kDegreeRange{1, 1 << 20};

BlockMeasurement read_block(Fields& fields) {
  BlockMeasurement block;
  block.module = static_cast<ModuleKind>(fields.choice("module", kModules));
  block.block = fields.text("block");
  block.tp = fields.integer_or("tp", 1, kDegreeRange);
  block.ep = fields.integer_or("ep", 1, kDegreeRange);
  block.sequence_parallel = fields.flag_or("sequence_parallel", false);
  block.attention = static_cast<AttentionKernel>(fields.choice_or("attention", 0, kAttention));
  block.tokens = fields.number("tokens", kTokenRange);
  block.sequence_tokens = fields.number("sequence_tokens", kTokenRange);
  block.forward_ms = fields.number("forward_ms", kMeasuredMsRange);
  block.backward_input_ms = fields.number("backward_input_ms", kMsRange);
  block.backward_weight_ms = fields.number("backward_weight_ms", kMsRange);
  if (block.sequence_tokens > block.tokens) {
    fields.complain("sequence_tokens",
                    fmt::format("is {}, but there are only {} tokens", block.sequence_tokens, block.tokens));
  }
  return block;
}

LinkMeasurement read_link(Fields& fields) {
  LinkMeasurement link;
  link.is_between_nodes = fields.choice("link", kLinks) == 1;
  link.collective = kCollectives[fields.choice("collective", kCollectives)];
  link.ranks = fields.integer("ranks", {2, kDegreeRange.max});
  link.ranks_per_node = fields.integer_or("ranks_per_node", 1, {1, kDegreeRange.max});
  link.bytes = fields.number("bytes", {1, 1e15});
  link.ms = fields.number("ms", kMeasuredMsRange);
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
  fields.integer("weft_profile", {1, 1});
  Profile profile{.source = document.source};
  profile.device = fields.text("device");
  profile.model = fields.text("model");
  profile.model_hash = fields.text("model_hash");
  profile.precision =
      static_cast<Precision>(fields.choice_or("precision", static_cast<size_t>(Precision::kBf16), precision_names()));
  profile.blocks = read_list<BlockMeasurement>(fields, "blocks", read_block);
  profile.links = read_list<LinkMeasurement>(fields, "links", read_link);
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return profile;
}

Result<Profile> read_profile_file(const std::filesystem::path& path) {
  WEFT_TRY(const Document document, read_document(path, {.max_bytes = 64u << 20, .max_values = 5'000'000}));
  return read_profile(document);
}

Json to_json(const Profile& profile) {
  Json blocks = Json::array();
  for (const BlockMeasurement& b : profile.blocks) {
    blocks.push_back({{"module", name_of(b.module)},
                      {"block", b.block},
                      {"tp", b.tp},
                      {"ep", b.ep},
                      {"sequence_parallel", b.sequence_parallel},
                      {"attention", name_of(b.attention)},
                      {"tokens", b.tokens},
                      {"sequence_tokens", b.sequence_tokens},
                      {"forward_ms", b.forward_ms},
                      {"backward_input_ms", b.backward_input_ms},
                      {"backward_weight_ms", b.backward_weight_ms}});
  }
  Json links = Json::array();
  for (const LinkMeasurement& l : profile.links) {
    links.push_back({{"link", kLinks[l.is_between_nodes ? 1 : 0]},
                     {"collective", l.collective},
                     {"ranks", l.ranks},
                     {"ranks_per_node", l.ranks_per_node},
                     {"bytes", l.bytes},
                     {"ms", l.ms}});
  }
  return {{"weft_profile", 1},
          {"device", profile.device},
          {"model", profile.model},
          {"model_hash", profile.model_hash},
          {"precision", name_of(profile.precision)},
          {"blocks", blocks},
          {"links", links}};
}

}  // namespace weft
