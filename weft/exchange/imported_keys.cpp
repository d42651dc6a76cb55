#include "weft/exchange/imported_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/text.h"

namespace weft {
namespace {

/// Arguments of a command line are texts, values of a YAML file have types: both may say a number.
std::optional<double> number_in(const Json& value) {
  if (value.is_number()) return value.get<double>();
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

/// No setting is larger.
constexpr int64_t kMostInteger = 1'000'000'000'000'000;

std::optional<int64_t> integer_in(const Json& value) {
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

int64_t ImportedKeys::integer(const std::string& key, int64_t usual, const std::string& meaning, int64_t least) {
  if (!has(key)) {
    list(key, std::to_string(usual), KeyFate::kDefault, meaning);
    return usual;
  }
  return integer_if(key, meaning, least).value_or(usual);
}

int64_t ImportedKeys::factor(const std::string& key, int64_t usual, const std::string& meaning) {
  constexpr int64_t kMost = 1 << 18;
  const int64_t value = integer(key, usual, meaning);
  if (value <= kMost) return value;
  complain(key, fmt::format("is {}, at most {} is needed", value, kMost));
  return usual;
}

std::optional<int64_t> ImportedKeys::integer_if(const std::string& key, const std::string& meaning, int64_t least) {
  const Given* given = take(key, meaning);
  if (given == nullptr) return std::nullopt;
  const auto value = integer_in(given->value);
  if (value && *value >= least) return value;
  complain(key, fmt::format("is {}, a whole number from {} to {} is needed", describe_value(given->value), least,
                            kMostInteger));
  return std::nullopt;
}

double ImportedKeys::number(const std::string& key, double usual, const std::string& meaning) {
  if (!has(key)) {
    list(key, fmt::format("{:g}", usual), KeyFate::kDefault, meaning);
    return usual;
  }
  return number_if(key, meaning).value_or(usual);
}

std::optional<double> ImportedKeys::number_if(const std::string& key, const std::string& meaning) {
  const Given* given = take(key, meaning);
  if (given == nullptr) return std::nullopt;
  const auto value = number_in(given->value);
  if (!value) complain(key, fmt::format("is {}, a number is needed", describe_value(given->value)));
  return value;
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
