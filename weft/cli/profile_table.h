#pragma once

#include <optional>
#include <string>

#include "weft/base/result.h"

namespace weft {

struct ProfileTableOptions {
  std::string table;
  std::string model;
  std::string device_name;  ///< as in the cluster file
  std::optional<std::string> precision;
  std::string out;
};

/// Makes a profile of a user's own table of measurements; says what it holds, and which blocks of the model it lacks.
Result<std::string> profile_from_table(const ProfileTableOptions& options);

}  // namespace weft
