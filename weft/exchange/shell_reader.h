#pragma once

#include <optional>
#include <string_view>

#include "weft/exchange/shell_script.h"

namespace weft {

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

using ShellEnvironment = std::map<std::string, ShellValue, std::less<>>;

enum class Truth { kFalse, kTrue, kUnknown };
inline Truth truth_of(bool value) {
  return value ? Truth::kTrue : Truth::kFalse;
}
inline Truth negated(Truth truth) {
  return truth == Truth::kUnknown ? truth : truth_of(truth == Truth::kFalse);
}

/// Reads a script statement by statement and does what it says to its variables. The first error stops it.
class ShellReader {
 public:
  ShellReader(std::span<const SettingsFile> files, const ShellVariables& given);

  Result<std::vector<ShellCommand>> run();
  Result<ArgumentLists> lists();

 private:
  // Statements: shell_script.cpp.
  Truth statements();  ///< up to a word that ends a block
  Truth chain();       ///< pipelines with && and ||
  Truth pipeline();
  Truth statement();
  Truth simple_command();
  Truth if_statement();
  Truth loop(bool is_for);
  Truth case_statement();
  Truth function_body(const std::string& name);
  Truth run_builtin(std::vector<MarkedText>& words, Place place);
  bool take_assignment(ShellEnvironment& into);
  void source(const std::vector<MarkedText>& words, Place place);
  void sub_script(std::string_view text, uint32_t file, bool keeps_places);
  /// Runs statements of which it is not known whether they are.
  template <typename Body>
  void maybe(const std::string& why, Body body);
  void merge(const ShellEnvironment& before, const std::string& why);

  // Words: shell_words.cpp.
  bool has_word();  ///< whether a word begins here, after spaces and comments
  std::vector<MarkedText> word();
  std::string bare_word() const;  ///< the letters ahead, if they are a plain word
  void word_part(std::vector<MarkedText>& fields, bool& is_open, bool is_quoted);
  void double_quotes(std::vector<MarkedText>& fields, bool& is_open);
  void expansion(std::vector<MarkedText>& fields, bool& is_open, bool is_quoted);
  ShellValue braces();
  ShellValue value_of(const std::string& name, Place place) const;
  void append(const ShellValue& value, bool is_split, bool keeps_items, std::vector<MarkedText>& fields, bool& is_open);
  std::string skip_command(char end);
  void redirection();
  void here_documents();
  void skip_blanks();
  bool take(std::string_view text);
  bool take_keyword(std::string_view word);
  void skip_separators();

  // Arithmetic: shell_arithmetic.cpp.
  MarkedText arithmetic(std::string_view end);
  friend class ShellArithmetic;

  bool is_over() const { return error_.has_value() || at_ >= text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char next();
  Place here() const { return {file_, line_}; }
  void fail(Place place, std::string problem, std::string advice);
  bool goes_deeper();

  std::span<const SettingsFile> files_;
  std::string_view text_;
  size_t at_ = 0;
  uint32_t file_ = 0, line_ = 1;
  ShellEnvironment variables_;
  const ShellVariables& given_;  ///< win over what the script assigns
  std::string sourced_;          ///< a file that may have set what nothing else sets
  std::vector<ShellCommand> commands_;
  std::vector<std::pair<std::string, bool>> pending_documents_;  ///< ends of here documents; whether tabs are dropped
  bool is_dry_ = false;                                          ///< statements are read over
  int depth_ = 0;
  size_t work_ = 0;
  std::optional<Error> error_;
};

}  // namespace weft
