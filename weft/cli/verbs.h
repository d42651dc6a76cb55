#pragma once

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "weft/base/result.h"

namespace weft {

// Verbs and their options as data. Only command_line.cpp knows the library that parses them: it takes seconds to
// compile.

/// An option of a verb, and the variable that holds what was given for it.
struct VerbOption {
  /// A bool is a flag; several texts may follow a flag that has a list.
  using Target = std::variant<bool*, double*, std::string*, std::optional<std::string>*, std::vector<std::string>*>;

  std::string flag;
  Target target;
  std::string help;
  std::string value = "";  ///< what help calls it
  bool is_required = false;
  bool may_be_bare = false;  ///< given without a value, it is an empty text
  std::optional<std::pair<double, double>> range = std::nullopt;

  VerbOption& named(std::string name) {
    value = std::move(name);
    return *this;
  }
  VerbOption& required() {
    is_required = true;
    return *this;
  }
  VerbOption& bare() {
    may_be_bare = true;
    return *this;
  }
  VerbOption& within(double min, double max) {
    range = {min, max};
    return *this;
  }
};

struct Verb {
  std::string name;
  std::string summary;
  std::list<VerbOption> options = {};
  std::string footer = "";                        ///< examples
  bool handles_signals = false;                   ///< itself, with what it loads
  std::function<Result<std::string>()> run = {};  ///< returns what goes to standard output

  template <typename Target>
  VerbOption& option(std::string_view flag, Target& target, std::string_view help) {
    return options.emplace_back(VerbOption{.flag = std::string(flag), .target = &target, .help = std::string(help)});
  }
};

using Verbs = std::list<Verb>;

// One function a verb, each in a file of its name.
void add_describe(Verbs& verbs);
void add_plan(Verbs& verbs);
void add_check(Verbs& verbs);
void add_simulate(Verbs& verbs);
void add_validate(Verbs& verbs);
void add_schedule(Verbs& verbs);
void add_export(Verbs& verbs);
void add_import(Verbs& verbs);
void add_balance(Verbs& verbs);
void add_train(Verbs& verbs);
void add_eval(Verbs& verbs);
void add_predict(Verbs& verbs);
void add_doctor(Verbs& verbs);
void add_profile(Verbs& verbs);
void add_convert(Verbs& verbs);
void add_shard(Verbs& verbs);

}  // namespace weft
