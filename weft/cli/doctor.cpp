#include <memory>

#include <fmt/format.h>

#include "weft/base/json.h"
#include "weft/cli/json_output.h"
#include "weft/cli/runtime_loader.h"
#include "weft/cli/verbs.h"

namespace weft {
namespace {

Result<std::string> doctor(bool json) {
  WEFT_TRY(const RuntimeApi* runtime, load_runtime());
  WEFT_TRY(const RuntimeReport report, runtime->check());
  if (json) {
    const Json object = {{"weft", WEFT_VERSION},
                         {"libtorch", report.libtorch_version},
                         {"cpu_threads", report.num_threads},
                         {"training_step",
                          {{"loss_before", report.loss_before},
                           {"loss_after", report.loss_after},
                           {"gradient_error", report.gradient_error}}}};
    return json_output(object);
  }
  return fmt::format(
      "weft {}\n"
      "runtime: LibTorch {}, {} CPU threads\n"
      "one training step: loss {:.6f} -> {:.6f}, gradient within {:.1e} of the closed form\n"
      "all well\n",
      WEFT_VERSION, report.libtorch_version, report.num_threads, report.loss_before, report.loss_after,
      report.gradient_error);
}

}  // namespace

void add_doctor(Verbs& verbs) {
  auto json = std::make_shared<bool>(false);
  Verb& verb = verbs.emplace_back(
      Verb{.name = "doctor", .summary = "Check this installation: load the runtime half and take one training step"});
  verb.option("--json", *json, "Print one JSON object");
  verb.footer =
      "Examples:\n"
      "  weft doctor\n"
      "  weft doctor --json";
  verb.run = [json] { return doctor(*json); };
}

}  // namespace weft
