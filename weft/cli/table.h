#pragma once

#include <string>
#include <vector>

namespace weft {

/// Rows of cells, printed in aligned columns: the first to the left, the others to the right.
class Table {
 public:
  /// Control characters in cells are escaped: names come from files.
  void add(std::vector<std::string> cells);
  /// A line of dashes.
  void add_rule() { rows_.emplace_back(); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace weft
