#include <algorithm>
#include <cctype>
#include <filesystem>

#include <fmt/format.h>

#include "weft/base/foreign_document.h"
#include "weft/base/text.h"
#include "weft/exchange/import_parts.h"
#include "weft/exchange/key_lines.h"
#include "weft/exchange/megatron_keys.h"

namespace weft {
namespace {

/// YAML files and some launchers write underscores.
std::string with_dashes(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

bool is_document(const SettingsFile& file) {
  const std::string extension = std::filesystem::path(file.name).extension().string();
  return extension == ".json" || extension == ".yaml" || extension == ".yml";
}

/// Words of one command by key. Words before the first key are the program.
void give_words(const std::vector<ShellWord>& words, ImportedKeys& keys) {
  ImportedKeys::Given given;
  std::vector<ShellWord> values;
  bool has_key = false;
  const auto close = [&] {
    if (!has_key) return;
    if (values.size() == 1) given.value = values.front().text;
    if (values.size() > 1) {
      given.value = Json::array();
      for (const ShellWord& value : values) given.value.push_back(value.text);
    }
    for (const ShellWord& value : values) {
      if (!value.unknown.empty()) given.unknown = value.unknown;
    }
    if (!values.empty()) given.place = values.front().place;
    keys.give(given);
    has_key = false;
    values.clear();
  };
  for (const ShellWord& word : words) {
    if (word.unknown.empty() && word.text.starts_with("--") && word.text.size() > 2) {
      close();
      given = {.place = word.place};
      std::string key = word.text.substr(2);
      if (const size_t equals = key.find('='); equals != std::string::npos) {
        ShellWord value = word;
        value.text = key.substr(equals + 1);
        values.push_back(value);
        key.resize(equals);
      }
      given.key = with_dashes(key);
      has_key = true;
    } else if (word.unknown.empty() && word.text.ends_with(".py")) {
      close();                                                    // what comes before it is the launcher's
    } else if (has_key && !(word.is_unset && !values.empty())) {  // such a word is taken to be empty
      values.push_back(word);
    }
  }
  close();
}

/// A word that is not known and stands where arguments do may be any of them.
std::optional<Error> find_unknown_list(const std::vector<ShellWord>& words, const SettingsFile& file, Place place,
                                       ImportedKeys& keys) {
  bool after_value = true;  // a word here would begin an argument
  for (const ShellWord& word : words) {
    const bool is_key = word.unknown.empty() && word.text.starts_with("--");
    if (!word.unknown.empty() && after_value) {
      if (word.is_unset) {
        keys.note(fmt::format("{} stands among the arguments in line {} of {}; it is taken to be empty", word.unknown,
                              place.line, file.name));
      } else {
        return Error{.source = file.name,
                     .field = fmt::format("line {}", place.line),
                     .problem = fmt::format("some arguments depend on {}, and nothing is ever run to read settings",
                                            word.unknown),
                     .advice = "Write them out, or give the variable with --set NAME=VALUE."};
      }
    }
    after_value = !is_key;
  }
  return std::nullopt;
}

/// A command that cuts weights for degrees of their own, before a training loads them: MindSpeed-MM's mm-convert, or
/// Megatron-LM's tool. Its settings are listed as "convert.NAME".
void give_conversion(const ShellCommand& command, ImportedKeys& keys) {
  constexpr std::string_view kPrefixes[] = {"--cfg.parallel_config.", "--target-"};
  for (size_t i = 0; i < command.words.size(); ++i) {
    const ShellWord& word = command.words[i];
    for (const std::string_view prefix : kPrefixes) {
      if (!word.unknown.empty() || !word.text.starts_with(prefix)) continue;
      std::string key = word.text.substr(prefix.size());
      ShellWord value = word;
      if (const size_t equals = key.find('='); equals != std::string::npos) {
        value.text = key.substr(equals + 1);
        key.resize(equals);
      } else if (i + 1 < command.words.size()) {
        value = command.words[i + 1];
      }
      // Lists of layers are JSON; what is none, or nested beyond the limits of documents, stays a text.
      auto parsed = parse_document(value.text, key, Syntax::kJson);
      keys.give({.key = "convert." + key,
                 .value = parsed ? std::move(parsed->root) : Json(value.text),
                 .unknown = value.unknown,
                 .place = value.place});
    }
  }
}

bool is_conversion(const ShellCommand& command) {
  return std::any_of(command.words.begin(), command.words.end(), [](const ShellWord& word) {
    return word.unknown.empty() && (word.text.ends_with("mm-convert") || word.text.ends_with("checkpoint/convert.py"));
  });
}

/// Whether a command starts a training: it has an argument that some plan would have.
bool is_training(const ShellCommand& command) {
  namespace key = megatron_key;
  for (const ShellWord& word : command.words) {
    if (!word.unknown.empty() || !word.text.starts_with("--")) continue;
    const std::string name = with_dashes(word.text.substr(2, word.text.find('=') - 2));
    for (const char* known : {key::kTp, key::kPp, key::kCp, key::kMbs, key::kBatch, key::kHetero, "num-layers", "lr"}) {
      if (name == known) return true;
    }
  }
  return false;
}

std::string signature(const ShellCommand& command) {
  std::string text;
  for (const ShellWord& word : command.words) {
    if (word.text.starts_with("--")) text += word.text + "\n";
  }
  return text;
}

std::optional<Error> read_commands(const ImportRequest& request, std::vector<SettingsFile> scripts,
                                   const std::vector<uint32_t>& numbers, ImportedKeys& keys) {
  WEFT_CHECK(!scripts.empty(), "no script");
  auto commands = read_script(scripts, request.variables);
  if (!commands) return commands.error();
  std::vector<ShellCommand> trainings;
  for (ShellCommand& command : *commands) {
    for (ShellWord& word : command.words) word.place.file = numbers[word.place.file];
    if (is_conversion(command)) {
      give_conversion(command, keys);
    } else if (is_training(command)) {
      trainings.push_back(std::move(command));
    }
  }
  // A script beside the training's may convert its weights.
  for (size_t i = 1; i < scripts.size(); ++i) {
    auto others = read_script(std::span(scripts).subspan(i, 1), request.variables);
    if (!others) return others.error();
    for (ShellCommand& command : *others) {
      for (ShellWord& word : command.words) word.place.file = numbers[i];
      if (is_conversion(command)) give_conversion(command, keys);
    }
  }
  if (trainings.empty()) {
    auto lists = read_argument_lists(scripts, request.variables);
    if (!lists) return lists.error();
    for (ShellWord& word : lists->command.words) word.place.file = numbers[word.place.file];
    if (is_training(lists->command)) {
      keys.note(fmt::format("no command of {} starts a training; the arguments that its variables hold are read: {}",
                            scripts.front().name, fmt::join(lists->variables, ", ")));
      trainings.push_back(std::move(lists->command));
    }
  }
  if (trainings.empty()) {
    // A line of arguments alone is a command, too; a script without one has nothing to read.
    return Error{.source = scripts.front().name,
                 .problem = "has no command with arguments of a training, like --micro-batch-size",
                 .advice = "Give the script that starts the training, or the arguments with --args."};
  }
  for (const ShellCommand& other : trainings) {
    if (signature(other) == signature(trainings.front())) continue;
    return Error{.source = scripts.front().name,
                 .problem = fmt::format("starts several trainings, in lines {} and {}", trainings.front().place.line,
                                        other.place.line),
                 .advice = "Give a script with one of them."};
  }
  const ShellCommand& training = trainings.back();
  if (auto error = find_unknown_list(training.words, scripts.front(), training.place, keys)) return error;
  give_words(training.words, keys);
  return std::nullopt;
}

/// A text of several words stands for as many values, also in brackets, as on a command line.
Json words_in(const std::string& text) {
  std::string_view words = text;
  if (words.starts_with('[') && words.ends_with(']') && words.find(',') == words.npos)
    words = words.substr(1, words.size() - 2);
  if (words.find(' ') == words.npos || words.starts_with('(')) return text;
  Json list = Json::array();
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    if (end > begin) list.push_back(std::string(words.substr(begin, end - begin)));
    begin = end + 1;
  }
  return list;
}

/// A YAML file of arguments: under MODEL_ARGS with dashes, or in sections with underscores.
void give_yaml_arguments(const Json& root, uint32_t file, const KeyLines& lines, ImportedKeys& keys) {
  if (!root.is_object()) return;
  for (const auto& [name, value] : root.items()) {
    if (name.starts_with("MODEL_ARGS_")) {
      keys.note(fmt::format("{} has arguments of a later run, which are not read", name));
      continue;
    }
    if (name == "ENV_VARS" || name == "TEST_TYPE" || name == "LAUNCHER" || name == "METRICS") continue;
    if (value.is_object()) {
      give_yaml_arguments(value, file, lines, keys);
      continue;
    }
    if (value.is_null() || value == false) continue;  // not given
    const std::string key = with_dashes(name.starts_with("--") ? name.substr(2) : name);
    ImportedKeys::Given given{.key = key, .value = value, .place = {file, lines.line_of({name})}};
    if (value == true) given.value = nullptr;
    if (value.is_string()) given.value = words_in(value.get<std::string>());
    if (value.is_string() && value.get<std::string>().find("${") != std::string::npos)
      given.unknown = fmt::format("the variable in {}", in_quotes(value.get<std::string>()));
    keys.give(std::move(given));
  }
}

}  // namespace

namespace {

/// `path` is that of `root`, whose name is `prefix`.
void give_members(const Json& root, const std::string& prefix, std::vector<std::string>& path, uint32_t file,
                  const KeyLines& lines, ImportedKeys& keys) {
  for (const auto& [name, value] : root.items()) {
    const std::string key = prefix.empty() ? name : prefix + "." + name;
    path.push_back(name);
    if (value.is_object() && !value.empty()) {
      give_members(value, key, path, file, lines, keys);
    } else {
      keys.give({.key = key, .value = value, .place = {file, lines.line_of(path)}});
    }
    path.pop_back();
  }
}

}  // namespace

void give_values(const Json& root, const std::string& section, uint32_t file, std::string_view text,
                 ImportedKeys& keys) {
  if (!root.is_object()) return;
  std::vector<std::string> path;
  if (!section.empty()) path.push_back(section);
  give_members(root, section, path, file, KeyLines(text), keys);
}

Result<Document> foreign_document(const SettingsFile& file, ImportedKeys& keys) {
  std::vector<std::string> repeated;
  WEFT_TRY(Document document,
           parse_foreign_document(file.text, file.name, syntax_of(file.name, file.text), {}, &repeated));
  for (const std::string& key : repeated)
    keys.note(fmt::format("{} stands twice in {}; the system takes the last one without a word", key, file.name));
  return document;
}

Result<std::vector<size_t>> read_arguments(const ImportRequest& request, ImportedKeys& keys) {
  std::vector<size_t> others;
  std::vector<SettingsFile> scripts;
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < request.files.size(); ++i) {
    if (is_document(request.files[i])) {
      others.push_back(i);
      continue;
    }
    scripts.push_back(request.files[i]);
    numbers.push_back(static_cast<uint32_t>(i));
  }
  if (!scripts.empty()) {
    if (auto error = read_commands(request, scripts, numbers, keys)) return *std::move(error);
  }
  if (request.system == Target::kMegatron) {
    for (const size_t i : others) {
      WEFT_TRY(const Document document, foreign_document(request.files[i], keys));
      give_yaml_arguments(document.root, static_cast<uint32_t>(i), KeyLines(request.files[i].text), keys);
    }
    others.clear();
  }
  if (!request.arguments.empty()) {
    const std::vector<SettingsFile> line = {{"--args", request.arguments}};
    WEFT_TRY(std::vector<ShellCommand> commands, read_script(line, request.variables));
    for (ShellCommand& command : commands) {
      for (ShellWord& word : command.words) word.place = {static_cast<uint32_t>(request.files.size()), 1};
      give_words(command.words, keys);
    }
  }
  return others;
}

}  // namespace weft
