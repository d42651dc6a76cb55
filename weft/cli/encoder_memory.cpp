#include "weft/cli/encoder_memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/cli/report_text.h"
#include "weft/meaning/trainable.h"
#include "weft/plan/mbs_scale.h"
#include "weft/simulate/fill_order.h"

namespace weft {
namespace {

/// A plan like the given one but for one encoder.
class Variant {
 public:
  Variant(const Plan& plan, size_t encoder, const SimulateOptions& how) : plan_(plan), encoder_(encoder), how_(how) {}

  bool fits(int64_t mbs_scale, bool recomputes_from_inputs) const {
    Plan plan = plan_;
    set_mbs_scale(plan.modules[encoder_], mbs_scale, 1);
    return fits(std::move(plan), recomputes_from_inputs);
  }

  /// With the macro batches that the plan has.
  bool fits(bool recomputes_from_inputs) const { return fits(Plan(plan_), recomputes_from_inputs); }

  /// Of those below the plan's, given that 1 fits.
  int64_t largest_scale_that_fits(bool recomputes_from_inputs) const {
    const int64_t given = plan_.modules[encoder_].mbs_scale;
    int64_t fitting = 1, too_large = given;
    while (too_large - fitting > 1) {
      const int64_t middle = fitting + (too_large - fitting) / 2;
      (fits(middle, recomputes_from_inputs) ? fitting : too_large) = middle;
    }
    // Larger macro batches can be fewer at once, so that memory does not only grow: those a little larger are tried
    // too.
    constexpr int64_t kMostTried = 64;
    for (int64_t scale = std::min(given - 1, fitting + kMostTried); scale > fitting; --scale) {
      if (fits(scale, recomputes_from_inputs)) return scale;
    }
    return fitting;
  }

 private:
  bool fits(Plan plan, bool recomputes_from_inputs) const {
    plan.modules[encoder_].recompute_from_inputs = recomputes_from_inputs;
    Result<PlanSimulator> simulator = PlanSimulator::create(plan, how_.profile);
    if (!simulator || store_fill_order(*simulator, plan)) return false;
    const Result<PlanReport> report = simulate_plan(plan, how_);
    return report.ok() && report->fits();
  }

  const Plan& plan_;
  size_t encoder_;
  const SimulateOptions& how_;
};

}  // namespace

std::optional<Error> explain_encoder_memory(const Plan& plan, const PlanReport& report, const SimulateOptions& how) {
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    if (module.is_in_pipeline()) continue;
    const Variant variant(plan, m, how);
    const bool recomputes = module.recompute_from_inputs;
    const std::string name(name_of(module.kind));
    if (module.mbs_parts == 1 && module.mbs_scale > 1 && variant.fits(1, recomputes)) {
      return Error{.field = fmt::format("modules.{}.mbs_scale", name),
                   .problem = fmt::format("is {}, and macro batches of {} × mbs {} = {} samples a rank do not fit: {}",
                                          module.mbs_scale, module.mbs_scale, plan.schedule.mbs,
                                          module.mbs_scale * plan.schedule.mbs, memory_summary(report)),
                   .advice = fmt::format("The largest mbs_scale of {} that fits is {}{}.", name,
                                         variant.largest_scale_that_fits(recomputes),
                                         module.form == EncoderForm::kFill
                                             ? "; plan again with it, because its order in the bubbles changes"
                                             : "")};
    }
    const bool can_recompute = module.form == EncoderForm::kBefore && !recomputes && trains(plan, module.kind);
    const bool fits_as_it_is = can_recompute && variant.fits(true);
    if (!fits_as_it_is && !(can_recompute && module.mbs_parts == 1 && variant.fits(1, true))) continue;
    const std::string scale =
        fits_as_it_is ? mbs_scale_text(module) : std::to_string(variant.largest_scale_that_fits(true));
    return Error{
        .field = fmt::format("modules.{}.recompute_from_inputs", name),
        .problem = fmt::format("is off, and the activations of all macro batches of {} (mbs_scale {}) do not fit: {}",
                               name, mbs_scale_text(module), memory_summary(report)),
        .advice = fmt::format("With recompute_from_inputs, mbs_scale {} fits.", scale)};
  }
  return std::nullopt;
}

}  // namespace weft
