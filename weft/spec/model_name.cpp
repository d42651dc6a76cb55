#include "weft/spec/model_name.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

}  // namespace

std::optional<std::string> find_bad_model_name(std::string_view name) {
  const char* problem = name.starts_with('.')                      ? "begins with a dot"
                        : name.find('/') != std::string_view::npos ? "holds a slash"
                        : !is_printable(name)                      ? "holds a control character"
                                                                   : nullptr;
  if (problem == nullptr) return std::nullopt;
  return fmt::format("is {}, which {}; a name that a folder can have is needed", in_quotes(name), problem);
}

std::string as_model_name(std::string name) {
  name.erase(0, name.rfind('/') + 1);
  name.erase(0, name.find_first_not_of('.'));
  std::replace_if(name.begin(), name.end(), is_control, '_');
  return name.empty() ? "model" : name;
}

}  // namespace weft
