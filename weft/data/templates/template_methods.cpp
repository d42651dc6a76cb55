#include <algorithm>
#include <cctype>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/utf8.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_functions.h"
#include "weft/data/templates/template_text.h"

namespace weft {
namespace {

using Value = TemplateValue;
using Call = TemplateCall;
using TextMethod = std::function<Value(const std::string&, const Call&)>;

struct Method {
  TemplateParameters parameters;
  TextMethod call;
};

/// Parts in their order, or from the right in reverse.
class Parts {
 public:
  explicit Parts(TemplateWork& work) : work_(&work) {}
  void add(std::string_view part) { work_->grow(parts_, work_->text(part)); }
  Value list(bool is_reversed = false) {
    if (is_reversed) std::reverse(parts_.begin(), parts_.end());
    return TemplateWork::list(std::move(parts_));
  }

 private:
  TemplateWork* work_;
  std::vector<Value> parts_;
};

/// Between blanks, as Python's split without a separator.
Value split_at_blanks(std::string_view text, int64_t most, bool from_right, TemplateWork& work) {
  Parts parts(work);
  std::string_view rest = stripped(text, std::nullopt, !from_right, from_right);
  const auto is_blank_at = [&](size_t i) { return is_python_space(utf8_at(rest, i).code); };
  for (; !rest.empty() && most != 0; --most) {
    if (from_right) {
      size_t i = rest.size();
      while (i > 0 && !is_blank_at(utf8_before(rest, i))) i = utf8_before(rest, i);
      parts.add(rest.substr(i));
      rest = stripped(rest.substr(0, i), std::nullopt, false, true);
    } else {
      size_t i = 0;
      while (i < rest.size() && !is_blank_at(i)) i += utf8_at(rest, i).length;
      parts.add(rest.substr(0, i));
      rest = stripped(rest.substr(i), std::nullopt, true, false);
    }
  }
  if (!rest.empty()) parts.add(rest);
  return parts.list(from_right);
}

Value split_text(const std::string& text, const Call& call, bool from_right) {
  TemplateWork& work = call.work();
  int64_t most = call.integer(1, -1);
  work.bytes(text.size());
  if (call.is_none(0)) return split_at_blanks(text, most, from_right, work);
  const std::string& separator = call.text(0);
  if (separator.empty()) throw TemplateFault(fmt::format("calls '{}' with an empty separator", call.name()));
  Parts parts(work);
  if (!from_right) {
    size_t done = 0;
    for (size_t at = found_at(text, separator); at != std::string::npos && most != 0; --most) {
      parts.add(std::string_view(text).substr(done, at - done));
      done = at + separator.size();
      at = found_at(text, separator, done);
    }
    parts.add(std::string_view(text).substr(done));
    return parts.list();
  }
  // The same on the text from its end.
  const std::string backwards(text.rbegin(), text.rend()), wanted(separator.rbegin(), separator.rend());
  size_t end = text.size();
  for (size_t at = found_at(backwards, wanted); at != std::string::npos && most != 0; --most) {
    const size_t begin = text.size() - at;
    parts.add(std::string_view(text).substr(begin, end - begin));
    end = begin - separator.size();
    at = found_at(backwards, wanted, at + wanted.size());
  }
  parts.add(std::string_view(text).substr(0, end));
  return parts.list(/*is_reversed=*/true);
}

/// text[start:end] for the methods that look for a part, and where it begins; nothing where the start is beyond the
/// end.
struct Cut {
  std::string_view text;
  int64_t begin = 0;  ///< in characters
};
std::optional<Cut> cut_of(const std::string& text, const Call& call) {
  call.work().bytes(text.size());
  if (call.is_none(1) && call.is_none(2)) return Cut{text};
  const auto size = static_cast<int64_t>(characters_in(text));
  const auto bound = [&](size_t parameter, int64_t otherwise) {
    if (call.is_none(parameter)) return otherwise;
    const int64_t place = call.integer(parameter, otherwise);
    return place < 0 ? std::max<int64_t>(place + size, 0) : place;
  };
  const int64_t begin = bound(1, 0), end = std::min(bound(2, size), size);
  if (begin > end) return std::nullopt;
  const size_t from = offset_of_character(text, static_cast<size_t>(begin));
  const std::string_view rest = std::string_view(text).substr(from);
  return Cut{rest.substr(0, offset_of_character(rest, static_cast<size_t>(end - begin))), begin};
}

Value find_part(const std::string& text, const Call& call, bool from_right) {
  const std::string& part = call.text(0);
  const std::optional<Cut> cut = cut_of(text, call);
  if (!cut) return int64_t{-1};
  call.work().bytes(part.size());
  const size_t at = from_right ? last_found_at(cut->text, part) : found_at(cut->text, part);
  if (at == std::string::npos) return int64_t{-1};
  return cut->begin + static_cast<int64_t>(characters_in(cut->text.substr(0, at)));
}

Value count_part(const std::string& text, const Call& call) {
  const std::string& part = call.text(0);
  const std::optional<Cut> cut = cut_of(text, call);
  if (!cut) return int64_t{0};
  if (part.empty()) return static_cast<int64_t>(characters_in(cut->text)) + 1;
  int64_t count = 0;
  for (size_t at = found_at(cut->text, part); at != std::string::npos;
       at = found_at(cut->text, part, at + part.size())) {
    call.work().bytes(16);
    ++count;
  }
  return count;
}

Value begins_or_ends(const std::string& text, const Call& call, bool at_end) {
  const std::optional<Cut> cut = cut_of(text, call);
  const Value& given = *call.given(0);
  const auto fits = [&](const Value& value) {
    const auto* part = value.as<std::string>();
    if (part == nullptr) throw TemplateFault(fmt::format("calls '{}' without a text", call.name()));
    call.work().bytes(part->size());
    return cut && (at_end ? cut->text.ends_with(*part) : cut->text.starts_with(*part));
  };
  if (given.list() == nullptr || !given.list()->is_tuple) return fits(given);
  call.work().steps(given.list()->items.size());
  return std::any_of(given.list()->items.begin(), given.list()->items.end(), fits);
}

Value strip_text(const std::string& text, const Call& call, bool left, bool right) {
  call.work().bytes(text.size());
  std::optional<std::string_view> characters;
  if (!call.is_none(0)) characters = call.text(0);
  if (characters) call.work().bytes(16 * characters->size());
  return call.work().text(stripped(text, characters, left, right));
}

Value joined_texts(const std::string& text, const Call& call) {
  std::string joined;
  bool is_first = true;
  for (const Value& item : template_items(*call.given(0), call.work())) {
    const auto* part = item.as<std::string>();
    if (part == nullptr) throw TemplateFault(fmt::format("joins {} to a text", item.kind()));
    if (!std::exchange(is_first, false)) call.work().grow(joined, text);
    call.work().grow(joined, *part);
  }
  return joined;
}

Value split_lines(const std::string& text, const Call& call) {
  call.work().bytes(text.size());
  Parts parts(call.work());
  for (const std::string_view line : python_lines(text, call.flag(0))) parts.add(line);
  return parts.list();
}

std::map<std::string, Method> make_text_methods() {
  const TemplateParameters none, chars{.names = {"chars"}, .by_name = false};
  const TemplateParameters part{.names = {"sub", "start", "end"}, .num_needed = 1, .by_name = false};
  const TemplateParameters affix{.names = {"affix"}, .num_needed = 1, .by_name = false};
  const TemplateParameters separated{.names = {"sep", "maxsplit"}};
  const auto strips = [&](bool left, bool right) {
    return Method{chars, [=](const std::string& t, const Call& c) { return strip_text(t, c, left, right); }};
  };
  const auto cased = [&](const char* name) {
    return Method{none, [name](const std::string& t, const Call& c) {
                    c.work().bytes(2 * t.size());
                    return c.work().text(in_case(t, name));
                  }};
  };
  const auto without = [&](bool at_end) {
    return Method{affix, [at_end](const std::string& t, const Call& c) {
                    const std::string& own = c.text(0);
                    std::string_view rest = t;
                    if (!at_end && rest.starts_with(own)) rest.remove_prefix(own.size());
                    if (at_end && rest.ends_with(own)) rest.remove_suffix(own.size());
                    return c.work().text(rest);
                  }};
  };
  return {
      {"strip", strips(true, true)},
      {"lstrip", strips(true, false)},
      {"rstrip", strips(false, true)},
      {"split", {separated, [](const std::string& t, const Call& c) { return split_text(t, c, false); }}},
      {"rsplit", {separated, [](const std::string& t, const Call& c) { return split_text(t, c, true); }}},
      {"startswith", {part, [](const std::string& t, const Call& c) { return begins_or_ends(t, c, false); }}},
      {"endswith", {part, [](const std::string& t, const Call& c) { return begins_or_ends(t, c, true); }}},
      {"upper", cased("upper")},
      {"lower", cased("lower")},
      {"title", cased("title")},
      {"capitalize", cased("capitalize")},
      {"replace",
       {{.names = {"old", "new", "count"}, .num_needed = 2, .by_name = false},
        [](const std::string& t, const Call& c) {
          return replaced(t, c.text(0), c.text(1), c.integer(2, -1), c.work());
        }}},
      {"splitlines", {{.names = {"keepends"}}, split_lines}},
      {"join", {{.names = {"iterable"}, .num_needed = 1, .by_name = false}, joined_texts}},
      {"count", {part, count_part}},
      {"find", {part, [](const std::string& t, const Call& c) { return find_part(t, c, false); }}},
      {"rfind", {part, [](const std::string& t, const Call& c) { return find_part(t, c, true); }}},
      {"removeprefix", without(false)},
      {"removesuffix", without(true)},
  };
}

const std::map<std::string, Method>& text_methods() {
  static const std::map<std::string, Method> all = make_text_methods();
  return all;
}

const std::map<std::string, TemplateParameters>& dict_methods() {
  static const std::map<std::string, TemplateParameters> all = {
      {"items", {}},
      {"keys", {}},
      {"values", {}},
      {"get", {.names = {"key", "default"}, .num_needed = 1, .by_name = false}}};
  return all;
}

const std::map<std::string, TemplateParameters>& list_methods() {
  static const std::map<std::string, TemplateParameters> all = {
      {"index", {.names = {"value", "start", "stop"}, .num_needed = 1, .by_name = false}},
      {"count", {.names = {"value"}, .num_needed = 1, .by_name = false}}};
  return all;
}

Value call_dict_method(const Value::Dict& dict, const Call& call) {
  TemplateWork& work = call.work();
  if (call.name() == "get") {
    work.bytes(call.text(0).size());
    const Value* found = dict.find(call.text(0));
    return found != nullptr ? *found : call.given(1) != nullptr ? *call.given(1) : Value();
  }
  if (call.name() == "items") return items_of(dict, work);
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items()) work.grow(items, call.name() == "keys" ? work.text(key) : value);
  return TemplateWork::list(std::move(items));
}

Value call_list_method(const Value::List& list, const Call& call) {
  const auto size = static_cast<int64_t>(list.items.size());
  const bool counts = call.name() == "count";
  const auto bound = [&](size_t parameter, int64_t otherwise) {
    if (counts) return otherwise;
    const int64_t place = call.integer(parameter, otherwise);
    return std::clamp<int64_t>(place < 0 ? place + size : place, 0, size);
  };
  int64_t count = 0;
  for (int64_t i = bound(1, 0); i < bound(2, size); ++i) {
    if (!list.items[static_cast<size_t>(i)].equals(*call.given(0), call.work())) continue;
    if (!counts) return i;
    ++count;
  }
  if (!counts) throw TemplateFault("asks for the place of what a list does not have");
  return count;
}

}  // namespace

std::string in_case(const std::string& text, const std::string& method) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Character next = utf8_at(text, i);
    const bool stays = next.code < 0x80 || (method == "lower" ? is_lowered(next.code) : has_no_case(next.code));
    if (!stays) throw TemplateFault(fmt::format("changes the case ('{}') of a text with letters beyond ASCII", method));
    i += next.length;
  }
  std::string changed = text;
  bool begins_word = true;
  for (char& c : changed) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      const bool is_upper = method == "upper" || (method != "lower" && begins_word);
      c = static_cast<char>(is_upper ? std::toupper(byte) : std::tolower(byte));
    }
    begins_word = method == "title" && (byte >= 0x80 || std::isalpha(byte) == 0);
  }
  return changed;
}

TemplateValue replaced(const std::string& text, const std::string& from, const std::string& to, int64_t most,
                       TemplateWork& work) {
  if (from.empty()) throw TemplateFault("replaces an empty text, which is not known");
  work.bytes(text.size() + from.size());
  std::string result;
  size_t done = 0;
  for (size_t at = found_at(text, from); at != std::string::npos && most != 0; --most) {
    work.grow(result, std::string_view(text).substr(done, at - done));
    work.grow(result, to);
    done = at + from.size();
    at = found_at(text, from, done);
  }
  work.grow(result, std::string_view(text).substr(done));
  return result;
}

TemplateValue items_of(const TemplateValue::Dict& dict, TemplateWork& work) {
  std::vector<TemplateValue> items;
  for (const auto& [key, value] : dict.items())
    work.grow(items, TemplateWork::list({work.text(key), value}, /*is_tuple=*/true));
  return TemplateWork::list(std::move(items));
}

bool has_template_method(const TemplateValue& self, const std::string& name) {
  if (self.as<std::string>() != nullptr) return text_methods().contains(name);
  if (self.dict() != nullptr) return self.dict()->is_mapping() && dict_methods().contains(name);
  return self.list() != nullptr && list_methods().contains(name);
}

TemplateValue call_template_method(const TemplateValue& self, const std::string& name,
                                   const TemplateArguments& arguments, TemplateWork& work) {
  if (const auto* text = self.as<std::string>()) {
    const Method& method = text_methods().at(name);
    return method.call(*text, Call(name, method.parameters, arguments, work));
  }
  if (const Value::Dict* dict = self.dict())
    return call_dict_method(*dict, Call(name, dict_methods().at(name), arguments, work));
  return call_list_method(*self.list(), Call(name, list_methods().at(name), arguments, work));
}

}  // namespace weft
