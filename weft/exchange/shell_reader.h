#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/exchange/shell_script.h"
#include "weft/exchange/shell_variables.h"

namespace weft {

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
  void redirections();
  void sub_script(std::string_view text, uint32_t file, bool keeps_places);

  // Statements inside others: shell_blocks.cpp.
  Truth if_statement();
  enum class Loop { kFor, kWhile, kUntil };  ///< `select` is a kFor, too
  Truth loop(Loop kind);
  /// Reads a loop from behind its first word to in front of its last. Whether a further round may change more.
  bool round(Loop kind, Place place, const std::string& why, bool is_first);
  std::vector<std::string> names_of_for();
  Truth case_statement();
  Truth clause_fits(const MarkedText& subject);
  Truth function_body(const std::string& name);
  Truth double_brackets();
  /// Runs statements of which it is not known whether they are. Whether a variable is other than it was.
  template <typename Body>
  bool maybe(const std::string& why, Body body) {
    if (is_dry_) {
      body();
      return false;
    }
    variables_.open();
    body();
    return unite({}, why);
  }
  // A part of the script whose changes may be taken back: as ShellEnvironment's, and what they cost is counted.
  void keep();
  ShellEnvironment::Changes take_back();
  bool unite(const ShellEnvironment::Changes& others, const std::string& why);

  // Assignments: shell_assignment.cpp.
  /// NAME=..., which `declare -i` makes a number of.
  bool take_assignment(bool is_integer = false);
  /// The number that a text is worth, added to `base`; `doubt` is why it may be a text after all.
  MarkedText as_integer(const MarkedText& text, const ShellValue* base, const std::string& doubt);

  // Commands that change variables: shell_builtins.cpp.
  Truth run_command(std::vector<MarkedText>& words, Place place);
  void source(const std::vector<MarkedText>& words, Place place);
  void declare(const std::vector<MarkedText>& words);
  void unset(const std::vector<MarkedText>& words);
  void read_input(const std::vector<MarkedText>& words, Place place);
  Truth options(const std::vector<MarkedText>& words, Place place);
  Truth let(const std::vector<MarkedText>& words);
  Truth shift(const std::vector<MarkedText>& words, Place place);
  void set_arguments(const std::vector<MarkedText>& words, Place place);
  void set(const std::string& name, ShellValue value);
  /// Of NAME or NAME[...]; nothing where the word is neither.
  void set_unknown(const MarkedText& word, const std::string& why);

  // Words: shell_words.cpp.
  bool has_word();  ///< whether a word begins here, after spaces and comments
  std::vector<MarkedText> word();
  std::string bare_word() const;  ///< the letters ahead, if they are a plain word
  void word_part(std::vector<MarkedText>& fields, bool& is_open, bool is_quoted);
  void double_quotes(std::vector<MarkedText>& fields, bool& is_open);
  void expansion(std::vector<MarkedText>& fields, bool& is_open, bool is_quoted);
  ShellValue braces(bool is_quoted);
  /// Of a variable, or of what stands in `own` and is made for it.
  const ShellValue& value_of(const std::string& name, Place place, ShellValue& own);
  bool is_set(const std::string& name) const;
  void append(const ShellValue& value, bool is_split, bool keeps_items, std::vector<MarkedText>& fields, bool& is_open);
  MarkedText& open_field(std::vector<MarkedText>& fields, bool& is_open);
  void add_quoted(MarkedText& field, char letter, Place place);
  MarkedText pattern();  ///< a word in which letters of patterns have a backslash where they are quoted
  std::string skip_command(char end);
  void redirection();
  void here_documents();
  void skip_blanks();
  bool take(std::string_view text);
  bool take_keyword(std::string_view word);
  void skip_separators();

  // Arithmetic: shell_arithmetic.cpp.
  MarkedText arithmetic(std::string_view end);
  MarkedText arithmetic_of(const MarkedText& text);
  friend class ShellArithmetic;

  bool is_over() const { return error_.has_value() || at_ >= text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char next();
  Place here() const { return {file_, line_}; }
  void fail(Place place, std::string problem, std::string advice);
  bool goes_deeper();
  /// Counts what is copied: letters, or something like them.
  void charge(size_t letters);
  void charge(const ShellValue& value);

  std::span<const SettingsFile> files_;
  std::string_view text_;
  size_t at_ = 0;
  uint32_t file_ = 0, line_ = 1;
  ShellEnvironment variables_;
  std::string sourced_;  ///< a file that may have set what nothing else sets
  std::vector<ShellCommand> commands_;
  std::vector<std::pair<std::string, bool>> pending_documents_;  ///< ends of here documents; whether tabs are dropped
  bool is_dry_ = false;                                          ///< statements are read over
  bool is_pattern_ = false;                                      ///< words are read as patterns
  int depth_ = 0;
  size_t work_ = 0;
  std::optional<Error> error_;
};

}  // namespace weft
