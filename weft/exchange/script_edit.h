#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// Changes of a user's script, or of a line of arguments, that leave the rest of it as it is. Keys are without dashes in
// front, and may be written with underscores there. Nothing is given back where the text has no place for a change.
// Whoever uses the result reads it again.

/// With another value in a line where one was written: behind the key, or in an assignment.
std::optional<std::string> with_value_in_line(const std::string& text, uint32_t line, const std::string& key,
                                              const std::string& before, const std::string& after);

/// With another value behind the last `--key`, whatever stood there: a number, a variable or arithmetic.
std::optional<std::string> with_argument(const std::string& text, const std::string& key, const std::string& value);

/// With one more argument, in front of the last `--beside`. An empty value is a flag.
std::optional<std::string> with_new_argument(const std::string& text, const std::string& beside, const std::string& key,
                                             const std::string& value);

/// Without the last `--key` and its value, if it has one.
std::optional<std::string> without_argument(const std::string& text, const std::string& key, bool has_value);

}  // namespace weft
