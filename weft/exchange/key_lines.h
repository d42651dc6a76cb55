#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

/// The lines of the keys of a YAML or JSON text, which has to outlive it. The text is read once, however many keys are
/// asked for. Keys are looked for one below the other: that is enough for files that people write, and what comes of it
/// is checked by reading them again.
class KeyLines {
 public:
  explicit KeyLines(std::string_view text);

  /// The line of a key by its path, of a key that stands twice the last one; 0 where it is not found.
  uint32_t line_of(const std::vector<std::string>& path) const;

 private:
  struct Line {
    uint32_t number = 0;
    size_t indent = 0;
    uint32_t block_end = 0;  ///< the first line that is no longer below this one
  };

  std::map<std::string_view, std::vector<Line>> lines_;  ///< by key, in the order of the text
  /// The same by key and indent, as numbers.
  std::map<std::pair<std::string_view, size_t>, std::vector<uint32_t>> aligned_;
};

}  // namespace weft
