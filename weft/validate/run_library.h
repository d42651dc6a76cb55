#pragma once

#include <map>
#include <string>
#include <vector>

#include "weft/spec/scenario.h"
#include "weft/validate/training_run.h"

namespace weft {

/// What a system's kernels and host leave of a machine's rates: fields of Efficiency, in place of the cluster's.
class Software {
 public:
  /// Only fields that belong to software may be given, whether its operators are `fused`, and whether it
  /// `plans_memory`.
  static Result<Software> read(const Document& document);

  Efficiency applied_to(Efficiency efficiency) const;
  void set(double Efficiency::*field, double value);
  bool has(double Efficiency::*field) const;
  bool is_fused() const { return is_fused_; }
  bool plans_memory() const { return plans_memory_; }

 private:
  bool is_fused_ = false;      ///< operators are compiled or written into few kernels
  bool plans_memory_ = false;  ///< before a step, so that nothing waits for memory in it
  std::vector<std::pair<double Efficiency::*, double>> values_;
};

/// The fields of Efficiency that belong to software, not to a machine.
std::span<const EfficiencyField> software_fields();

/// A table of runs of one system on one cluster that somebody published.
struct PublishedTable {
  std::string source;
  std::string url;
  std::string not_alike;  ///< what the plans that are priced do not have of the runs
  Cluster cluster;
  std::string hardware;  ///< tables of one hardware share what is fitted of it; empty where the cluster's file has it
  std::string software;
  std::vector<TrainingRun> runs;
  std::vector<std::string> models;  ///< by run
};

/// All of them, and the systems that they are of.
struct RunLibrary {
  std::vector<PublishedTable> tables;
  std::map<std::string, Software> software;
};

/// Reads scenarios/validation/software.yaml and every table in scenarios/validation/runs, in the order of their names.
Result<RunLibrary> read_run_library(const Scenarios& scenarios);

}  // namespace weft
