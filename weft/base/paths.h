#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace weft {

// The standard library's own throw where a folder cannot be read, or where links lead in a circle.

/// What lies in a folder, by name. Where it cannot be read to its end, `problem` says why.
std::vector<std::filesystem::path> paths_in(const std::filesystem::path& folder, std::error_code& problem);

/// The whole path without links; with them where they lead nowhere.
std::filesystem::path without_links(const std::filesystem::path& path);

/// The whole path, in short form; as it was given where the working directory is gone.
std::filesystem::path whole_path(const std::filesystem::path& path);

}  // namespace weft
