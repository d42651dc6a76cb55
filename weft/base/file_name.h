#pragma once

#include <filesystem>
#include <string>

namespace weft {

/// What a document is called that gives itself no name: its file without the ending, or its folder. One line of UTF-8
/// whatever the file system allows: what is no character becomes U+FFFD, and control characters are escaped.
std::string name_of_file(const std::filesystem::path& path);

}  // namespace weft
