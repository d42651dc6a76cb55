#include "weft/base/file_name.h"

#include <system_error>

#include "weft/base/paths.h"
#include "weft/base/text.h"
#include "weft/base/utf8.h"

namespace weft {

namespace {

std::string one_line(const std::filesystem::path& name) {
  // Escaped, the longest name of most file systems (255 bytes) has four times as many.
  constexpr size_t kLongestName = 1020;
  return printable(with_replacements(name.string()), kLongestName);
}

}  // namespace

std::string name_of_file(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_directory(path, failed)) return one_line(path.stem());
  std::filesystem::path named = whole_path(path);
  if (!named.has_filename()) named = named.parent_path();
  return one_line(named.filename());
}

}  // namespace weft
