#pragma once

#include <functional>
#include <string>

#include <CLI/CLI.hpp>

#include "weft/base/result.h"

namespace weft {

/// The chosen verb with its options bound; returns what goes to standard output.
using RunVerb = std::function<Result<std::string>()>;

// One function a verb, each in a file of its name: declares the verb's options, and sets `run` when it is chosen.
void add_describe(CLI::App& app, RunVerb& run);
void add_plan(CLI::App& app, RunVerb& run);
void add_check(CLI::App& app, RunVerb& run);
void add_simulate(CLI::App& app, RunVerb& run);
void add_validate(CLI::App& app, RunVerb& run);
void add_schedule(CLI::App& app, RunVerb& run);
void add_export(CLI::App& app, RunVerb& run);
void add_balance(CLI::App& app, RunVerb& run);
void add_train(CLI::App& app, RunVerb& run);
void add_eval(CLI::App& app, RunVerb& run);
void add_predict(CLI::App& app, RunVerb& run);
void add_doctor(CLI::App& app, RunVerb& run);

}  // namespace weft
