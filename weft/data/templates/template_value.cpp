#include "weft/data/templates/template_value.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/utf8.h"
#include "weft/data/templates/template_fault.h"

namespace weft {

const TemplateValue* TemplateValue::Dict::find(const std::string& key) const {
  for (const auto& [name, value] : items) {
    if (name == key) return &value;
  }
  return nullptr;
}

void TemplateValue::Dict::set(const std::string& key, TemplateValue value) {
  for (auto& [name, old] : items) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  items.emplace_back(key, std::move(value));
}

TemplateValue TemplateValue::of(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      return number <= static_cast<uint64_t>(INT64_MAX) ? TemplateValue(static_cast<int64_t>(number))
                                                        : TemplateValue(static_cast<double>(number));
    }
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return with_replacements(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      List list;
      for (const Json& item : json) list.items.push_back(of(item));
      return list;
    }
    case Json::value_t::object: {
      Dict dict;
      for (const auto& [key, value] : json.items()) dict.items.emplace_back(with_replacements(key), of(value));
      return dict;
    }
    default:
      return {};
  }
}

const TemplateValue::List* TemplateValue::list() const {
  const auto* list = as<std::shared_ptr<List>>();
  return list != nullptr ? list->get() : nullptr;
}

const TemplateValue::Dict* TemplateValue::dict() const {
  const auto* dict = as<std::shared_ptr<Dict>>();
  return dict != nullptr ? dict->get() : nullptr;
}

TemplateValue::Dict* TemplateValue::namespace_fields() const {
  const auto* dict = as<std::shared_ptr<Dict>>();
  return dict != nullptr && (*dict)->is_namespace ? dict->get() : nullptr;
}

bool TemplateValue::is_number() const {
  return as<bool>() != nullptr || as<int64_t>() != nullptr || as<double>() != nullptr;
}

double TemplateValue::number() const {
  if (const auto* b = as<bool>()) return *b ? 1 : 0;
  if (const auto* i = as<int64_t>()) return static_cast<double>(*i);
  const auto* d = as<double>();
  return d != nullptr ? *d : 0;
}

bool TemplateValue::is_true() const {
  if (is_number()) return number() != 0;
  if (const auto* text = as<std::string>()) return !text->empty();
  if (list() != nullptr) return !list()->items.empty();
  if (dict() != nullptr) return dict()->is_namespace || !dict()->items.empty();
  return !is_undefined() && !is_none();
}

std::string TemplateValue::kind() const {
  if (is_undefined()) return fmt::format("'{}', which is undefined", as<Undefined>()->name);
  if (is_none()) return "none";
  if (as<bool>() != nullptr) return "a boolean";
  if (is_number()) return "a number";
  if (as<std::string>() != nullptr) return "a text";
  if (list() != nullptr) return "a list";
  if (dict() != nullptr) return dict()->is_namespace ? "a namespace" : "a mapping";
  return "a function";
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view written(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = written.find('e');
  const int exponent = std::stoi(std::string(written.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", written.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string text(buffer, static_cast<size_t>(fixed.ptr - buffer));
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string TemplateValue::text() const {
  if (const auto* own = as<std::string>()) return *own;
  return is_undefined() ? "" : repr();
}

std::string TemplateValue::repr() const {
  if (is_none()) return "None";
  if (is_undefined()) return "Undefined";
  if (const auto* b = as<bool>()) return *b ? "True" : "False";
  if (const auto* i = as<int64_t>()) return fmt::format("{}", *i);
  if (const auto* d = as<double>()) return python_float(*d);
  if (const auto* own = as<std::string>()) {
    const char quote = own->find('\'') != std::string::npos && own->find('"') == std::string::npos ? '"' : '\'';
    std::string written(1, quote);
    for (const char c : *own) {
      if (c == quote || c == '\\') written += '\\';
      if (c == '\n') {
        written += "\\n";
      } else if (c == '\r') {
        written += "\\r";
      } else if (c == '\t') {
        written += "\\t";
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
        written += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      } else {
        written += c;
      }
    }
    return written + quote;
  }
  if (const List* own = list()) {
    std::string written(1, own->is_tuple ? '(' : '[');
    for (size_t i = 0; i < own->items.size(); ++i) written += (i > 0 ? ", " : "") + own->items[i].repr();
    if (own->is_tuple && own->items.size() == 1) written += ',';
    return written + (own->is_tuple ? ')' : ']');
  }
  if (const Dict* own = dict(); own != nullptr && !own->is_namespace) {
    std::string written = "{";
    for (const auto& [key, value] : own->items) {
      written += (written.size() > 1 ? ", " : "") + TemplateValue(key).repr() + ": " + value.repr();
    }
    return written + "}";
  }
  throw TemplateFault(fmt::format("writes {} into the text", kind()));
}

bool TemplateValue::equals(const TemplateValue& other) const {
  if (is_number() && other.is_number()) {
    const auto *a = as<int64_t>(), *b = other.as<int64_t>();
    return a != nullptr && b != nullptr ? *a == *b : number() == other.number();
  }
  if (const auto* own = as<std::string>())
    return other.as<std::string>() != nullptr && *own == *other.as<std::string>();
  if (is_none()) return other.is_none();
  if (is_undefined()) return other.is_undefined();
  if (const List* own = list()) {
    const List* theirs = other.list();
    if (theirs == nullptr || own->items.size() != theirs->items.size() || own->is_tuple != theirs->is_tuple)
      return false;
    for (size_t i = 0; i < own->items.size(); ++i) {
      if (!own->items[i].equals(theirs->items[i])) return false;
    }
    return true;
  }
  if (const Dict* own = dict()) {
    const Dict* theirs = other.dict();
    if (theirs == nullptr || own->items.size() != theirs->items.size()) return false;
    for (const auto& [key, value] : own->items) {
      const TemplateValue* found = theirs->find(key);
      if (found == nullptr || !value.equals(*found)) return false;
    }
    return true;
  }
  return false;
}

}  // namespace weft
