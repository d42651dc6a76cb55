#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/utf8.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_functions.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, 19> kTextMethods = {
    "strip",      "lstrip", "rstrip",       "split",        "rsplit",    "startswith", "endswith",
    "upper",      "lower",  "title",        "replace",      "find",      "rfind",      "count",
    "capitalize", "join",   "removeprefix", "removesuffix", "splitlines"};
constexpr std::array<std::string_view, 4> kDictMethods = {"items", "keys", "values", "get"};
constexpr std::array<std::string_view, 2> kListMethods = {"index", "count"};

const std::string& text_argument(const TemplateArguments& arguments, size_t place, std::string_view name,
                                 const std::string& method) {
  const TemplateValue* value = arguments.find(place, name);
  const auto* text = value != nullptr ? value->as<std::string>() : nullptr;
  if (text == nullptr) throw TemplateFault(fmt::format("calls '{}' without a text", method));
  return *text;
}

int64_t integer_argument(const TemplateArguments& arguments, size_t place, std::string_view name, int64_t fallback) {
  const TemplateValue* value = arguments.find(place, name);
  const auto* number = value != nullptr ? value->as<int64_t>() : nullptr;
  return number != nullptr ? *number : fallback;
}

TemplateValue parts_list(std::vector<TemplateValue> items) {
  return TemplateValue::List{.items = std::move(items)};
}

/// Between blanks, as Python's split without a separator.
std::vector<TemplateValue> split_at_blanks(const std::string& text, int64_t most, bool from_right) {
  std::vector<TemplateValue> parts;
  std::string rest = stripped(text, "", true, true);
  const auto is_blank_at = [](const std::string& s, size_t i) {
    const Utf8Character c = utf8_at(s, i);
    return stripped(std::string_view(s).substr(i, c.length), "", true, false).empty();
  };
  while (!rest.empty() && most != 0) {
    if (!from_right) {
      size_t i = 0;
      while (i < rest.size() && !is_blank_at(rest, i)) i += utf8_at(rest, i).length;
      parts.emplace_back(rest.substr(0, i));
      rest = stripped(rest.substr(i), "", true, false);
    } else {
      size_t i = rest.size();
      while (i > 0 && !is_blank_at(rest, utf8_before(rest, i))) i = utf8_before(rest, i);
      parts.insert(parts.begin(), TemplateValue(rest.substr(i)));
      rest = stripped(rest.substr(0, i), "", false, true);
    }
    if (most > 0) --most;
  }
  if (!rest.empty()) parts.insert(from_right ? parts.begin() : parts.end(), TemplateValue(rest));
  return parts;
}

TemplateValue split(const std::string& text, const TemplateArguments& arguments, const std::string& method) {
  const bool from_right = method == "rsplit";
  int64_t most = integer_argument(arguments, 1, "maxsplit", -1);
  const TemplateValue* given = arguments.find(0, "sep");
  if (given == nullptr || given->is_none()) return parts_list(split_at_blanks(text, most, from_right));
  const std::string& separator = text_argument(arguments, 0, "sep", method);
  if (separator.empty()) throw TemplateFault(fmt::format("calls '{}' with an empty separator", method));
  std::vector<TemplateValue> parts;
  std::string_view rest = text;
  while (most != 0) {
    const size_t at = from_right ? rest.rfind(separator) : rest.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      parts.emplace_back(std::string(rest.substr(at + separator.size())));
      rest = rest.substr(0, at);
    } else {
      parts.emplace_back(std::string(rest.substr(0, at)));
      rest = rest.substr(at + separator.size());
    }
    if (most > 0) --most;
  }
  parts.emplace_back(std::string(rest));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts_list(std::move(parts));
}

/// Cases of letters beyond ASCII are not known here.
TemplateValue in_case(const std::string& text, const std::string& method) {
  std::string changed = text;
  bool begins_word = true;
  for (char& c : changed) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) throw TemplateFault(fmt::format("calls '{}' on a text with letters beyond ASCII", method));
    const bool is_upper = method == "upper" || (method != "lower" && begins_word);
    c = static_cast<char>(is_upper ? std::toupper(byte) : std::tolower(byte));
    begins_word = method == "title" ? std::isalpha(byte) == 0 : false;
  }
  return changed;
}

bool starts_or_ends(const std::string& text, const TemplateArguments& arguments, const std::string& method) {
  const TemplateValue* given = arguments.find(0, "prefix");
  const auto fits = [&](const TemplateValue& value) {
    const auto* part = value.as<std::string>();
    if (part == nullptr) throw TemplateFault(fmt::format("calls '{}' without a text", method));
    return method == "startswith" ? text.starts_with(*part) : text.ends_with(*part);
  };
  if (given != nullptr && given->list() != nullptr && given->list()->is_tuple)
    return std::any_of(given->list()->items.begin(), given->list()->items.end(), fits);
  return fits(given != nullptr ? *given : TemplateValue());
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t most) {
  if (from.empty()) throw TemplateFault("replaces an empty text, which is not known");
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string::npos && most != 0; at = text.find(from, done)) {
    result.append(text, done, at - done);
    result += to;
    done = at + from.size();
    if (most > 0) --most;
  }
  return result.append(text, done);
}

TemplateValue split_lines(const std::string& text) {
  std::vector<TemplateValue> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of("\n\r", begin), text.size());
    lines.emplace_back(text.substr(begin, end - begin));
    begin = end + (text.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return parts_list(std::move(lines));
}

int64_t count_in(const std::string& text, const std::string& part) {
  if (part.empty()) return static_cast<int64_t>(characters_of(text).size()) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

TemplateValue call_text_method(const std::string& text, const std::string& name, const TemplateArguments& arguments) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const TemplateValue* given = arguments.find(0, "chars");
    const bool has_characters = given != nullptr && !given->is_none();
    return stripped(text, has_characters ? text_argument(arguments, 0, "chars", name) : "", name != "rstrip",
                    name != "lstrip");
  }
  if (name == "split" || name == "rsplit") return split(text, arguments, name);
  if (name == "startswith" || name == "endswith") return starts_or_ends(text, arguments, name);
  if (name == "upper" || name == "lower" || name == "title" || name == "capitalize") return in_case(text, name);
  if (name == "replace") {
    return replaced(text, text_argument(arguments, 0, "old", name), text_argument(arguments, 1, "new", name),
                    integer_argument(arguments, 2, "count", -1));
  }
  if (name == "splitlines") return split_lines(text);
  if (name == "join") {
    std::string joined;
    const TemplateValue* items = arguments.find(0, "iterable");
    size_t count = 0;
    for (const TemplateValue& item : template_items(items != nullptr ? *items : TemplateValue())) {
      const auto* part = item.as<std::string>();
      if (part == nullptr) throw TemplateFault(fmt::format("joins {} to a text", item.kind()));
      joined += (count++ > 0 ? text : "") + *part;
    }
    return joined;
  }
  const std::string& part = text_argument(arguments, 0, "sub", name);
  if (name == "count") return count_in(text, part);
  if (name == "removeprefix") return text.starts_with(part) ? text.substr(part.size()) : text;
  if (name == "removesuffix") return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
  const size_t at = name == "find" ? text.find(part) : text.rfind(part);
  if (at == std::string::npos) return int64_t{-1};
  return static_cast<int64_t>(characters_of(std::string_view(text).substr(0, at)).size());
}

TemplateValue call_dict_method(const TemplateValue::Dict& dict, const std::string& name,
                               const TemplateArguments& arguments) {
  if (name == "get") {
    const TemplateValue* found = dict.find(text_argument(arguments, 0, "key", name));
    const TemplateValue* fallback = arguments.find(1, "default");
    return found != nullptr ? *found : fallback != nullptr ? *fallback : TemplateValue();
  }
  std::vector<TemplateValue> items;
  for (const auto& [key, value] : dict.items) {
    if (name == "items") {
      items.push_back(TemplateValue::List{.items = {TemplateValue(key), value}, .is_tuple = true});
    } else {
      items.push_back(name == "keys" ? TemplateValue(key) : value);
    }
  }
  return parts_list(std::move(items));
}

template <size_t N>
bool has(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool has_template_method(const TemplateValue& self, const std::string& name) {
  if (self.as<std::string>() != nullptr) return has(kTextMethods, name);
  if (self.dict() != nullptr) return !self.dict()->is_namespace && has(kDictMethods, name);
  return self.list() != nullptr && has(kListMethods, name);
}

TemplateValue call_template_method(const TemplateValue& self, const std::string& name,
                                   const TemplateArguments& arguments) {
  if (const auto* text = self.as<std::string>()) return call_text_method(*text, name, arguments);
  if (const TemplateValue::Dict* dict = self.dict()) return call_dict_method(*dict, name, arguments);
  const auto& items = self.list()->items;
  const TemplateValue* item = arguments.find(0, "value");
  if (item == nullptr) throw TemplateFault(fmt::format("calls '{}' without a value", name));
  const auto is_it = [&](const TemplateValue& other) { return other.equals(*item); };
  if (name == "count") return static_cast<int64_t>(std::count_if(items.begin(), items.end(), is_it));
  const auto at = std::find_if(items.begin(), items.end(), is_it);
  if (at == items.end()) throw TemplateFault("asks for the place of what a list does not have");
  return static_cast<int64_t>(at - items.begin());
}

}  // namespace weft
