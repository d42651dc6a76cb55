#include "weft/spec/scenario.h"

#include <algorithm>
#include <cctype>
#include <span>

#include <fmt/format.h>

#include "weft/base/paths.h"
#include "weft/base/text.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

constexpr const char* kExtensions[] = {".json", ".yaml", ".yml"};

bool is_scenario_file(const std::filesystem::path& path) {
  return std::any_of(std::begin(kExtensions), std::end(kExtensions),
                     [&](const char* e) { return path.extension() == e; });
}

/// Letters and digits alone, small: 'Qwen/Qwen2.5-VL-7B' as 'qwenqwen25vl7b'.
std::string letters_of(std::string_view text) {
  std::string letters;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return letters;
}

/// The name that a model has here which a hub calls 'Qwen/Qwen2.5-VL-7B-Instruct'.
std::optional<std::string> model_of_hub_name(const std::string& given, std::span<const std::string> known) {
  std::string letters = letters_of(given.substr(given.rfind('/') + 1));
  if (letters.starts_with("meta")) letters.erase(0, 4);
  for (const char* ending : {"instruct", "chat", "base", "hf"}) {
    if (letters.ends_with(ending)) letters.erase(letters.size() - std::string_view(ending).size());
  }
  const auto found = std::find_if(known.begin(), known.end(), [&](const auto& k) { return letters_of(k) == letters; });
  return found == known.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

std::string Scenarios::hint_for(const std::string& folder, const std::string& given) const {
  const std::vector<std::string> known = names(folder);
  if (folder == "models") {
    if (const auto name = model_of_hub_name(given, known))
      return fmt::format(" That model is here as {}.", in_quotes(*name));
    const bool is_hub_name = std::count(given.begin(), given.end(), '/') == 1 && given.front() != '/' &&
                             given.front() != '.' && given.back() != '/';
    if (is_hub_name)
      return " A model of the Hugging Face hub is read from its config.json: download that and give its path.";
  }
  if (const std::string guess = did_you_mean(given, known); !guess.empty()) return guess;
  const std::string letters = letters_of(given);
  constexpr size_t kFewestLetters = 3;
  if (letters.size() < kFewestLetters) return "";
  std::vector<std::string> holding;
  for (const std::string& name : known) {
    bool holds = letters_of(name).find(letters) != std::string::npos;
    if (folder == "clusters" && !holds) {
      const Result<std::filesystem::path> path = locate(folder, name);
      const Result<Cluster> cluster = path ? read_cluster_file(*path) : Result<Cluster>(path.error());
      holds = cluster.ok() && letters_of(cluster->device.name).find(letters) != std::string::npos;
    }
    if (holds) holding.push_back(name);
  }
  if (holding.empty()) return "";
  return folder == "clusters" ? fmt::format(" Such devices are in {}.", joined_or(holding))
                              : fmt::format(" Did you mean {}?", joined_or(holding));
}

std::vector<std::string> Scenarios::names(const std::string& folder) const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const std::filesystem::path& path : paths_in(root_ / folder, ignored)) {
    if (is_scenario_file(path)) names.push_back(path.stem().string());
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
               .advice = "Give a path or one of these names." + hint_for(folder, given)};
}

Result<Model> Scenarios::model(const std::string& given) const {
  WEFT_TRY(const std::filesystem::path path, locate("models", given));
  return read_model_file(path);
}

Result<Cluster> Scenarios::cluster(const std::string& given, std::optional<int64_t> nodes,
                                   std::optional<int64_t> devices_per_node) const {
  WEFT_TRY(const std::filesystem::path path, locate("clusters", given));
  WEFT_TRY(Cluster cluster, read_cluster_file(path));
  if (nodes) cluster.nodes = *nodes;
  if (devices_per_node) set_devices_per_node(*devices_per_node, cluster);
  if (const auto problem = find_too_many_devices(cluster)) {
    return Error{.source = nodes ? "--nodes" : "--devices-per-node",
                 .problem = fmt::format("the cluster {}", *problem),
                 .advice = "Give fewer nodes, or smaller ones."};
  }
  return cluster;
}

Result<Workload> Scenarios::workload(const std::string& given) const {
  WEFT_TRY(const std::filesystem::path path, locate("workloads", given));
  return read_workload_file(path);
}

}  // namespace weft
