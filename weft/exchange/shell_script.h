#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/base/result.h"

namespace weft {

/// A file of another system's settings.
struct SettingsFile {
  std::string name;
  std::string text;
};

/// Where something was written: a file of those that were given, and a line of it, from 1. Line 0 is nowhere: computed.
struct Place {
  uint32_t file = 0;
  uint32_t line = 0;

  bool operator==(const Place&) const = default;
};

/// A word of a command as far as it is known without running anything.
struct ShellWord {
  std::string text;
  std::string unknown;    ///< why it is not known, "the command date in line 12"; empty where it is
  bool is_unset = false;  ///< a variable that nothing sets, which a shell would leave out
  Place place;            ///< of its first letter: where a variable was assigned, not where it was used
};

struct ShellCommand {
  std::vector<ShellWord> words;
  Place place;
};

/// What a user says of the environment: variables, which win over what the script assigns, and "1", "2" for the
/// script's own arguments.
using ShellVariables = std::map<std::string, std::string>;

/// The commands of a script, in order, with variables, arrays, arithmetic and conditions resolved. Nothing is run: what
/// depends on a command, a loop or a file is unknown, and whoever needs such a word can say why. A file that the first
/// one sources is read where it is among those given. Every text is accepted that is not larger or deeper than scripts
/// are; a quote or bracket that is left open is an error with its line.
Result<std::vector<ShellCommand>> read_script(std::span<const SettingsFile> files, const ShellVariables& given = {});

/// The lists of arguments that a script leaves in its variables, as one command in the order in which they were
/// written: what a file that only holds settings, to be sourced by others, would pass on. No words: it has none.
struct ArgumentLists {
  std::vector<std::string> variables;
  ShellCommand command;
};
Result<ArgumentLists> read_argument_lists(std::span<const SettingsFile> files, const ShellVariables& given = {});

}  // namespace weft
