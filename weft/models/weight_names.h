#pragma once

#include <string>
#include <string_view>

namespace weft {

/// The name that parameters have, of a weight as a file names it: some files put the modules of a multimodal model one
/// level deeper.
std::string parameter_name(std::string_view name_in_file);

/// Weights that files carry and a model of this prefix has no use for: tables that are computed, the other parts of
/// Qwen2.5-Omni, and a head that is tied to the embedding.
bool is_ignored_weight(std::string_view name, std::string_view prefix, bool has_head);

}  // namespace weft
