#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/shell_condition.h"
#include "weft/exchange/shell_reader.h"

namespace weft {

void ShellReader::set(const std::string& name, ShellValue value) {
  charge(value);
  if (!error_) variables_.set(name, std::move(value));
}

void ShellReader::set_unknown(const MarkedText& word, const std::string& why) {
  const size_t bracket = word.text.find('[');
  const std::string name = word.text.substr(0, bracket);
  if (is_variable_name(name)) set(name, {.is_array = bracket != std::string::npos, .unknown = why});
}

Truth ShellReader::run_command(std::vector<MarkedText>& words, Place place) {
  const std::string name = words.front().unknown.empty() ? words.front().text : "";
  if (name == ":" || name == "true" || name == "shopt" || name == "export" || name == "readonly") return Truth::kTrue;
  if (name == "false") return Truth::kFalse;
  if (name == "declare" || name == "local" || name == "typeset") return declare(words), Truth::kTrue;
  if (name == "let") return let(words);
  if (name == "shift") return shift(words, place);
  if (name == "set") return set_arguments(words, place), Truth::kTrue;
  if (name == "[" || name == "test") {
    std::vector<MarkedText> rest(words.begin() + 1, words.end());
    if (name == "[" && !rest.empty() && rest.back().text == "]") rest.pop_back();
    size_t work = 0;
    return test_of(rest, TestKind::kBrackets, work);
  }
  if (name == "source" || name == ".") return source(words, place), Truth::kUnknown;
  if (name == "read" || name == "mapfile" || name == "readarray") return read_input(words, place), Truth::kUnknown;
  if (name == "getopts") return options(words, place);
  if (name == "unset") return unset(words), Truth::kTrue;
  if (name == "printf" && words.size() > 2 && words[1].text == "-v") {
    set_unknown(words[2], fmt::format("the text that line {} prints", place.line));
    return Truth::kTrue;
  }
  if (name == "eval") {
    const MarkedText text = joined({words.begin() + 1, words.end()}, place);
    if (text.unknown.empty()) {
      sub_script(text.text, file_, /*keeps_places=*/false);
      return Truth::kUnknown;
    }
  }
  ShellCommand command{.words = {}, .place = place};
  for (MarkedText& word : words) {
    const Place at = word.places.empty() ? Place{place.file, 0} : word.places.front();
    command.words.push_back(
        {.text = std::move(word.text), .unknown = std::move(word.unknown), .is_unset = word.is_unset, .place = at});
  }
  commands_.push_back(std::move(command));
  return Truth::kUnknown;
}

void ShellReader::source(const std::vector<MarkedText>& words, Place place) {
  if (words.size() < 2) return;
  const std::string name = std::filesystem::path(words[1].text).filename().string();
  for (uint32_t file = 1; file < files_.size(); ++file) {
    if (std::filesystem::path(files_[file].name).filename() == name) return sub_script(files_[file].text, file, true);
  }
  sourced_ = fmt::format("{} (sourced in line {})", name.empty() ? "a file" : printable(name), place.line);
}

/// Names without a value; those with one were set where they stood.
void ShellReader::declare(const std::vector<MarkedText>& words) {
  bool is_integer = false, is_none = false;
  for (const MarkedText& word : words) {
    const bool has_i = word.text.find('i') != std::string::npos;
    is_integer |= word.text.starts_with("-") && has_i;
    is_none |= word.text.starts_with("+") && has_i;
    if (!is_variable_name(word.text) || &word == &words.front()) continue;
    if (is_integer) set(integer_mark(word.text), {});
    if (is_none) variables_.unset(integer_mark(word.text));
  }
}

void ShellReader::unset(const std::vector<MarkedText>& words) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i].text == "-f") return;  // a function
    if (words[i].text.find('[') != std::string::npos) {
      set_unknown(words[i], fmt::format("an item that line {} removes", line_));
    } else {
      variables_.unset(words[i].text);
      variables_.unset(integer_mark(words[i].text));
    }
  }
}

void ShellReader::read_input(const std::vector<MarkedText>& words, Place place) {
  const std::string why = fmt::format("the input that line {} reads", place.line);
  for (size_t i = 1; i < words.size(); ++i) set_unknown(words[i], why);
}

Truth ShellReader::options(const std::vector<MarkedText>& words, Place place) {
  const ShellValue& arguments = *variables_.find(kShellArguments);
  if (arguments.unknown.empty() && arguments.items.empty()) return Truth::kFalse;
  const std::string why = fmt::format("the option that line {} reads", place.line);
  if (words.size() > 2) set_unknown(words[2], why);
  set("OPTARG", {.unknown = why});
  set("OPTIND", {.unknown = why});
  return Truth::kUnknown;
}

Truth ShellReader::let(const std::vector<MarkedText>& words) {
  MarkedText value;
  for (size_t i = 1; i < words.size(); ++i) value = arithmetic_of(words[i]);
  return value.unknown.empty() ? truth_of(value.text != "0") : Truth::kUnknown;
}

Truth ShellReader::shift(const std::vector<MarkedText>& words, Place place) {
  const std::string name(kShellArguments);
  const ShellValue& arguments = *variables_.find(name);
  if (!arguments.unknown.empty()) return Truth::kUnknown;
  const std::string by = words.size() > 1 ? words[1].text : "1";
  constexpr size_t kMostDigitsOfShift = 6;
  const bool is_number = by.size() <= kMostDigitsOfShift && !by.empty() &&
                         std::all_of(by.begin(), by.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!is_number) {
    set(name, {.is_array = true, .unknown = fmt::format("the arguments that line {} shifts", place.line)});
    return Truth::kUnknown;
  }
  const size_t count = std::stoul(by);
  if (count > arguments.items.size()) return Truth::kFalse;
  charge(arguments);
  if (error_) return Truth::kUnknown;
  const auto first = arguments.items.begin() + static_cast<ptrdiff_t>(count);
  set(name, {.is_array = true, .items = {first, arguments.items.end()}});
  return Truth::kTrue;
}

void ShellReader::set_arguments(const std::vector<MarkedText>& words, Place place) {
  size_t first = 1;
  bool is_list = false;
  for (; first < words.size() && !is_list; ++first) {
    const MarkedText& word = words[first];
    is_list = word.text == "--";
    if (is_list) continue;
    if (!word.unknown.empty() || (!word.text.starts_with("-") && !word.text.starts_with("+"))) break;
    if (word.text.ends_with("o")) ++first;  // its name follows
  }
  first = std::min(first, words.size());
  if (!is_list && first == words.size()) return;
  ShellValue arguments{.is_array = true, .items = {words.begin() + static_cast<ptrdiff_t>(first), words.end()}};
  // A word that is not known may be several, or none.
  if (std::any_of(words.begin(), words.end(), [](const MarkedText& word) { return !word.unknown.empty(); }))
    arguments = {.is_array = true, .unknown = fmt::format("the arguments that line {} sets", place.line)};
  set(std::string(kShellArguments), std::move(arguments));
}

}  // namespace weft
