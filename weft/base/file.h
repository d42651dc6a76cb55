#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "weft/base/result.h"

namespace weft {

/// The bytes of a file, at most `max_bytes` of them: a larger one is refused without being read whole, so that a
/// mistaken path to a checkpoint or a device ends in a message and not in swap. Pipes are read like files;
/// one that nobody writes to yet is waited for, as other programs do: people give pipes by name and as <(...).
Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes);

/// Writes a file whole or not at all: into a new file beside it, which then takes its name. Returns what went wrong.
std::optional<Error> write_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace weft
