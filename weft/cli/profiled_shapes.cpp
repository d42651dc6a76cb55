#include "weft/cli/profiled_shapes.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/document.h"
#include "weft/cli/installation.h"
#include "weft/search/space_shapes.h"
#include "weft/simulate/wanted_shapes.h"

namespace weft {
namespace {

Error missing(const char* flag) {
  return {.source = "profile",
          .field = flag,
          .problem = "is missing",
          .advice = "Give --model and --workload, or --for with a plan, which has both."};
}

void add_shapes(const std::vector<BlockShape>& more, std::vector<BlockShape>& shapes) {
  for (const BlockShape& shape : more)
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
}

/// Those of the candidates of a space that promise most.
Result<std::vector<BlockShape>> shapes_of_search(const ProfiledProblem& problem, Precision precision) {
  Workload workload = problem.workload;
  workload.precision = precision;
  return wanted_shapes(problem.model, *problem.cluster, workload, problem.space);
}

}  // namespace

Result<ProfiledProblem> read_profiled_problem(const ProfiledOptions& options) {
  const Scenarios scenarios = find_scenarios();
  ProfiledProblem problem{.plan = options.plan};
  if (options.plan != nullptr) {
    problem.model = options.plan->model;
    problem.workload = options.plan->workload;
    problem.cluster = options.plan->cluster;
    if (options.space) {
      return Error{
          .source = "--space",
          .problem = "is given together with --for",
          .advice = "Leave one of them out: a plan's own blocks are measured, or those that a search asks for."};
    }
    // The plan has its model, workload and cluster with it; what is said again must not be another.
    if (options.model) {
      WEFT_TRY(const Model model, scenarios.model(*options.model));
      if (hash_of(model.config) != hash_of(problem.model.config)) {
        return Error{
            .source = "--model",
            .problem = fmt::format("is {}, but the plan of --for is of {}", *options.model, problem.model.name),
            .advice = "Leave it out: the plan has its model with it."};
      }
    }
    if (options.workload) {
      WEFT_TRY(const Workload workload, scenarios.workload(*options.workload));
      if (workload.precision != problem.workload.precision) {
        return Error{.source = "--workload",
                     .problem = fmt::format("is in {}, but the plan of --for in {}", name_of(workload.precision),
                                            name_of(problem.workload.precision)),
                     .advice = "Leave it out: the plan has its workload with it."};
      }
    }
    if (options.cluster) {
      WEFT_TRY(const Cluster cluster, scenarios.cluster(*options.cluster));
      if (cluster.device.name != problem.cluster->device.name) {
        return Error{.source = "--cluster",
                     .problem = fmt::format("has devices '{}', but the plan of --for is for '{}'", cluster.device.name,
                                            problem.cluster->device.name),
                     .advice = "Leave it out: the plan has its cluster with it."};
      }
    }
    return problem;
  }
  if (!options.model) return missing("--model");
  if (!options.workload) return missing("--workload");
  WEFT_TRY(problem.model, scenarios.model(*options.model));
  WEFT_TRY(problem.workload, scenarios.workload(*options.workload));
  if (options.cluster) {
    WEFT_TRY(problem.cluster, scenarios.cluster(*options.cluster));
  }
  if (options.space) {
    WEFT_TRY(const Document document, read_document(*options.space));
    WEFT_TRY(problem.space, read_plan_space(document));
    if (auto error = find_foreign_module(document, problem.model)) return *std::move(error);
  }
  return problem;
}

Result<std::vector<BlockShape>> shapes_to_profile(const ProfiledProblem& problem, Precision precision,
                                                  int64_t most_ranks) {
  WEFT_TRY(std::vector<BlockShape> wanted,
           problem.plan != nullptr ? wanted_shapes(*problem.plan) : shapes_of_search(problem, precision));
  if (wanted.empty()) {
    return Error{.source = "profile",
                 .problem = fmt::format("no plan of this space is for the {} of {}, so that it asks for no blocks",
                                        counted(problem.cluster->num_devices(), "device"), problem.cluster->name),
                 .advice = "Give a --space whose degrees multiply to them, or another --cluster."};
  }
  std::vector<BlockShape> shapes;
  for (BlockShape& shape : wanted) shape.busy_ranks = std::min(shape.busy_ranks, most_ranks);
  add_shapes(wanted, shapes);
  return shapes;
}

}  // namespace weft
