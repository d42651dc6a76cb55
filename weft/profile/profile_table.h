#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "weft/profile/profile.h"

namespace weft {

/// Measurements from a table of the user's: comma-separated values whose first line names columns, by the fields of a
/// profile. A row is a block's (it has a `block`), a link's (a `link`) or an update's (`elements`); cells of the other
/// kinds stay empty. Only the measurements are set; device, model and precision are the caller's to say.
Result<Profile> parse_profile_table(std::string_view text, const std::string& source);
Result<Profile> read_profile_table(const std::filesystem::path& path);

}  // namespace weft
