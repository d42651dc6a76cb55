#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/exchange/shell_script.h"

namespace weft {

enum class Truth { kFalse, kTrue, kUnknown };
inline Truth truth_of(bool value) {
  return value ? Truth::kTrue : Truth::kFalse;
}
inline Truth negated(Truth truth) {
  return truth == Truth::kUnknown ? truth : truth_of(truth == Truth::kFalse);
}

/// A text, and for every letter where it was written.
struct MarkedText {
  std::string text;
  std::vector<Place> places;
  std::string unknown;
  bool is_unset = false;  ///< a variable that nothing sets, and nothing else

  void add(char letter, Place place) {
    text += letter;
    places.push_back(place);
  }
  void add(std::string_view letters, Place place) {
    for (const char letter : letters) add(letter, place);
  }
  void add(const MarkedText& other);
  /// Letters that are not known. They stand as one, so that a text around them can still be split.
  static MarkedText not_known(std::string why, char hole = kHole);
  static constexpr char kHole = '\x01';
  static constexpr char kUnset = '\x02';  ///< of a variable that nothing sets
  bool operator==(const MarkedText& other) const { return text == other.text && unknown == other.unknown; }
};

struct ShellValue {
  bool is_array = false;
  std::vector<MarkedText> items;  ///< one, where it is no array
  std::string unknown;            ///< of an array: which items it has

  bool operator==(const ShellValue&) const = default;
};

bool is_name_letter(char c);
bool is_variable_name(std::string_view word);
/// A text of several fields, with spaces between them.
MarkedText joined(const std::vector<MarkedText>& fields, Place place);
/// A variable that says that another one is a number: `declare -i`.
std::string integer_mark(const std::string& name);

/// The script's own arguments, $1 and on, are the items of this variable.
inline constexpr std::string_view kShellArguments = "@";

/// The variables of a script. What a part of it changed can be taken back, at the price of what it changed: the
/// variables are not copied. Nothing but the script's arguments changes what a user gave.
class ShellEnvironment {
 public:
  using Values = std::map<std::string, ShellValue, std::less<>>;
  /// What variables became, or were; nothing where they are not set.
  using Changes = std::map<std::string, std::optional<ShellValue>, std::less<>>;

  explicit ShellEnvironment(const ShellVariables& given);

  const Values& all() const { return values_; }
  const ShellValue* find(std::string_view name) const;
  bool is_given(std::string_view name) const;
  void set(const std::string& name, ShellValue value);
  void unset(const std::string& name);

  void open();          ///< a part begins whose changes may be taken back
  void keep();          ///< it ends, and what it changed stays
  Changes take_back();  ///< it ends, and it did not happen; what it would have changed
  /// It ends, and either it happened or what changed `others`: where these differ, the variable is not known. Whether
  /// any variable is other than it was when the part began.
  bool unite(const Changes& others, const std::string& why);
  size_t num_changes() const { return before_.empty() ? 0 : before_.back().size(); }

 private:
  void remember(const std::string& name);

  Values values_;
  std::vector<std::string> given_;  ///< sorted
  std::vector<Changes> before_;     ///< of each part that is open: what it changed, as it was
};

}  // namespace weft
