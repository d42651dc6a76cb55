#include "weft/exchange/imported_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

/// Arguments of a command line are texts, values of a YAML file have types: both may say a number. YAML's .nan and .inf
/// are none.
std::optional<double> number_in(const Json& value) {
  if (value.is_number()) return std::isfinite(value.get<double>()) ? std::optional(value.get<double>()) : std::nullopt;
  if (!value.is_string()) return std::nullopt;
  std::string text = value.get<std::string>();
  std::erase(text, '_');  // 1_000 is a number to Python
  if (text.starts_with('+')) text.erase(0, 1);
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size() || text.empty() || !std::isfinite(number))
    return std::nullopt;
  return number;
}

std::string needed_text(NumberRange range) {
  return range.min == ImportedKeys::kAllNumbers.min ? "a number"
                                                    : fmt::format("a number from {} to {}", range.min, range.max);
}

bool holds(NumberRange range, double value) {
  return value >= range.min && value <= range.max;
}

std::optional<bool> truth_in(const Json& value) {
  if (value.is_null()) return true;  // a flag
  if (value.is_boolean()) return value.get<bool>();
  if (!value.is_string()) return std::nullopt;
  const std::string text = value.get<std::string>();
  if (text == "true" || text == "True" || text == "1") return true;
  if (text == "false" || text == "False" || text == "0") return false;
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> whole_number_in(const Json& value) {
  constexpr int64_t kMostInteger = ImportedKeys::kMostInteger;
  if (value.is_number_integer()) {
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMostInteger)) return std::nullopt;
    const auto number = value.get<int64_t>();
    return number <= kMostInteger && number >= -kMostInteger ? std::optional(number) : std::nullopt;
  }
  const auto number = number_in(value);
  if (!number || *number != std::floor(*number) || std::abs(*number) > static_cast<double>(kMostInteger))
    return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::string_view name_of(KeyFate fate) {
  constexpr std::string_view kNames[] = {"read", "default", "ignored", "not understood"};
  return kNames[static_cast<size_t>(fate)];
}

std::string value_text(const Json& value) {
  constexpr size_t kLongest = 80;
  if (value.is_null()) return "";
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_string()) return printable(value.get<std::string>(), kLongest);
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), kLongest);
}

std::string ImportedKeys::where(Place place) const {
  if (place.line == 0 || place.file >= file_names_.size()) return "";
  return fmt::format("{}, line {}", file_names_[place.file], place.line);
}

void ImportedKeys::give(Given given) {
  const std::string key = given.key;
  given_[key] = std::move(given);
}

const ImportedKeys::Given* ImportedKeys::find(const std::string& key) const {
  const auto found = given_.find(key);
  return found == given_.end() ? nullptr : &found->second;
}

void ImportedKeys::list(const std::string& key, std::string value, KeyFate fate, const std::string& meaning,
                        Place place) {
  const ImportedKey row{.key = key, .value = std::move(value), .fate = fate, .meaning = meaning, .place = place};
  if (const auto found = listed_.find(key); found != listed_.end()) {
    rows_[found->second] = row;
    return;
  }
  listed_[key] = rows_.size();
  rows_.push_back(row);
}

const ImportedKeys::Given* ImportedKeys::take(const std::string& key, const std::string& meaning) {
  const Given* given = find(key);
  if (given == nullptr) return nullptr;
  list(key, value_text(given->value), KeyFate::kRead, meaning, given->place);
  if (given->unknown.empty()) return given;
  rows_[listed_[key]].value = "?";
  complain(key, fmt::format("depends on {}, and nothing is ever run to read settings: write the value, or give the "
                            "variable with --set NAME=VALUE",
                            given->unknown));
  return nullptr;
}

int64_t ImportedKeys::integer(const std::string& key, int64_t usual, const std::string& meaning, IntegerRange range) {
  if (!has(key)) {
    list(key, std::to_string(usual), KeyFate::kDefault, meaning);
    return usual;
  }
  return integer_if(key, meaning, range).value_or(usual);
}

int64_t ImportedKeys::factor(const std::string& key, int64_t usual, const std::string& meaning) {
  constexpr int64_t kMost = 1 << 18;
  const int64_t value = integer(key, usual, meaning);
  if (value <= kMost) return value;
  complain(key, fmt::format("is {}, at most {} is needed", value, kMost));
  return usual;
}

std::optional<int64_t> ImportedKeys::integer_if(const std::string& key, const std::string& meaning,
                                                IntegerRange range) {
  const Given* given = take(key, meaning);
  if (given == nullptr) return std::nullopt;
  const auto value = whole_number_in(given->value);
  if (value && *value >= range.min && *value <= range.max) return value;
  complain(key, fmt::format("is {}, a whole number from {} to {} is needed", describe_value(given->value), range.min,
                            range.max));
  return std::nullopt;
}

double ImportedKeys::number(const std::string& key, double usual, const std::string& meaning, NumberRange range) {
  if (!has(key)) {
    list(key, fmt::format("{:g}", usual), KeyFate::kDefault, meaning);
    return usual;
  }
  return number_if(key, meaning, range).value_or(usual);
}

std::optional<double> ImportedKeys::number_if(const std::string& key, const std::string& meaning, NumberRange range) {
  const Given* given = take(key, meaning);
  if (given == nullptr) return std::nullopt;
  const auto value = number_in(given->value);
  if (value && holds(range, *value)) return value;
  complain(key, fmt::format("is {}, {} is needed", describe_value(given->value), needed_text(range)));
  return std::nullopt;
}

std::optional<std::vector<double>> ImportedKeys::numbers_if(const std::string& key, const std::string& meaning,
                                                            const std::vector<NumberRange>& ranges) {
  const Given* given = take(key, meaning);
  if (given == nullptr) return std::nullopt;
  if (!given->value.is_array() || given->value.size() != ranges.size()) {
    complain(key, fmt::format("is {}, a list of {} numbers is needed", describe_value(given->value), ranges.size()));
    return std::nullopt;
  }
  std::vector<double> numbers;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto number = number_in(given->value[i]);
    if (!number || !holds(ranges[i], *number)) {
      complain(key, fmt::format("has {}, {} is needed", describe_value(given->value[i]), needed_text(ranges[i])));
      return std::nullopt;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

std::string ImportedKeys::text(const std::string& key, const std::string& usual, const std::string& meaning) {
  if (!has(key)) {
    list(key, usual, KeyFate::kDefault, meaning);
    return usual;
  }
  return text_if(key, meaning).value_or(usual);
}

std::optional<std::string> ImportedKeys::text_if(const std::string& key, const std::string& meaning) {
  const Given* given = take(key, meaning);
  if (given == nullptr) return std::nullopt;
  if (given->value.is_string()) return given->value.get<std::string>();
  if (given->value.is_number()) return given->value.dump();
  complain(key, fmt::format("is {}, a text is needed",
                            given->value.is_null() ? "given without a value" : describe_value(given->value)));
  return std::nullopt;
}

std::string ImportedKeys::choice(const std::string& key, std::vector<std::string> words, const std::string& meaning) {
  const std::string value = text(key, words.front(), meaning);
  if (std::find(words.begin(), words.end(), value) != words.end()) return value;
  complain(key, fmt::format("is {}, {} is needed", in_quotes(value), joined_or(words)));
  return words.front();
}

bool ImportedKeys::flag(const std::string& key, const std::string& meaning, bool usual) {
  const Given* given = take(key, meaning);
  if (given == nullptr) return usual;
  const auto value = truth_in(given->value);
  if (!value) complain(key, fmt::format("is {}, true or false is needed", describe_value(given->value)));
  return value.value_or(usual);
}

const Json* ImportedKeys::raw(const std::string& key, const std::string& meaning) {
  const Given* given = take(key, meaning);
  return given == nullptr ? nullptr : &given->value;
}

void ImportedKeys::ignore(const std::string& key, const std::string& why) {
  const Given* given = find(key);
  if (given == nullptr) return;
  list(key, given->unknown.empty() ? value_text(given->value) : "?", KeyFate::kIgnored, why, given->place);
}

void ImportedKeys::not_understood(const std::string& key, const std::string& why) {
  const Given* given = find(key);
  list(key,
       given == nullptr         ? ""
       : given->unknown.empty() ? value_text(given->value)
                                : "?",
       KeyFate::kNotUnderstood, why, given == nullptr ? Place{} : given->place);
}

void ImportedKeys::assume(const std::string& key, const std::string& value, const std::string& meaning) {
  list(key, value, KeyFate::kDefault, meaning);
}

void ImportedKeys::complain(const std::string& key, std::string problem) {
  const Given* given = find(key);
  const std::string place = given == nullptr ? "" : where(given->place);
  if (!place.empty()) problem += fmt::format(" ({})", place);
  // A key may be asked for by several readers.
  const bool is_known = std::any_of(complaints_.begin(), complaints_.end(), [&](const Violation& other) {
    return other.field == key && other.message == problem;
  });
  if (!is_known) complaints_.push_back({key, std::move(problem)});
}

std::vector<std::string> ImportedKeys::left() const {
  std::vector<std::string> keys;
  for (const auto& [key, given] : given_) {
    if (!listed_.contains(key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace weft
