#include "weft/engine/evaluations.h"

namespace weft {
namespace {

constexpr const char* kStateKey = "evaluations";

}  // namespace

void Evaluations::restore(const Json& run) {
  if (!run.is_object() || !run.contains(kStateKey)) return;
  const Json& stood = run[kStateKey];
  for (const char* number : {"best_step", "best_loss", "without_gain"}) {
    if (!stood.is_object() || !stood.contains(number) || !stood[number].is_number()) return;
  }
  best_ = Evaluated{.step = stood["best_step"].get<int64_t>(), .loss = stood["best_loss"].get<double>()};
  without_gain_ = stood["without_gain"].get<int64_t>();
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
