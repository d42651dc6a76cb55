#pragma once

#include <filesystem>
#include <string>

#include "weft/base/document.h"
#include "weft/spec/model.h"

namespace weft {

/// Reads a Hugging Face config.json, in the old flat form or the new nested one. Fields that Weft does not need are
/// left alone: the file belongs to another program.
Result<Model> read_model(const Document& config, std::string name);

/// `path` is the file, or a folder that holds a config.json.
Result<Model> read_model_file(const std::filesystem::path& path);

}  // namespace weft
