#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/spec/cluster.h"
#include "weft/spec/model.h"
#include "weft/spec/sample_load.h"
#include "weft/spec/workload.h"

namespace weft {

/// What a workload asks of a model, per average sample.
struct LoadDescription {
  SampleLoad sample;
  double training_step_flops = 0;
};

/// Everything that `weft describe` was asked about.
struct Description {
  std::optional<Model> model;
  std::optional<Workload> workload;
  std::optional<Cluster> cluster;
  std::optional<LoadDescription> load;
  std::string note;
};

Result<LoadDescription> describe_load(const Model& model, const Workload& workload);

std::string to_text(const Description& description);
Json to_json(const Description& description);

}  // namespace weft
