#include "weft/cli/profile_table.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/output_path.h"
#include "weft/base/text.h"
#include "weft/cli/installation.h"
#include "weft/plan/plan.h"
#include "weft/profile/profile_table.h"

namespace weft {
namespace {

struct BlockName {
  ModuleKind module;
  std::string block;
};

std::vector<BlockName> blocks_of(const Model& model) {
  std::vector<BlockName> names;
  for (const Module& module : model.modules) {
    const auto add = [&](const Block& block) {
      if (!block.ops.empty()) names.push_back({module.kind, block.name});
    };
    add(module.entry);
    for (const Block& kind : module.distinct_layers) add(kind);
    add(module.exit);
  }
  return names;
}

std::string text_of(const BlockName& name) {
  return fmt::format("{} '{}'", name_of(name.module), name.block);
}

Result<Precision> precision_of(const std::optional<std::string>& given) {
  if (!given) return Precision::kBf16;
  const auto& names = precision_names();
  const auto found = std::find(names.begin(), names.end(), *given);
  if (found != names.end()) return static_cast<Precision>(found - names.begin());
  return Error{.source = "--precision",
               .problem = fmt::format("is {}, {} is needed", in_quotes(*given),
                                      joined_or(std::vector<std::string>(names.begin(), names.end()))),
               .advice = "Leave it out for bf16."};
}

}  // namespace

Result<std::string> profile_from_table(const ProfileTableOptions& options) {
  if (auto error = find_bad_output({{"--out", options.out}}, {{"--from", options.table}, {"--model", options.model}}))
    return *std::move(error);
  WEFT_TRY(const Model model, find_scenarios().model(options.model));
  WEFT_TRY(Profile profile, read_profile_table(options.table));
  WEFT_TRY(profile.precision, precision_of(options.precision));
  profile.device = options.device_name;
  profile.model = model.name;
  profile.model_hash = hash_of(model.config);
  const std::vector<BlockName> names = blocks_of(model);
  for (const BlockMeasurement& m : profile.blocks) {
    const bool is_known = std::any_of(names.begin(), names.end(), [&](const BlockName& name) {
      return name.module == m.shape.module && name.block == m.shape.block;
    });
    if (is_known) continue;
    std::vector<std::string> known;
    for (const BlockName& name : names) known.push_back(text_of(name));
    return Error{.source = options.table,
                 .field = "block",
                 .problem = fmt::format("has {} of {}, which {} does not have", in_quotes(m.shape.block),
                                        name_of(m.shape.module), model.name),
                 .advice = fmt::format("Its blocks are {}.", joined_or(known))};
  }
  if (auto error = write_profile_file(options.out, profile)) return *std::move(error);
  std::string text = fmt::format("{}, {} and {} of {} on {} written to {}\n",
                                 counted(static_cast<int64_t>(profile.blocks.size()), "block measurement"),
                                 counted(static_cast<int64_t>(profile.links.size()), "link measurement"),
                                 counted(static_cast<int64_t>(profile.updates.size()), "update"), model.name,
                                 profile.device, options.out);
  std::vector<std::string> lacking;
  for (const BlockName& name : names) {
    const bool is_there = std::any_of(profile.blocks.begin(), profile.blocks.end(), [&](const BlockMeasurement& m) {
      return m.shape.module == name.module && m.shape.block == name.block;
    });
    if (!is_there) lacking.push_back(text_of(name));
  }
  if (!lacking.empty()) text += fmt::format("not in the table, so formulas price them: {}\n", fmt::join(lacking, ", "));
  return text;
}

}  // namespace weft
