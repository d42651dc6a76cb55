// What is said that ranks hold of users' own programs, against ranks that run them: never less than is held after an
// action, at most a tenth more, and a peak that is not above what is said. Below 64 KiB nothing is asked.
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/conformance/program_load.h"
#include "tests/support/draws.h"
#include "tests/support/first_seed.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/pipeline/example_programs.h"
#include "tests/support/program/random_strategy.h"
#include "weft/simulate/step_memory.h"
#include "weft/tensor/memory_count.h"

namespace weft::program_memory_test {
namespace {

constexpr double kMostAbove = 0.10;
constexpr int64_t kFewBytes = 64 << 10;
/// Of a program whose samples have one row.
constexpr int64_t kManySamples = 512;

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
    const int64_t num_targets = named_inputs(numbers, samples).num_targets;  // whose tensors the step would hold
    const StepBatch batch = program_step_batch(rank, samples, 1);
    own.before_step = count->current_bytes();
    own.batch = own.before_step - started;
    const StepReport report = rank.step(batch, num_targets, kExampleRate);
    for (const TimelineEvent& event : report.events) own.done.push_back(event.action);
    own.actions = report.memory;
  });
  return held;
}

struct ComparedProgram {
  std::string name;
  std::string text;
  bool marks_layers = true;
  std::vector<std::string> frozen = {"*layers.1.*"};  ///< one of them, in every third plan
  std::vector<uint64_t> seeds = {};                   ///< of plans besides, which were predicted wrongly
};

void PrintTo(const ComparedProgram& program, std::ostream* out) {
  *out << program.name;
}

/// The program with other attention.
std::string with_attention(std::string text, const std::string& settings) {
  const std::string mask = "mask causal";
  return text.replace(text.find(mask), mask.size(), settings);
}

class HeldProgramMemory : public testing::TestWithParam<ComparedProgram> {
 protected:
  Plan drawn_plan(uint64_t seed, TrainingExample& example) const {
    const ComparedProgram& program = GetParam();
    std::mt19937_64 random(seed);
    const Model model = program_example_model(widened(program.text, 8));
    example = drawn_program_example({1, 2, 2, 3}, program.marks_layers, random);
    example.steps = 1;
    example.mbs = random() % 2 == 0 ? 2 : 4;
    if (!program.marks_layers) example.mbs *= kManySamples;
    if (seed % 4 == 0)
      example.precision = {.compute = Precision::kBf16, .master = Precision::kFp32, .reduce = Precision::kFp32};
    Plan plan = example_training_plan(example, model);
    if (seed % 3 == 1) plan.trainable = {{program.frozen[seed / 3 % program.frozen.size()], false}};
    if (example.tp > 1 && random() % 3 != 0)
      plan = with_llm_strategy(plan, random_strategy(model.modules.back(), random));
    return plan;
  }

  void compare(const Held& run, const StepMemory& said) {
    ASSERT_EQ(said.actions.size(), run.actions.size());
    int64_t peak = run.start_peak;
    std::string peaks;  // of actions: found, said
    for (size_t i = 0; i < run.actions.size(); ++i) {
      const ActionMemory& found = run.actions[i];
      const int64_t bytes = found.held_bytes - found.sent_bytes - run.before_step;
      const auto most = static_cast<int64_t>((1 + kMostAbove) * static_cast<double>(bytes)) + kFewBytes;
      EXPECT_TRUE(said.actions[i].held + kFewBytes >= bytes && said.actions[i].held <= most)
          << said.actions[i].held << " bytes are said to be held after " << to_text(run.done[i]) << ", and " << bytes
          << " are";
      most_held_ = std::max(most_held_, bytes);
      peak = std::max(peak, found.peak_bytes - run.batch);
      peaks +=
          fmt::format("{} {} {}\n", to_text(run.done[i]), found.peak_bytes - run.before_step, said.actions[i].peak);
    }
    EXPECT_LE(peak, said.peak_bytes()) << peaks << "start " << run.start_peak;
  }

  int64_t most_held_ = 0;
};

TEST_P(HeldProgramMemory, IsSaidAfterEveryActionAndAtItsPeak) {
  constexpr uint64_t kPlans = 12;
  std::vector<uint64_t> seeds;
  for (uint64_t i = 1; i <= draws(kPlans); ++i) seeds.push_back(first_seed(i));
  if (has_usual_seeds()) seeds.insert(seeds.end(), GetParam().seeds.begin(), GetParam().seeds.end());
  for (const uint64_t seed : seeds) {
    if (HasFailure()) break;
    TrainingExample example;
    const Plan plan = drawn_plan(seed, example);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan) + " " +
                 to_json(plan.llm().strategy).dump());
    const std::vector<Held> held = run_program(example, plan);
    for (int64_t rank = 0; rank < plan.world_size; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      const Result<StepMemory> said = step_memory(plan, program_load(plan), rank);
      ASSERT_TRUE(said.ok()) << said.error().message();
      compare(held[static_cast<size_t>(rank)], *said);
    }
  }
  record_plans(seeds.size());
  if (!has_usual_seeds()) return;
  EXPECT_GT(most_held_, int64_t{1} << 20) << "the steps are too small beside the tolerance";
}

INSTANTIATE_TEST_SUITE_P(
    Programs, HeldProgramMemory,
    testing::Values(
        ComparedProgram{.name = "Encoder", .text = encoder_program(0), .seeds = {2017, 4001}},
        ComparedProgram{.name = "Dropout", .text = encoder_program(0.2)},
        ComparedProgram{.name = "Sliding", .text = with_attention(encoder_program(0), "mask sliding 9")},
        ComparedProgram{.name = "Tied", .text = tied_program(), .seeds = {1023, 3011}},
        ComparedProgram{.name = "Heads", .text = heads_program(), .seeds = {1003, 3011, 4008}},
        ComparedProgram{.name = "HeadsInWindows", .text = with_attention(heads_program(), "mask windowed 8")},
        ComparedProgram{.name = "HeadsThatDrop", .text = with_attention(heads_program(), "mask causal ; drops 0.3")},
        ComparedProgram{
            .name = "Regression", .text = mlp_program(), .marks_layers = false, .frozen = {"*w1", "*w2", "*w3"}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft::program_memory_test
