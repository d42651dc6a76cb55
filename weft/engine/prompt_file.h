#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/models/inputs.h"

namespace weft {

/// One entry of a prompt file: a prompt, or several where a tensor file has `lengths`.
struct PromptEntry {
  RawInputs raw;
  std::optional<int64_t> max_new_tokens;
  std::string place;  ///< "prompts[2]" in a list; else empty
};

/// Reads a prompt file: safetensors as a Hugging Face processor's tensors were saved, or JSON with token ids, with the
/// path of such tensors, or with a list of both.
Result<std::vector<PromptEntry>> read_prompt_file(const std::filesystem::path& path);

}  // namespace weft
