#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft {

/// A parsed JSON or YAML text: its tree, and the name that errors give it.
struct Document {
  std::string source;
  Json root;
};

/// What no honest specification file exceeds. Beyond it a text is refused instead of exhausting stack or memory.
struct DocumentLimits {
  size_t max_bytes = 4u << 20;
  size_t max_depth = 64;
  size_t max_values = 500'000;
};

enum class Syntax { kJson, kYaml };

/// JSON for ".json" and for texts that open with a brace or bracket, else YAML.
Syntax syntax_of(const std::filesystem::path& path, std::string_view text);

/// Parses one document. Duplicate keys, several documents in one text, and numbers out of range are errors.
Result<Document> parse_document(std::string_view text, std::string source, Syntax syntax,
                                const DocumentLimits& limits = {});

Result<Document> read_document(const std::filesystem::path& path, const DocumentLimits& limits = {});

}  // namespace weft
