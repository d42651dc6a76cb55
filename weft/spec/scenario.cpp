#include "weft/spec/scenario.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

constexpr const char* kExtensions[] = {".json", ".yaml", ".yml"};

bool is_scenario_file(const std::filesystem::path& path) {
  return std::any_of(std::begin(kExtensions), std::end(kExtensions),
                     [&](const char* e) { return path.extension() == e; });
}

}  // namespace

std::vector<std::string> Scenarios::names(const std::string& folder) const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root_ / folder, ignored)) {
    if (is_scenario_file(entry.path())) names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::filesystem::path> Scenarios::locate(const std::string& folder, const std::string& given) const {
  std::error_code ignored;
  const auto kind_of_file = std::filesystem::status(given, ignored).type();
  // What is there but cannot be looked at is for the reader to report.
  const bool is_there = kind_of_file != std::filesystem::file_type::not_found;
  if (!given.empty() && is_there) return std::filesystem::path(given);
  const bool is_bare_name = !given.empty() && given.find('/') == std::string::npos;
  if (is_bare_name) {
    for (const char* extension : kExtensions) {
      const std::filesystem::path path = root_ / folder / (given + extension);
      if (std::filesystem::exists(path, ignored)) return path;
    }
  }
  const std::vector<std::string> known = names(folder);
  const std::string kind = folder.substr(0, folder.size() - 1);
  if (known.empty()) {
    return Error{.problem = fmt::format("{} is not a file, and there are no named {} in {}", in_quotes(given), folder,
                                        (root_ / folder).string()),
                 .advice = "Give a path, or set WEFT_SCENARIOS to the scenarios folder."};
  }
  return Error{.problem = fmt::format("{} is neither a file nor the name of a {}; named are {}", in_quotes(given), kind,
                                      joined_or(known)),
               .advice = "Give a path or one of these names." + did_you_mean(given, known)};
}

Result<Model> Scenarios::model(const std::string& given) const {
  WEFT_TRY(const std::filesystem::path path, locate("models", given));
  return read_model_file(path);
}

Result<Cluster> Scenarios::cluster(const std::string& given, std::optional<int64_t> nodes) const {
  WEFT_TRY(const std::filesystem::path path, locate("clusters", given));
  WEFT_TRY(Cluster cluster, read_cluster_file(path));
  if (nodes) cluster.nodes = *nodes;
  return cluster;
}

Result<Workload> Scenarios::workload(const std::string& given) const {
  WEFT_TRY(const std::filesystem::path path, locate("workloads", given));
  return read_workload_file(path);
}

}  // namespace weft
