#pragma once

#include <optional>
#include <string>

#include "weft/base/result.h"

namespace weft {

/// What `weft profile --update RUN --out FILE [--from-profile P]` is asked.
struct ProfileUpdateOptions {
  std::string run;
  std::string out;
  std::optional<std::string> from_profile;
  bool json = false;
};

/// Writes a profile that predicts a run's actions as they were. Text or JSON, for standard output.
Result<std::string> update_profile(const ProfileUpdateOptions& options);

}  // namespace weft
