#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/exchange/export.h"
#include "weft/exchange/imported_keys.h"

namespace weft {

/// Another system's files, and what they do not say.
struct ImportRequest {
  Target system = Target::kMegatron;
  std::vector<SettingsFile> files;
  std::string arguments;     ///< a line of further ones, behind those of the files
  ShellVariables variables;  ///< of scripts
  std::optional<Model> model;
  std::vector<Model> known_models;  ///< looked through where no model is given
  Cluster cluster;
  std::optional<int64_t> nodes, devices_per_node;
  std::optional<Workload> workload;
  std::vector<Workload> known_workloads;  ///< for models with encoders: how large images and clips are
  std::string version;                    ///< of the system, whose defaults are taken; empty: the newest known
  std::optional<int64_t> steps;           ///< where the files count epochs
  bool is_lenient = false;                ///< go on with settings that are not understood
};

/// The run that the files describe.
struct ImportedRun {
  Plan plan;
  Json config;            ///< the training configuration; null where the files do not say enough
  std::string no_config;  ///< why it is null
  std::vector<ImportedKey> keys;
  std::vector<std::string> notes;  ///< what the system accepts without a word
  std::vector<std::string> file_names;
  std::string version;
  bool searches = false;  ///< the files ask for a search: the plan only has model, cluster and workload
};

/// The systems that are read: those that plans are exported to, but for torchtitan.
std::vector<std::string> source_names();
Result<Target> parse_source(const std::string& name);
/// The releases whose defaults are known, the newest last.
std::vector<std::string> known_versions(Target system);

/// Reads files as that system would, without running anything. Settings of the wrong type, that contradict each other
/// or the cluster, or that are not understood (unless lenient) are an error that names all of them.
Result<ImportedRun> import_settings(const ImportRequest& request);

}  // namespace weft
