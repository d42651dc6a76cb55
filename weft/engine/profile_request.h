#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/profile/profile.h"
#include "weft/spec/cluster.h"
#include "weft/spec/model.h"

namespace weft {

/// What `weft profile` asks of the machine before it knows what to measure.
struct MachineRequest {
  std::string device = "cpu";
  int64_t ranks = 0;  ///< that run at once; 0: one for each core, or GPU
  std::function<void(const std::string&)> say;
  std::function<void(const std::string&)> show;
};

/// This machine as a cluster of one node. Its links are those that a profile has yet to measure.
struct MachineReport {
  Cluster cluster;
  std::string software;           ///< "LibTorch 2.11.0"
  double copy_bytes_per_ms = 0;   ///< how fast a rank copies its device's memory
  double reserved_bytes = 0;      ///< of a GPU, before anything is made
  std::vector<std::string> busy;  ///< what else uses the machine, a sentence each
};

/// What it asks to be measured.
struct ProfileRequest {
  Model model;
  std::string device = "cpu";
  int64_t ranks = 1;                    ///< whose links are measured; of processes, those that there are
  Profile profile;                      ///< with device, model and precision, and what was measured before
  std::vector<BlockShape> shapes;       ///< that it lacks, the most important first; of a user's own program, none
  std::vector<OperatorCase> operators;  ///< of a user's own program, what it lacks of these
  double copy_bytes_per_ms = 1e9;       ///< MachineReport's
  double time_limit_s = 180;
  const std::atomic<bool>* stop = nullptr;   ///< once true, what was measured is handed back
  std::function<void(const Profile&)> keep;  ///< called now and then with what is there
  /// Shows which block is under way, and how many seconds are left, where that is known.
  std::function<void(const std::string& what, std::optional<double> left_s)> show_block;
  std::function<void(const std::string&)> say;
  std::function<void(const std::string&)> show;
};

struct ProfileReport {
  Profile profile;
  bool is_stopped = false;
  bool is_out_of_time = false;
  int64_t num_left = 0;                 ///< shapes that were not measured
  int64_t num_outliers = 0;             ///< runs that something else held up
  int64_t num_runs = 0;                 ///< of blocks
  std::vector<std::string> impossible;  ///< shapes that this model, or training, does not have, a sentence each
};

}  // namespace weft
