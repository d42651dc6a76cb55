#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/spec/cluster.h"
#include "weft/spec/model.h"
#include "weft/spec/workload.h"

namespace weft {

/// A folder of named models, clusters and workloads. Wherever a file is expected, such a name will do.
class Scenarios {
 public:
  explicit Scenarios(std::filesystem::path root) : root_(std::move(root)) {}

  /// `given` is a path to a file or folder, or a name in models/.
  Result<Model> model(const std::string& given) const;
  /// With other numbers of nodes and of their devices, where options give them.
  Result<Cluster> cluster(const std::string& given, std::optional<int64_t> nodes = std::nullopt,
                          std::optional<int64_t> devices_per_node = std::nullopt) const;
  Result<Workload> workload(const std::string& given) const;

  const std::filesystem::path& root() const { return root_; }

  /// The names in one of the folders "models", "clusters" and "workloads", sorted.
  std::vector<std::string> names(const std::string& folder) const;

 private:
  /// A sentence, after a space, about what was probably meant.
  std::string hint_for(const std::string& folder, const std::string& given) const;
  Result<std::filesystem::path> locate(const std::string& folder, const std::string& given) const;

  std::filesystem::path root_;
};

}  // namespace weft
