#include "weft/cli/profile_update.h"

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/output_path.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/terminal_line.h"
#include "weft/validate/learn_from_run.h"

namespace weft {
namespace {

Json learned_json(const LearnedProfile& learned, const ProfileUpdateOptions& options) {
  Json json = {{"run", options.run}, {"out", options.out}};
  for (const auto& [kind, factors] : learned.modules)
    json["modules"][std::string(name_of(kind))] = {{"forward", factors.forward}, {"backward", factors.backward}};
  json["updates"] = learned.updates;
  json["links"] = learned.links ? Json(*learned.links) : Json();
  json["measured_ms"] = learned.after.measured;
  json["predicted_ms_before"] = learned.before.predicted;
  json["predicted_ms_after"] = learned.after.predicted;
  json["step_time_error_percent_before"] = learned.before.error_percent();
  json["step_time_error_percent_after"] = learned.after.error_percent();
  return json;
}

std::string learned_text(const LearnedProfile& learned, size_t num_steps, const ProfileUpdateOptions& options) {
  std::string text =
      fmt::format("learned from {} of {}\n", counted(static_cast<int64_t>(num_steps), "step"), options.run);
  for (const auto& [kind, factors] : learned.modules) {
    text += fmt::format("{:<11} forwards times {:.3f}, backwards times {:.3f}\n", name_of(kind), factors.forward,
                        factors.backward);
  }
  text += fmt::format("{:<11} times {:.3f}\n", "updates", learned.updates);
  if (learned.links) text += fmt::format("{:<11} times {:.3f}\n", "links", *learned.links);
  text += fmt::format("step time   {:.1f} ms predicted before ({:+.1f} %), {:.1f} after ({:+.1f} %), {:.1f} measured\n",
                      learned.before.predicted, learned.before.error_percent(), learned.after.predicted,
                      learned.after.error_percent(), learned.after.measured);
  return text + fmt::format("profile written to {}\n", options.out);
}

}  // namespace

Result<std::string> update_profile(const ProfileUpdateOptions& options) {
  const std::optional<std::string> out = options.out;
  if (auto error = find_bad_output({{"--out", out}}, {{"--from-profile", options.from_profile}}))
    return *std::move(error);
  WEFT_TRY(const RunRecord record, read_run_record(options.run));
  WEFT_TRY(const Plan plan, read_legal_plan((std::filesystem::path(options.run) / "plan.json").string()));
  std::optional<Profile> known;
  if (options.from_profile) {
    WEFT_TRY(known, read_profile_file(*options.from_profile));
  }
  show_progress("learning from the run");
  WEFT_TRY(const LearnedProfile learned, learn_from_run(plan, record, known ? &*known : nullptr));
  show_progress("");
  if (auto error = write_profile_file(options.out, learned.profile)) return *std::move(error);
  if (options.json) return json_output(learned_json(learned, options));
  return learned_text(learned, settled_steps(record).size(), options);
}

}  // namespace weft
