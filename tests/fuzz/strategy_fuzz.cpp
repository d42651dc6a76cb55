#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/meaning/strategy.h"
#include "weft/program/divide_repeats.h"
#include "weft/program/program_builder.h"

using namespace weft;

namespace {

Program small_program() {
  ProgramBuilder code("mlp");
  code.dim("b", 8), code.dim("s", 64), code.dim("h", 16), code.dim("f", 32);
  const size_t x = code.input("x", "b s h");
  code.begin_repeat(4, x);
  const size_t up = code.einsum("up", "b s h, f h -> b s f", {x, code.weight("wu", "f h")});
  code.end_repeat(code.einsum("down", "b s f, h f -> b s h", {up, code.weight("wd", "h f")}));
  return *code.finish();
}

}  // namespace

/// A strategy that is read fits a program, with choices that its rules allow, or is refused in one line.
int weft::fuzz_strategy(const uint8_t* data, size_t size) {
  const Result<Document> document = document_of(data, size);
  if (!document) return 0;
  const Result<StrategyFile> strategy = read_strategy(*document);
  if (!strategy) {
    claim_good_message(strategy);
    return 0;
  }
  Program program = small_program();
  if (!strategy->layers.empty()) {
    Result<DividedProgram> divided = divide_repeats(program, strategy->layers);
    if (!divided) {
      claim_good_message(divided);
      return 0;
    }
    program = std::move(divided->program);
  }
  const AxisGrid grid = *AxisGrid::create({{"tp", 2}, {"dp", 4}});
  const Result<ShardLimits> limits = limits_of(*strategy, strategy->mode.value_or(ShardMode::kSemi), program, grid);
  if (!limits) {
    claim_good_message(limits);
    return 0;
  }
  for (size_t op = 0; op < program.operators.size(); ++op) {
    for (const auto& pin : limits->pins[op]) {
      if (pin) claim(!text_of(program.operators[op].rule, *pin).empty());
    }
  }
  return 0;
}
