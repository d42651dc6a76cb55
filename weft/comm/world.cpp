#include "weft/comm/world.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace weft {
namespace {

Group make_world_group(const std::shared_ptr<WorldBackend>& backend) {
  std::vector<int64_t> ranks(static_cast<size_t>(backend->size()));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return {backend, "world", std::move(ranks)};
}

}  // namespace

World::World(std::shared_ptr<WorldBackend> backend) : backend_(std::move(backend)), all_(make_world_group(backend_)) {}

double World::waited_ms() const {
  return std::chrono::duration<double, std::milli>(backend_->record().waited()).count();
}

Result<Group> World::group(const std::string& name, const std::vector<int64_t>& ranks) {
  const auto refuse = [&](std::string problem) {
    return Error{.source = fmt::format("rank {}", rank()),
                 .field = fmt::format("group '{}'", name),
                 .problem = std::move(problem),
                 .advice = fmt::format("Start as many ranks as the plan's meshes need (this run has {}).", size())};
  };
  std::vector<int64_t> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) return refuse("has no ranks");
  if (sorted.front() < 0 || sorted.back() >= size()) {
    return refuse(fmt::format("needs rank {}, but the world has ranks 0 to {}",
                              sorted.front() < 0 ? sorted.front() : sorted.back(), size() - 1));
  }
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    return refuse(fmt::format("has rank {} twice", *twice));
  }
  if (!std::binary_search(sorted.begin(), sorted.end(), rank())) {
    return refuse(fmt::format("does not have rank {}, which asks for it", rank()));
  }
  return Group(backend_, name, ranks);
}

Result<Group> World::group(const Mesh& mesh, const AxisList& axes) {
  const int64_t largest = *std::max_element(mesh.ranks().begin(), mesh.ranks().end());
  if (largest >= size()) {
    return Error{.source = fmt::format("rank {}", rank()),
                 .problem = fmt::format("the mesh {} needs {} ranks up to rank {}, but the world has {}",
                                        mesh.grid().text(), mesh.num_ranks(), largest, size()),
                 .advice = fmt::format("Start {} ranks.", largest + 1)};
  }
  if (!mesh.contains(rank())) {
    return Error{.source = fmt::format("rank {}", rank()),
                 .problem = fmt::format("is not in the mesh {}, whose group it asks for", mesh.grid().text())};
  }
  return group(mesh.group_name(axes), mesh.group_of(rank(), axes));
}

}  // namespace weft
