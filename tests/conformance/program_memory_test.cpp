// What is said that ranks hold of users' own programs, against ranks that run them: never less than is held after an
// action, at most a tenth more, and a peak that is not above what is said. Below 64 KiB nothing is asked.
#include <regex>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/pipeline/example_programs.h"
#include "tests/support/program/random_strategy.h"
#include "weft/simulate/step_memory.h"
#include "weft/tensor/memory_count.h"

namespace weft::program_memory_test {
namespace {

constexpr double kMostAbove = 0.10;
constexpr int64_t kFewBytes = 64 << 10;

/// The same program with longer dims and wider heads; samples stay as many.
std::string widened(const std::string& text, int64_t factor) {
  std::istringstream lines(text);
  std::string line, wide;
  while (std::getline(lines, line)) {
    std::smatch found;
    const auto times = [&](size_t group) { return std::to_string(factor * std::stoll(found[group].str())); };
    if (std::regex_match(line, found, std::regex(R"(dim ([a-z]+) (\d+)( unit (\d+))?)")) && found[1] != "b") {
      line = "dim " + found[1].str() + " " + times(2) + (found[4].matched ? " unit " + times(4) : "");
    } else if (std::regex_search(line, found, std::regex(R"(heads (\d+) (\d+) (\d+))"))) {
      line = found.prefix().str() + "heads " + found[1].str() + " " + found[2].str() + " " + times(3) +
             found.suffix().str();
    }
    wide += line + "\n";
  }
  return wide;
}

/// What a rank held.
struct Held {
  int64_t start_peak = 0, batch = 0, before_step = 0;
  std::vector<Action> done;
  std::vector<ActionMemory> actions;
};

std::vector<Held> run_program(const TrainingExample& example, const Plan& plan) {
  std::vector<Held> held(static_cast<size_t>(plan.world_size));
  thread_ranks().run(plan.world_size, [&](World& world) {
    at::set_num_threads(1);
    Held& own = held[static_cast<size_t>(world.rank())];
    const auto count = std::make_shared<MemoryCount>();
    const CountedThread counted(count);
    auto made = TrainingRank::create(world, plan, {.seed = kExampleSeed});
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    TrainingRank& rank = **made;
    own.start_peak = count->peak_bytes();
    const int64_t started = count->current_bytes();
    const ProgramNumbers& numbers = *rank.numbers().program;
    const auto samples = program_batch(numbers, 1, example.batch());
    const StepBatch batch = program_step_batch(rank, samples, 1);
    own.before_step = count->current_bytes();
    own.batch = own.before_step - started;
    const StepReport report = rank.step(batch, named_inputs(numbers, samples).num_targets, kExampleRate);
    for (const TimelineEvent& event : report.events) own.done.push_back(event.action);
    own.actions = report.memory;
  });
  return held;
}

StepLoad program_load(const Plan& plan) {
  StepLoad load;
  const int64_t rows = plan.model.numbers.program->rows.rows_per_sample;
  const MicrobatchLoad one{.samples = std::vector<int64_t>(static_cast<size_t>(plan.schedule.mbs), rows)};
  load.llm.assign(static_cast<size_t>(plan.llm().dp),
                  std::vector<MicrobatchLoad>(static_cast<size_t>(plan.schedule.microbatches), one));
  return load;
}

TEST(ProgramMemory, IsSaidAfterEveryActionAndAtItsPeak) {
  const std::vector<std::string> programs = {encoder_program(0.0), tied_program(), heads_program()};
  int64_t most_held = 0;
  for (uint64_t seed = 1; seed <= draws(uint64_t{18}) && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](const auto& from) { return from[random() % from.size()]; };
    const Model model = program_example_model(widened(programs[seed % 3], 8));
    TrainingExample example{.steps = 1};
    example.tp = 2;
    example.mbs = pick(std::vector<int64_t>{2, 4});
    example.microbatches = 4;
    example.pp = pick(std::vector<int64_t>{1, 2});
    example.schedule = pick(std::vector<std::string>{"1f1b", "gpipe", "zb_h1"});
    example.recompute.full = static_cast<int64_t>(random() % 2);
    Plan plan = example_training_plan(example, model);
    if (seed % 2 != 0) plan = with_llm_strategy(plan, random_strategy(model.modules.back(), random));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + example.name() + " " + to_json(plan.llm().strategy).dump());
    const std::vector<Held> held = run_program(example, plan);
    for (int64_t rank = 0; rank < plan.world_size; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      const Result<StepMemory> said = step_memory(plan, program_load(plan), rank);
      ASSERT_TRUE(said.ok()) << said.error().message();
      const Held& own = held[static_cast<size_t>(rank)];
      ASSERT_EQ(said->actions.size(), own.actions.size());
      int64_t peak = own.start_peak;
      for (size_t i = 0; i < own.actions.size(); ++i) {
        const ActionMemory& found = own.actions[i];
        const int64_t bytes = found.held_bytes - found.sent_bytes - own.before_step;
        EXPECT_GE(said->actions[i].held + kFewBytes, bytes) << to_text(own.done[i]);
        EXPECT_LE(static_cast<double>(said->actions[i].held), (1 + kMostAbove) * static_cast<double>(bytes) + kFewBytes)
            << bytes << " held after " << to_text(own.done[i]);
        most_held = std::max(most_held, bytes);
        peak = std::max(peak, found.peak_bytes - own.batch);
      }
      EXPECT_LE(peak, said->peak_bytes());
    }
  }
  EXPECT_GT(most_held, int64_t{1} << 20) << "the steps are too small beside the tolerance";
}

}  // namespace
}  // namespace weft::program_memory_test
