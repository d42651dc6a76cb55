#pragma once

#include <string>
#include <vector>

#include "weft/plan/plan.h"

namespace weft {

/// One field in which two plans differ; a side is empty where the field is missing.
struct Difference {
  std::string field;
  std::string before;
  std::string after;

  bool operator==(const Difference&) const = default;
};

/// All fields in which two plans differ, in the order of the document. Model, cluster and workload are compared as
/// wholes.
std::vector<Difference> diff_plans(const Plan& before, const Plan& after);

}  // namespace weft
