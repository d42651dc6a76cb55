#include "weft/base/fields.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

const Json& empty_object() {
  static const Json object = Json::object();
  return object;
}

/// A field that is there instead of it, misspelled or under another system's name, is pointed out.
std::string advice_for_missing(std::string_view key, const Json& object) {
  constexpr size_t kMostGuesses = 1000;
  const std::vector<std::string> missing = {std::string(key)};
  std::vector<std::string> present;
  for (const auto& [name, ignored] : object.items()) {
    // Names of other systems lead to ours, not back.
    if (closest(name, missing)) return fmt::format("Is {} meant to be it? Call it {}.", in_quotes(name), key);
    present.push_back(name);
    if (present.size() == kMostGuesses) break;
  }
  const std::optional<std::string> similar = closest(key, present);
  return similar ? fmt::format("Is {} meant to be it? Call it {}.", in_quotes(*similar), key) : "Add it.";
}

/// 1e3 and 8.0 are whole numbers too.
std::optional<int64_t> as_whole(double number) {
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (!(number >= -kEnd && number < kEnd) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

void Findings::add(std::string field, std::string problem, std::string advice) {
  if (!first_)
    first_ =
        Error{.source = source_, .field = std::move(field), .problem = std::move(problem), .advice = std::move(advice)};
}

std::optional<int64_t> whole_number(const Json& value, IntegerRange range) {
  std::optional<int64_t> number;
  if (value.is_number_float()) {
    number = as_whole(value.get<double>());
  } else if (value.is_number_unsigned()) {
    if (value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)) number = value.get<int64_t>();
  } else if (value.is_number_integer()) {
    number = value.get<int64_t>();
  }
  return number && *number >= range.min && *number <= range.max ? number : std::nullopt;
}

std::string describe_value(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::string:
      return "the text " + in_quotes(value.get_ref<const std::string&>());
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "a mapping";
    case Json::value_t::number_float:
      return fmt::format("the number {}", value.get<double>());
    default:
      return "the number " + value.dump();
  }
}

Fields::Fields(const Document& document, Findings& findings) : Fields(document.root, "", findings) {
  if (!document.root.is_object()) {
    object_ = &empty_object();
    findings.add("", fmt::format("is {}, a mapping of fields is needed", describe_value(document.root)),
                 "Check that this is the file you meant.");
  }
}

Fields::Fields(const Json& object, std::string path, Findings& findings)
    : object_(&object), path_(std::move(path)), findings_(&findings) {}

std::string Fields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

void Fields::complain(std::string_view key, std::string problem, std::string advice) {
  findings_->add(path_of(key), std::move(problem), std::move(advice));
}

const Json* Fields::find(std::string_view key) const {
  const auto it = object_->find(std::string(key));
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

const Json* Fields::raw(std::string_view key) {
  asked_.emplace_back(key);
  return find(key);
}

bool Fields::is_null(std::string_view key) const {
  const auto it = object_->find(std::string(key));
  return it != object_->end() && it->is_null();
}

const Json* Fields::require(std::string_view key) {
  const Json* value = raw(key);
  if (value == nullptr && is_null(key)) complain(key, "is null, a value is needed");
  if (value == nullptr) {
    complain(key, "is missing", advice_for_missing(key, *object_));
  }
  return value;
}

int64_t Fields::as_integer(const Json& value, std::string_view field, IntegerRange range) {
  const std::string allowed = fmt::format("a whole number from {} to {} is needed", range.min, range.max);
  if (const auto number = whole_number(value, range)) return *number;
  findings_->add(std::string(field),
                 fmt::format("is {}, {}", value.is_number_integer() ? value.dump() : describe_value(value), allowed));
  return range.min;
}

double Fields::as_number(const Json& value, std::string_view field, NumberRange range) {
  const bool fits = value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= range.min &&
                    value.get<double>() <= range.max;
  if (!fits) {
    findings_->add(std::string(field),
                   fmt::format("is {}, a number from {} to {} is needed", describe_value(value), range.min, range.max));
    return range.min;
  }
  return value.get<double>();
}

int64_t Fields::integer(std::string_view key, IntegerRange range) {
  const Json* value = require(key);
  return value == nullptr ? range.min : as_integer(*value, path_of(key), range);
}

int64_t Fields::integer_or(std::string_view key, int64_t fallback, IntegerRange range) {
  const Json* value = raw(key);
  return value == nullptr ? fallback : as_integer(*value, path_of(key), range);
}

double Fields::number(std::string_view key, NumberRange range) {
  const Json* value = require(key);
  return value == nullptr ? range.min : as_number(*value, path_of(key), range);
}

double Fields::number_or(std::string_view key, double fallback, NumberRange range) {
  const Json* value = raw(key);
  return value == nullptr ? fallback : as_number(*value, path_of(key), range);
}

bool Fields::flag_or(std::string_view key, bool fallback) {
  const Json* value = raw(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    complain(key, fmt::format("is {}, true or false is needed", describe_value(*value)));
    return fallback;
  }
  return value->get<bool>();
}

std::string Fields::text(std::string_view key) {
  return require(key) == nullptr ? "" : text_or(key, "");
}

std::string Fields::text_or(std::string_view key, std::string fallback) {
  const Json* value = raw(key);
  if (value == nullptr) return fallback;
  if (!value->is_string()) {
    complain(key, fmt::format("is {}, a text is needed", describe_value(*value)));
    return fallback;
  }
  return value->get<std::string>();
}

std::string Fields::name(std::string_view key) {
  return require(key) == nullptr ? "" : name_or(key, "");
}

std::string Fields::name_or(std::string_view key, std::string fallback) {
  std::string name = text_or(key, std::move(fallback));
  if (has(key) && !is_printable(name))
    complain(key, fmt::format("is {}, a text of one line without control characters is needed", in_quotes(name)));
  return name;
}

size_t Fields::choice(std::string_view key, std::span<const std::string> allowed) {
  return require(key) == nullptr ? 0 : choice_or(key, 0, allowed);
}

size_t Fields::choice_or(std::string_view key, size_t fallback, std::span<const std::string> allowed) {
  const Json* value = raw(key);
  if (value == nullptr) return fallback;
  const std::string word = value->is_string() ? value->get<std::string>() : "";
  const auto it = std::find(allowed.begin(), allowed.end(), word);
  if (it == allowed.end()) {
    complain(key, fmt::format("is {}, {} is needed", describe_value(*value), joined_or(allowed)),
             did_you_mean(word, allowed).empty() ? "" : did_you_mean(word, allowed).substr(1));
    return fallback;
  }
  return static_cast<size_t>(it - allowed.begin());
}

std::vector<int64_t> Fields::integers_or_empty(std::string_view key, IntegerRange range) {
  std::vector<int64_t> numbers;
  const Json* value = raw(key);
  if (value == nullptr) return numbers;
  if (!value->is_array()) {
    complain(key, fmt::format("is {}, a list of whole numbers is needed", describe_value(*value)));
    return numbers;
  }
  for (size_t i = 0; i < value->size(); ++i) {
    numbers.push_back(as_integer((*value)[i], fmt::format("{}[{}]", path_of(key), i), range));
  }
  return numbers;
}

std::vector<std::string> Fields::texts_or_empty(std::string_view key) {
  std::vector<std::string> texts;
  const Json* value = raw(key);
  if (value == nullptr) return texts;
  const bool all_texts =
      value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& v) { return v.is_string(); });
  if (!all_texts) {
    complain(key, fmt::format("is {}, a list of texts is needed",
                              value->is_array() ? "a list of other things" : describe_value(*value)));
    return texts;
  }
  for (const Json& text : *value) texts.push_back(text.get<std::string>());
  return texts;
}

Fields Fields::object(std::string_view key) {
  const Json* value = require(key);
  if (value != nullptr && !value->is_object()) {
    complain(key, fmt::format("is {}, a mapping of fields is needed", describe_value(*value)));
    value = nullptr;
  }
  return Fields(value == nullptr ? empty_object() : *value, path_of(key), *findings_);
}

std::vector<Fields> Fields::objects(std::string_view key) {
  std::vector<Fields> objects;
  const Json* value = require(key);
  if (value == nullptr) return objects;
  const bool all_objects =
      value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& v) { return v.is_object(); });
  if (!all_objects) {
    complain(key, fmt::format("is {}, a list of mappings is needed",
                              value->is_array() ? "a list of other things" : describe_value(*value)));
    return objects;
  }
  for (size_t i = 0; i < value->size(); ++i) {
    objects.push_back(Fields((*value)[i], fmt::format("{}[{}]", path_of(key), i), *findings_));
  }
  return objects;
}

void Fields::reject_unknown() const {
  const std::set<std::string> known_set(asked_.begin(), asked_.end());
  const std::vector<std::string> known(known_set.begin(), known_set.end());
  for (const auto& [name, value] : object_->items()) {
    const std::string shown = name.empty() ? in_quotes(name) : printable(name);
    if (!known_set.contains(name)) {
      findings_->add(path_of(shown), "is not a known field; known are " + joined_or(known),
                     "Correct or remove it." + did_you_mean(name, known));
      return;
    }
    if (value.is_null()) {
      findings_->add(path_of(shown), "has no value", "Give one, or remove the field.");
      return;
    }
  }
}

}  // namespace weft
