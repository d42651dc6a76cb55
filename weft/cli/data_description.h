#pragma once

#include <optional>
#include <string>

#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft {

/// What `weft describe --data` was asked for.
struct DataRequest {
  std::string data;
  std::string model;
  std::optional<std::string> out;
  int64_t global_batch = 0;
  bool json = false;
};

/// The distributions of a data set with a model's tokenizer, as text or JSON; with `out` also written as a workload.
Result<std::string> describe_data(const DataRequest& request);

}  // namespace weft
