#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/base/document.h"
#include "weft/plan/plan.h"
#include "weft/schedule/generators.h"

namespace weft {

/// What one setting may be: everything that is possible, or what was pinned.
struct Allowed {
  std::vector<int64_t> values;  ///< empty: no list
  int64_t at_least = 1;
  int64_t at_most = INT64_MAX;

  bool contains(int64_t value) const;
};

/// How encoders may be placed.
struct EncoderSpace {
  bool allows_inline = true;
  bool allows_colocated = true;
  bool allows_before = true;
  bool allows_fill = true;
  Allowed tp;
  Allowed mbs_scale{.values = {1, 2, 4}};
};

/// The plans that a search considers, at a fixed global batch.
struct PlanSpace {
  Allowed tp;  ///< divides the devices of a node
  Allowed cp{.values = {1, 2, 4, 8}};
  Allowed ep;  ///< divides the experts and dp·cp
  Allowed pp;  ///< at most the number of layers
  Allowed dp;
  Allowed vpp{.values = {1, 2, 3, 4}};  ///< beyond 1 with interleaved_1f1b
  Allowed mbs{.values = {1, 2, 4, 8}};
  Allowed zero{.values = {0, 1, 2, 3}, .at_least = 0};
  std::optional<bool> sequence_parallel;  ///< both where tp > 1
  std::vector<ScheduleName> schedules = {ScheduleName::k1f1b, ScheduleName::kInterleaved1f1b, ScheduleName::kZbH1};
  EncoderSpace encoders;
};

/// A search file: {"llm": {"tp": 8, "pp": [1, 2, 4], "zero": {"at_most": 1}, ...}, "schedule": ["1f1b"], "mbs": 1,
/// "encoders": {"placement": ["inline"], "form": ["before"], "tp": 1, "mbs_scale": [1, 2]}}. A setting is a number, a
/// list, or an object with at_least and at_most. Unknown keys are rejected.
Result<PlanSpace> read_plan_space(const Document& document);

}  // namespace weft
