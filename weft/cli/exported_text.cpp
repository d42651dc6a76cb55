#include "weft/cli/exported_text.h"

#include <fmt/format.h>

namespace weft {

std::string shown(const std::vector<ExportedFile>& files) {
  if (files.size() == 1) return files.front().text;
  std::string text;
  for (const ExportedFile& file : files) text += fmt::format("# {}\n{}", file.name, file.text);
  return text;
}

}  // namespace weft
