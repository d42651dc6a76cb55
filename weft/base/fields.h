#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/document.h"

namespace weft {

/// The first thing that was wrong while a document was read. Readers go on with harmless values after a failure and
/// ask once at the end, which keeps them as plain as the file they read.
class Findings {
 public:
  explicit Findings(std::string source) : source_(std::move(source)) {}

  void add(std::string field, std::string problem, std::string advice = "");
  const std::optional<Error>& first() const { return first_; }

 private:
  std::string source_;
  std::optional<Error> first_;
};

struct IntegerRange {
  int64_t min;
  int64_t max;
};

struct NumberRange {
  double min;
  double max;
};

/// A whole number of a range, however it is written: 8, 8.0, 1e3. It is compared as an integer, since the ends of a
/// range may be no doubles, and since a cast takes 2^64 - 1 for -1.
std::optional<int64_t> whole_number(const Json& value, IntegerRange range);

/// One object of a document, read field by field. A missing, mistyped or out-of-range field is a finding that names
/// the field's path, what was found and what is allowed. null counts as missing.
class Fields {
 public:
  /// The document's root, which must be an object.
  Fields(const Document& document, Findings& findings);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Given, but as null.
  bool is_null(std::string_view key) const;

  int64_t integer(std::string_view key, IntegerRange range);
  int64_t integer_or(std::string_view key, int64_t fallback, IntegerRange range);
  double number(std::string_view key, NumberRange range);
  double number_or(std::string_view key, double fallback, NumberRange range);
  bool flag_or(std::string_view key, bool fallback);
  std::string text(std::string_view key);
  std::string text_or(std::string_view key, std::string fallback);
  /// A text that is shown and written as it is: control characters are refused.
  std::string name(std::string_view key);
  std::string name_or(std::string_view key, std::string fallback);
  /// One of the allowed words, as its index in `allowed`.
  size_t choice(std::string_view key, std::span<const std::string> allowed);
  size_t choice_or(std::string_view key, size_t fallback, std::span<const std::string> allowed);
  std::vector<int64_t> integers_or_empty(std::string_view key, IntegerRange range);
  std::vector<std::string> texts_or_empty(std::string_view key);
  /// A nested object; an empty one, and a finding, when it is missing or something else.
  Fields object(std::string_view key);
  /// A list of objects, each with its own path, like "chain[2]"; none, and a finding, when it is missing or something
  /// else.
  std::vector<Fields> objects(std::string_view key);
  /// The raw value, for fields with several forms; nullptr when missing.
  const Json* raw(std::string_view key);

  /// Finds keys that nobody asked for, and keys without a value, which a file that was cut off ends in. Call it last.
  void reject_unknown() const;

  /// "vision_config.depth".
  std::string path_of(std::string_view key) const;
  void complain(std::string_view key, std::string problem, std::string advice = "");
  Findings& findings() { return *findings_; }

 private:
  Fields(const Json& object, std::string path, Findings& findings);

  const Json* find(std::string_view key) const;
  const Json* require(std::string_view key);
  int64_t as_integer(const Json& value, std::string_view field, IntegerRange range);
  double as_number(const Json& value, std::string_view field, NumberRange range);

  const Json* object_;
  std::string path_;
  Findings* findings_;
  std::vector<std::string> asked_;
};

/// What a value is, for messages: "the text 'abc'", "the number 1.5", "a list".
std::string describe_value(const Json& value);

}  // namespace weft
