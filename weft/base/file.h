#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "weft/base/result.h"

namespace weft {

/// The bytes of a file, at most `max_bytes` of them: a larger one is refused without being read whole, so that a
/// mistaken path to a checkpoint or a device ends in a message and not in swap. Pipes are read like files.
Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes);

}  // namespace weft
