#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "weft/validate/run_library.h"
#include "weft/validate/validation.h"

namespace weft {

/// A run of the library, ready to be predicted.
struct LibraryRun {
  PreparedRun prepared;
  size_t table = 0;
  std::string model;
  std::string hardware;  ///< empty where the cluster's own efficiency stands
  std::string software;
  bool is_fused = false;           ///< that software's operators
  bool has_own_attention = false;  ///< its attention kernels are not those that the hardware's share is of
};
Result<std::vector<LibraryRun>> prepare(const RunLibrary& library);

/// What a fit found: of each hardware the shares that a machine reaches, of each software what its kernels leave of
/// them.
struct JointFit {
  std::map<std::string, Software> software;
  std::map<std::string, Efficiency> hardware;
  /// How a run's cluster performs with its software.
  Efficiency efficiency_of(const LibraryRun& run) const;
};

/// The files' own values.
JointFit shipped(const RunLibrary& library);

/// Hardware and software together, by least squares as in calibrate(). The runs of one model can be left out; nothing
/// is then known of it. What no run depends on stays at its prior: a machine's at the defaults, a system's at the class
/// that it belongs to.
JointFit fit(const std::vector<LibraryRun>& runs, const std::string& left_out = "");

std::vector<PredictedRun> predict(const std::vector<LibraryRun>& runs, const JointFit& fit);

/// Each model's runs, of whatever table, predicted by a fit to all other models. `progress` is told how many are done.
std::vector<PredictedRun> leave_models_out(const std::vector<LibraryRun>& runs,
                                           const std::function<void(size_t done, size_t all)>& progress = {});

}  // namespace weft
