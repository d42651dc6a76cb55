#include "weft/data/templates/template_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/utf8.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_text.h"
#include "weft/data/templates/template_work.h"

namespace weft {

namespace {

// Where a look-up in a map is faster than going through the items.
constexpr size_t kFewKeys = 12;

void write_quoted(std::string& out, const std::string& text, TemplateWork& work) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  work.grow(out, std::string_view(&quote, 1));
  for (size_t i = 0; i < text.size();) {
    const Utf8Character next = utf8_at(text, i);
    const auto code = static_cast<uint32_t>(next.code);
    const char c = text[i];
    if (c == quote || c == '\\') {
      const char escaped[] = {'\\', c};
      work.grow(out, std::string_view(escaped, 2));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      work.grow(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (code < 0x20 || code == 0x7f || (code > 0x7f && code < 0x100 && is_written_as_escape(next.code))) {
      work.grow(out, fmt::format("\\x{:02x}", code));
    } else if (code > 0x7f && is_written_as_escape(next.code)) {
      work.grow(out, code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code));
    } else {
      work.grow(out, std::string_view(text).substr(i, next.length));
    }
    i += next.length;
  }
  work.grow(out, std::string_view(&quote, 1));
}

}  // namespace

void TemplateNesting::add(const TemplateValue& inner) {
  TemplateNesting other{.depth = 0};
  if (const auto* function = inner.as<TemplateValue::Function>(); function != nullptr && function->self != nullptr) {
    other.depth = 1;
    other.add(*function->self);
  } else if (const TemplateValue::List* list = inner.list()) {
    other = list->nesting;
  } else if (const TemplateValue::Dict* dict = inner.dict()) {
    other = dict->nesting();
    other.has_namespace = other.has_namespace || dict->kind() == TemplateValue::Dict::Kind::kNamespace;
  }
  depth = std::max(depth, other.depth + 1);
  has_namespace = has_namespace || other.has_namespace;
  if (depth > kMost) throw TemplateFault(fmt::format("has values nested more than {} deep", kMost));
}

size_t TemplateValue::Dict::place_of(const std::string& key) const {
  if (!places_.empty()) {
    const auto it = places_.find(key);
    return it != places_.end() ? it->second : items_.size();
  }
  const auto it = std::find_if(items_.begin(), items_.end(), [&](const auto& item) { return item.first == key; });
  return static_cast<size_t>(it - items_.begin());
}

const TemplateValue* TemplateValue::Dict::find(const std::string& key) const {
  const size_t place = place_of(key);
  return place < items_.size() ? &items_[place].second : nullptr;
}

void TemplateValue::Dict::set(const std::string& key, TemplateValue value) {
  TemplateNesting nesting = nesting_;
  nesting.add(value);
  if (kind_ == Kind::kNamespace && nesting.has_namespace)
    throw TemplateFault("puts a namespace into a namespace, which is not known");
  nesting_ = nesting;
  const size_t place = place_of(key);
  if (place < items_.size()) {
    items_[place].second = std::move(value);
    return;
  }
  items_.emplace_back(key, std::move(value));
  if (!places_.empty()) {
    places_.emplace(key, place);
  } else if (items_.size() > kFewKeys) {
    for (size_t i = 0; i < items_.size(); ++i) places_.emplace(items_[i].first, i);
  }
}

TemplateValue::TemplateValue(List list) {
  for (const TemplateValue& item : list.items) list.nesting.add(item);
  value_ = std::make_shared<List>(std::move(list));
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
      for (const auto& [key, value] : json.items()) dict.set(with_replacements(key), of(value));
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
  return dict != nullptr && (*dict)->kind() == Dict::Kind::kNamespace ? dict->get() : nullptr;
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
  if (dict() != nullptr) return !dict()->is_mapping() || !dict()->items().empty();
  return !is_undefined() && !is_none();
}

std::string TemplateValue::kind() const {
  if (is_undefined()) return fmt::format("'{}', which is undefined", as<Undefined>()->name);
  if (is_none()) return "none";
  if (as<bool>() != nullptr) return "a boolean";
  if (is_number()) return "a number";
  if (as<std::string>() != nullptr) return "a text";
  if (list() != nullptr) return "a list";
  if (dict() != nullptr) {
    return dict()->is_mapping() ? "a mapping" : dict()->kind() == Dict::Kind::kLoop ? "the loop" : "a namespace";
  }
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

void TemplateValue::write_text(std::string& out, TemplateWork& work) const {
  if (const auto* own = as<std::string>()) {
    work.grow(out, *own);
  } else if (!is_undefined()) {
    write_repr(out, work);
  }
}

std::string TemplateValue::text(TemplateWork& work) const {
  std::string written;
  write_text(written, work);
  return written;
}

void TemplateValue::write_repr(std::string& out, TemplateWork& work) const {
  work.steps(1);
  if (is_none()) return work.grow(out, "None");
  if (is_undefined()) return work.grow(out, "Undefined");
  if (const auto* b = as<bool>()) return work.grow(out, *b ? "True" : "False");
  if (const auto* i = as<int64_t>()) return work.grow(out, fmt::format("{}", *i));
  if (const auto* d = as<double>()) return work.grow(out, python_float(*d));
  if (const auto* own = as<std::string>()) return write_quoted(out, *own, work);
  if (const List* own = list()) {
    work.grow(out, own->is_tuple ? "(" : "[");
    for (size_t i = 0; i < own->items.size(); ++i) {
      if (i > 0) work.grow(out, ", ");
      own->items[i].write_repr(out, work);
    }
    if (own->is_tuple && own->items.size() == 1) work.grow(out, ",");
    return work.grow(out, own->is_tuple ? ")" : "]");
  }
  if (const Dict* own = dict(); own != nullptr && own->is_mapping()) {
    work.grow(out, "{");
    bool is_first = true;
    for (const auto& [key, value] : own->items()) {
      if (!std::exchange(is_first, false)) work.grow(out, ", ");
      write_quoted(out, key, work);
      work.grow(out, ": ");
      value.write_repr(out, work);
    }
    return work.grow(out, "}");
  }
  throw TemplateFault(fmt::format("writes {} into the text", kind()));
}

bool TemplateValue::equals(const TemplateValue& other, TemplateWork& work) const {
  work.steps(1);
  if (is_number() && other.is_number()) {
    const auto *a = as<int64_t>(), *b = other.as<int64_t>();
    return a != nullptr && b != nullptr ? *a == *b : number() == other.number();
  }
  if (const auto* own = as<std::string>()) {
    const auto* theirs = other.as<std::string>();
    if (theirs == nullptr || own->size() != theirs->size()) return false;
    work.bytes(own->size());
    return *own == *theirs;
  }
  if (is_none()) return other.is_none();
  if (is_undefined()) return other.is_undefined();
  if (const List* own = list()) {
    const List* theirs = other.list();
    if (theirs == nullptr || own->items.size() != theirs->items.size() || own->is_tuple != theirs->is_tuple)
      return false;
    for (size_t i = 0; i < own->items.size(); ++i) {
      if (!own->items[i].equals(theirs->items[i], work)) return false;
    }
    return true;
  }
  if (const Dict* own = dict()) {
    const Dict* theirs = other.dict();
    if (own == theirs) return true;
    if (theirs == nullptr || !own->is_mapping() || !theirs->is_mapping()) return false;
    if (own->items().size() != theirs->items().size()) return false;
    for (const auto& [key, value] : own->items()) {
      work.bytes(key.size());
      const TemplateValue* found = theirs->find(key);
      if (found == nullptr || !value.equals(*found, work)) return false;
    }
    return true;
  }
  return false;
}

bool TemplateValue::is_same_as(const TemplateValue& other, TemplateWork& work) const {
  if (value_.index() != other.value_.index()) return false;
  if (is_none() || as<bool>() != nullptr) return equals(other, work);
  if (list() != nullptr && !list()->items.empty()) return list() == other.list();
  if (dict() != nullptr) return dict() == other.dict();
  if (!equals(other, work)) return false;
  // Python keeps one of each of these.
  const auto* integer = as<int64_t>();
  if (integer != nullptr && *integer >= -5 && *integer <= 256) return true;
  throw TemplateFault(fmt::format("asks whether {} is the same as an equal one, which is not known", kind()));
}

}  // namespace weft
