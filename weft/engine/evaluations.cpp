#include "weft/engine/evaluations.h"

#include <cmath>

#include "weft/base/fields.h"

namespace weft {
namespace {

constexpr const char* kStateKey = "evaluations";

}  // namespace

void Evaluations::restore(const Json& run, int64_t step) {
  if (!run.is_object() || !run.contains(kStateKey)) return;
  const Json& stood = run[kStateKey];
  for (const char* number : {"best_step", "best_loss", "without_gain"}) {
    if (!stood.is_object() || !stood.contains(number) || !stood[number].is_number()) return;
  }
  // There is one evaluation of a step at most.
  const auto best_step = whole_number(stood["best_step"], {0, step});
  const auto without_gain = whole_number(stood["without_gain"], {0, step});
  const auto best_loss = stood["best_loss"].get<double>();
  if (!best_step || !without_gain || !std::isfinite(best_loss)) return;
  best_ = Evaluated{.step = *best_step, .loss = best_loss};
  without_gain_ = *without_gain;
}

Json Evaluations::to_json() const {
  if (!best_) return Json::object();
  return {{kStateKey, {{"best_step", best_->step}, {"best_loss", best_->loss}, {"without_gain", without_gain_}}}};
}

Json Evaluations::settings_in(Json run) {
  if (run.is_object()) run.erase(kStateKey);
  return run;
}

bool Evaluations::is_due(int64_t step, int64_t num_steps) const {
  return settings_.interval_steps > 0 && (step % settings_.interval_steps == 0 || step == num_steps);
}

bool Evaluations::add(int64_t step, double loss) {
  if (best_ && !(loss < best_->loss - settings_.min_improvement)) {
    ++without_gain_;
    return false;
  }
  best_ = Evaluated{.step = step, .loss = loss};
  without_gain_ = 0;
  return true;
}

}  // namespace weft
