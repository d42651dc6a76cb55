#pragma once

#include <filesystem>

namespace weft {

/// The root of the source tree that the tests were built from.
std::filesystem::path source_tree();

/// The build folder, where the program and its libraries lie.
std::filesystem::path build_tree();

}  // namespace weft
