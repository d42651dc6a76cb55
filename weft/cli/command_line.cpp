#include "weft/cli/command_line.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/cli/verbs.h"

namespace weft {
namespace {

constexpr int kDone = 0;
constexpr int kJobFailed = 1;
constexpr int kInputWrong = 2;

int report(const Error& error) {
  // Where even this cannot be written, the exit status still tells. An error without words is one that another process
  // of the same run shows.
  if (!error.problem.empty()) std::fputs(("weft: " + error.message() + "\n" + error.details).c_str(), stderr);
  return error.kind == ErrorKind::kInput ? kInputWrong : kJobFailed;
}

/// Standard output may be a full disk; a result that did not arrive is not a success. (A reader that closes a pipe
/// early, like head, ends the program by signal, as usual.)
int print_output(const std::string& text) {
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

/// What CLI11 found wrong, said better where the cause is a mistyped verb or flag.
Error explain(const CLI::App& app, const CLI::ParseError& parse_error, const std::vector<std::string>& arguments) {
  const std::vector<std::string> verbs = verb_names(app);
  const CLI::App* scope = &app;
  size_t first = 0;
  if (arguments.empty()) {
    return {.problem = "no verb given",
            .advice = fmt::format("Known are {}; 'weft --help' says more.", joined_or(verbs))};
  }
  if (!arguments[0].starts_with("-")) {
    if (std::find(verbs.begin(), verbs.end(), arguments[0]) == verbs.end()) {
      return {.problem = fmt::format("{} is not a verb", in_quotes(arguments[0])),
              .advice = fmt::format("Known are {}.{}", joined_or(verbs), did_you_mean(arguments[0], verbs))};
    }
    scope = app.get_subcommand(arguments[0]);
    first = 1;
  }
  const std::string help = fmt::format("'weft {}--help' says more.", first == 1 ? arguments[0] + " " : "");
  const std::vector<std::string> flags = flag_names(*scope);
  for (size_t i = first; i < arguments.size(); ++i) {
    const std::string flag = arguments[i].substr(0, arguments[i].find('='));
    const bool looks_like_flag =
        flag.size() > 1 && flag[0] == '-' && flag != "--" && !std::isdigit(static_cast<unsigned char>(flag[1]));
    if (looks_like_flag && std::find(flags.begin(), flags.end(), flag) == flags.end()) {
      return {.source = first == 1 ? arguments[0] : "",
              .problem = fmt::format("{} is not a flag", in_quotes(flag)),
              .advice = fmt::format("Known are {}.{}", joined_or(flags), did_you_mean(flag, flags))};
    }
  }
  return {.source = first == 1 ? arguments[0] : "", .problem = printable(parse_error.what()), .advice = help};
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
  if (option.range) bound->check(CLI::Range(option.range->first, option.range->second));
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
  add_balance(verbs);
  add_train(verbs);
  add_eval(verbs);
  add_predict(verbs);
  add_doctor(verbs);
  return verbs;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Weft plans, simulates and runs hybrid-parallel training of multimodal models.", "weft"};
  app.set_version_flag("--version", std::string("weft ") + WEFT_VERSION, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(1);
  app.footer("'weft VERB --help' explains a verb. Exit status: 0 done, 1 the job failed, 2 the input is wrong.");

  Verbs verbs = all_verbs();
  const Verb* chosen = nullptr;
  bind_verbs(app, verbs, chosen);

  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const std::vector<CLI::App*> asked = app.get_subcommands();
    return print_output(asked.empty() ? app.help() : asked.front()->help("weft"));
  } catch (const CLI::CallForVersion& version) {
    return print_output(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    return report(explain(app, error, arguments));
  }
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
