#include "weft/validate/joint_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "weft/validate/calibrate.h"
#include "weft/validate/least_squares.h"

namespace weft {
namespace {

/// A parameter with what it probably is before any run is seen: a value, and a factor for one standard deviation.
struct Prior {
  double Efficiency::*field;
  double value;
  double factor;
};

/// Of machines: the defaults.
std::vector<Prior> hardware_priors() {
  const Efficiency defaults;
  return {{&Efficiency::matrix, defaults.matrix, 1.15},
          {&Efficiency::matrix_half_size, defaults.matrix_half_size, 1.8},
          {&Efficiency::fused_attention, defaults.fused_attention, 1.3},
          {&Efficiency::memory, defaults.memory, 1.1},
          {&Efficiency::within_node, defaults.within_node, 1.3},
          {&Efficiency::between_nodes, defaults.between_nodes, 1.3},
          {&Efficiency::slowdown_per_doubling, defaults.slowdown_per_doubling, 2.2}};
}

/// Of systems: our own as the defaults have it; operators one by one, or fused into few kernels.
std::vector<Prior> software_priors(const LibraryRun& run) {
  const Efficiency defaults;
  const bool is_own = run.software == "weft";
  const double passes = is_own ? defaults.passes_per_operator : run.is_fused ? 2 : 5;
  const double host_us = is_own ? defaults.host_us_per_kernel : run.is_fused ? 4 : 8;
  std::vector<Prior> priors = {{&Efficiency::passes_per_operator, passes, 1.5},
                               {&Efficiency::kernel_us, defaults.kernel_us, 1.5},
                               {&Efficiency::host_us_per_kernel, host_us, 1.5},
                               {&Efficiency::update, is_own ? defaults.update : 0.5, 1.5},
                               {&Efficiency::overlap, defaults.overlap, 1.15}};
  if (run.has_own_attention) priors.push_back({&Efficiency::fused_attention, 0.5, 1.4});
  return priors;
}

struct Parameter {
  bool is_hardware = false;
  std::string owner;
  Prior prior;
};

std::vector<Parameter> parameters_of(const std::vector<LibraryRun>& runs) {
  std::set<std::string> hardware;
  std::map<std::string, const LibraryRun*> software;
  for (const LibraryRun& run : runs) {
    if (!run.hardware.empty()) hardware.insert(run.hardware);
    software.emplace(run.software, &run);
  }
  std::vector<Parameter> parameters;
  for (const std::string& name : hardware) {
    for (const Prior& prior : hardware_priors()) parameters.push_back({true, name, prior});
  }
  for (const auto& [name, run] : software) {
    for (const Prior& prior : software_priors(*run)) parameters.push_back({false, name, prior});
  }
  return parameters;
}

JointFit fit_at(const std::vector<Parameter>& parameters, const std::vector<double>& logs) {
  JointFit fit;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const double value = std::exp(logs[i]);
    if (parameter.is_hardware) {
      fit.hardware[parameter.owner].*parameter.prior.field = value;
    } else {
      fit.software[parameter.owner].set(parameter.prior.field, value);
    }
  }
  return fit;
}

NumberRange range_of(double Efficiency::*value) {
  for (const EfficiencyField& field : efficiency_fields()) {
    if (field.value == value) return field.range;
  }
  WEFT_CHECK(false, "a fitted parameter that is no field");
}

/// Predictions of one run for efficiencies that were asked before: most parameters belong to other runs.
class CachedRun {
 public:
  explicit CachedRun(const LibraryRun& run) : run_(&run) {}
  double ms(const JointFit& fit) {
    const Efficiency efficiency = fit.efficiency_of(*run_);
    const auto is_same = [&](const auto& known) {
      const auto fields = efficiency_fields();
      return std::all_of(fields.begin(), fields.end(),
                         [&](const EfficiencyField& f) { return known.first.*f.value == efficiency.*f.value; });
    };
    const auto found = std::find_if(known_.begin(), known_.end(), is_same);
    if (found != known_.end()) return found->second;
    known_[next_] = {efficiency, predict_ms(run_->prepared, efficiency)};
    const double ms = known_[next_].second;
    next_ = (next_ + 1) % known_.size();
    return ms;
  }

 private:
  const LibraryRun* run_;
  std::array<std::pair<Efficiency, double>, 24> known_{};
  size_t next_ = 0;
};

}  // namespace

Result<std::vector<LibraryRun>> prepare(const RunLibrary& library) {
  std::vector<LibraryRun> runs;
  for (size_t t = 0; t < library.tables.size(); ++t) {
    const PublishedTable& table = library.tables[t];
    WEFT_TRY(std::vector<PreparedRun> prepared, prepare(table.runs, table.cluster));
    for (size_t i = 0; i < prepared.size(); ++i) {
      prepared[i].waits_where_overfull = !library.software.at(table.software).plans_memory();
      runs.push_back({.prepared = std::move(prepared[i]),
                      .table = t,
                      .model = table.models[i],
                      .hardware = table.hardware,
                      .software = table.software,
                      .is_fused = library.software.at(table.software).is_fused(),
                      .has_own_attention = library.software.at(table.software).has(&Efficiency::fused_attention)});
    }
  }
  return runs;
}

Efficiency JointFit::efficiency_of(const LibraryRun& run) const {
  const auto own = hardware.find(run.hardware);
  const Efficiency base = own == hardware.end() ? run.prepared.plan.cluster.efficiency : own->second;
  const auto system = software.find(run.software);
  return system == software.end() ? base : system->second.applied_to(base);
}

JointFit shipped(const RunLibrary& library) {
  return {.software = library.software, .hardware = {}};
}

JointFit fit(const std::vector<LibraryRun>& runs, const std::string& left_out) {
  const std::vector<Parameter> parameters = parameters_of(runs);
  LeastSquares problem;
  for (const Parameter& parameter : parameters) {
    const NumberRange range = range_of(parameter.prior.field);
    problem.start.push_back(std::log(parameter.prior.value));
    problem.low.push_back(std::log(std::max(range.min, 1e-6)));
    problem.high.push_back(std::log(range.max));
    problem.deviation.push_back(std::log(parameter.prior.factor));
  }
  std::vector<CachedRun> known;
  std::vector<const LibraryRun*> used;
  for (const LibraryRun& run : runs) {
    if (run.model == left_out) continue;
    known.emplace_back(run);
    used.push_back(&run);
  }
  problem.num_residuals = used.size();
  problem.residuals = [&](const std::vector<double>& logs, std::vector<double>& out) {
    const JointFit now = fit_at(parameters, logs);
    for (size_t i = 0; i < used.size(); ++i)
      out[i] = std::log(known[i].ms(now) / used[i]->prepared.run.measured_ms) / kRunScatter;
  };
  return fit_at(parameters, solve(problem));
}

std::vector<PredictedRun> predict(const std::vector<LibraryRun>& runs, const JointFit& fit) {
  std::vector<PredictedRun> predicted;
  for (const LibraryRun& run : runs) {
    predicted.push_back(
        {run.prepared.run.name, run.prepared.run.measured_ms, predict_ms(run.prepared, fit.efficiency_of(run))});
  }
  return predicted;
}

std::vector<PredictedRun> leave_models_out(const std::vector<LibraryRun>& runs,
                                           const std::function<void(size_t, size_t)>& progress) {
  std::set<std::string> models;
  for (const LibraryRun& run : runs) models.insert(run.model);
  std::vector<PredictedRun> predicted(runs.size());
  size_t done = 0;
  for (const std::string& model : models) {
    const JointFit others = fit(runs, model);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (runs[i].model != model) continue;
      const PreparedRun& run = runs[i].prepared;
      predicted[i] = {run.run.name, run.run.measured_ms, predict_ms(run, others.efficiency_of(runs[i]))};
    }
    if (progress) progress(++done, models.size());
  }
  return predicted;
}

}  // namespace weft
