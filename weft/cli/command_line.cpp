#include "weft/cli/command_line.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/cli/interrupt.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"
#include "weft/comm/launch.h"

namespace weft {
namespace {

constexpr int kDone = 0;
constexpr int kJobFailed = 1;
constexpr int kInputWrong = 2;

int report(const Error& error) {
  // Where even this cannot be written, the exit status still tells. An error without words is one that another process
  // of the same run shows.
  if (!error.problem.empty()) {
    const std::string message = error.message();
    const std::string place = error.source + (error.source.empty() || error.field.empty() ? "" : ": ") + error.field;
    // The place is only marked where the message shows it as it is.
    const size_t marked_size = !place.empty() && message.starts_with(place + ": ") ? place.size() : 0;
    std::fputs((marked("weft:", Mark::kError) + " " + marked(message.substr(0, marked_size), Mark::kPlace) +
                message.substr(marked_size) + "\n" + error.details)
                   .c_str(),
               stderr);
  }
  if (error.kind == ErrorKind::kInput) return kInputWrong;
  return interrupted_status().value_or(kJobFailed);
}

/// Standard output may be a full disk; a result that did not arrive is not a success. (A reader that closes a pipe
/// early, like head, ends the program by signal, as usual.)
int print_output(const std::string& output) {
  const std::string text = printable_lines(output);
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return kDone;
  return report({.kind = ErrorKind::kJob,
                 .source = "standard output",
                 .problem = "could not be written",
                 .advice = "Is the disk full?"});
}

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) names.push_back(verb->get_name());
  return names;
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

Error unknown_verb(const std::string& given, const std::vector<std::string>& verbs) {
  return {.problem = fmt::format("{} is not a verb", in_quotes(given)),
          .advice = fmt::format("Known are {}.{}", joined_or(verbs), did_you_mean(given, verbs))};
}

bool looks_like_flag(const std::string& argument) {
  return argument.size() > 1 && argument[0] == '-' && argument != "--" &&
         !std::isdigit(static_cast<unsigned char>(argument[1])) && argument[1] != '.';
}

/// What is wrong with how often a known option was given, or with what follows it.
std::optional<Error> find_bad_use(const Verb& verb, const std::vector<std::string>& arguments) {
  for (const VerbOption& option : verb.options) {
    const bool is_flag = std::holds_alternative<bool*>(option.target);
    const std::string call = is_flag ? option.flag : fmt::format("{} {}", option.flag, option.value);
    int times = 0;
    for (size_t i = 1; i < arguments.size(); ++i) {
      const bool has_value_inside = arguments[i].starts_with(option.flag + "=");
      if (arguments[i] != option.flag && !has_value_inside) continue;
      if (++times > 1)
        return Error{.source = verb.name,
                     .field = option.flag,
                     .problem = "is given more than once, once is allowed",
                     .advice = "Leave the others out."};
      if (is_flag && has_value_inside)
        return Error{.source = verb.name,
                     .field = option.flag,
                     .problem = fmt::format("is given with a value, {}, but takes none",
                                            in_quotes(arguments[i].substr(option.flag.size() + 1))),
                     .advice = fmt::format("Give {} alone, or leave it out.", option.flag)};
      const bool is_last = i + 1 == arguments.size() || looks_like_flag(arguments[i + 1]);
      if (!is_flag && !has_value_inside && is_last && !option.may_be_bare)
        return Error{.source = verb.name,
                     .field = option.flag,
                     .problem = "is given without a value",
                     .advice = fmt::format("Give {}: {}.", call, option.help)};
    }
    if (times == 0 && option.is_required)
      return Error{.source = verb.name,
                   .field = option.flag,
                   .problem = "is missing",
                   .advice = fmt::format("Give {}: {}.", call, option.help)};
  }
  return std::nullopt;
}

/// A value without a flag in front of it.
std::optional<Error> find_stray(const Verb& verb, const std::vector<std::string>& arguments) {
  bool may_be_value = false, takes_all = false;
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (looks_like_flag(arguments[i])) {
      const auto option = std::find_if(verb.options.begin(), verb.options.end(),
                                       [&](const VerbOption& o) { return o.flag == arguments[i]; });
      may_be_value = option != verb.options.end() && !std::holds_alternative<bool*>(option->target);
      takes_all = may_be_value && std::holds_alternative<std::vector<std::string>*>(option->target);
    } else if (!takes_all && !std::exchange(may_be_value, false)) {
      return Error{.source = verb.name,
                   .problem = fmt::format("{} stands alone, but every value follows its flag", in_quotes(arguments[i])),
                   .advice = fmt::format("'weft {} --help' names the flags.", verb.name)};
    }
  }
  return std::nullopt;
}

/// What CLI11 found wrong, said in the form of all our errors.
Error explain(const CLI::App& app, const Verbs& declared, const CLI::ParseError& parse_error,
              const std::vector<std::string>& arguments) {
  const std::vector<std::string> verbs = verb_names(app);
  const CLI::App* scope = &app;
  size_t first = 0;
  if (arguments.empty()) {
    return {.problem = "no verb given",
            .advice = fmt::format("Known are {}; 'weft --help' says more.", joined_or(verbs))};
  }
  if (!arguments[0].starts_with("-")) {
    if (std::find(verbs.begin(), verbs.end(), arguments[0]) == verbs.end()) return unknown_verb(arguments[0], verbs);
    scope = app.get_subcommand(arguments[0]);
    first = 1;
  }
  const std::string help = fmt::format("'weft {}--help' says more.", first == 1 ? arguments[0] + " " : "");
  const std::vector<std::string> flags = flag_names(*scope);
  for (size_t i = first; i < arguments.size(); ++i) {
    const std::string flag = arguments[i].substr(0, arguments[i].find('='));
    if (looks_like_flag(flag) && std::find(flags.begin(), flags.end(), flag) == flags.end()) {
      return {.source = first == 1 ? arguments[0] : "",
              .problem = fmt::format("{} is not a flag", in_quotes(flag)),
              .advice = fmt::format("Known are {}.{}", joined_or(flags), did_you_mean(flag, flags))};
    }
  }
  const auto verb =
      std::find_if(declared.begin(), declared.end(), [&](const Verb& v) { return v.name == arguments[0]; });
  if (verb != declared.end()) {
    if (auto error = find_bad_use(*verb, arguments)) return *std::move(error);
    if (auto error = find_stray(*verb, arguments)) return *std::move(error);
  }
  return {.source = first == 1 ? arguments[0] : "", .problem = printable(parse_error.what(), 200), .advice = help};
}

/// The parser's own check passes numbers over that are none, like nan.
std::string find_bad_number(const std::string& given, std::pair<double, double> range) {
  char* end = nullptr;
  const double value = std::strtod(given.c_str(), &end);
  const bool is_number = !given.empty() && end == given.c_str() + given.size();
  if (is_number && value >= range.first && value <= range.second) return "";
  return fmt::format("is {}, a number from {} to {} is needed", in_quotes(given), range.first, range.second);
}

void bind_option(CLI::App& parser, VerbOption& option) {
  const auto bind = [&](auto* target) -> CLI::Option* {
    if constexpr (std::is_same_v<decltype(target), bool*>) {
      return parser.add_flag(option.flag, *target, option.help);
    } else {
      return parser.add_option(option.flag, *target, option.help);
    }
  };
  CLI::Option* bound = std::visit(bind, option.target);
  if (!option.value.empty()) bound->type_name(option.value);
  if (option.is_required) bound->required();
  if (option.may_be_bare) bound->expected(0, 1);
  if (option.range)
    bound->check(
        CLI::Validator([range = *option.range](std::string& given) { return find_bad_number(given, range); }, ""));
}

/// Declares the verbs to the parser, which sets `chosen`.
void bind_verbs(CLI::App& parser, Verbs& verbs, const Verb*& chosen) {
  for (Verb& verb : verbs) {
    CLI::App* bound = parser.add_subcommand(verb.name, verb.summary);
    for (VerbOption& option : verb.options) bind_option(*bound, option);
    if (!verb.footer.empty()) bound->footer(verb.footer);
    bound->callback([&chosen, &verb] { chosen = &verb; });
  }
}

Verbs all_verbs() {
  Verbs verbs;
  add_describe(verbs);
  add_plan(verbs);
  add_check(verbs);
  add_simulate(verbs);
  add_validate(verbs);
  add_schedule(verbs);
  add_export(verbs);
  add_import(verbs);
  add_balance(verbs);
  add_shard(verbs);
  add_profile(verbs);
  add_train(verbs);
  add_eval(verbs);
  add_predict(verbs);
  add_convert(verbs);
  add_doctor(verbs);
  return verbs;
}

/// 'weft help' and 'weft help VERB'.
int print_help(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.size() == 1) return print_output(app.help());
  if (arguments.size() > 2)
    return report({.source = "help",
                   .problem = fmt::format("{} verbs are given, one is explained at a time", arguments.size() - 1),
                   .advice = fmt::format("Give 'weft help {}'.", printable(arguments[1]))});
  const std::vector<std::string> verbs = verb_names(app);
  if (std::find(verbs.begin(), verbs.end(), arguments[1]) == verbs.end())
    return report(unknown_verb(arguments[1], verbs));
  return print_output(app.get_subcommand(arguments[1])->help("weft"));
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Weft plans, simulates and runs hybrid-parallel training of multimodal models.", "weft"};
  app.set_version_flag("--version", std::string("weft ") + WEFT_VERSION, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(1);
  app.footer(
      "'weft help VERB' or 'weft VERB --help' explains a verb.\n"
      "Exit status: 0 done, 1 the job failed, 2 the input is wrong, 3 stopped by a signal with its state saved,\n"
      "130 interrupted (Ctrl-C).\n"
      "Example:\n"
      "  weft plan --model qwen2-vl-7b --cluster dgx_h100 --workload vl_sft --out plan.json");

  Verbs verbs = all_verbs();
  const Verb* chosen = nullptr;
  bind_verbs(app, verbs, chosen);
  app.add_subcommand("help", "Explain a verb: weft help plan");
  app.add_subcommand("version", "Print the version");

  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool has_verb = !arguments.empty() && !arguments[0].starts_with("-");
  if (has_verb && arguments[0] == "help") return print_help(app, arguments);
  if (has_verb && arguments[0] == "version") return print_output(std::string("weft ") + WEFT_VERSION + "\n");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const std::vector<CLI::App*> asked = app.get_subcommands();
    // Help for a verb that there is not is no answer.
    if (has_verb && asked.empty()) return report(unknown_verb(arguments[0], verb_names(app)));
    return print_output(asked.empty() ? app.help() : asked.front()->help("weft"));
  } catch (const CLI::CallForVersion& version) {
    return print_output(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    return report(explain(app, verbs, error, arguments));
  }
  // The parser takes the next flag for the value of one that has none.
  if (const auto error = find_bad_use(*chosen, arguments)) return report(*error);
  // Of several processes, one tells.
  if (!chosen->handles_signals && detect_launch().is_speaker()) end_on_interrupt(chosen->name);
  const Result<std::string> output = chosen->run();
  return output ? print_output(*output) : report(output.error());
}

}  // namespace

int run_command_line(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const std::bad_alloc&) {
    return report({.kind = ErrorKind::kJob, .problem = "memory ran out"});
  } catch (const std::exception& error) {
    return report({.kind = ErrorKind::kJob,
                   .source = "internal error",
                   .problem = error.what(),
                   .advice = "This is a bug in Weft; please report it with the command and its files."});
  }
}

}  // namespace weft
