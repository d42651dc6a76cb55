#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/program/program_text.h"

using namespace weft;

/// A program that is read is written and read back as itself, and every choice of its operators has states.
int weft::fuzz_program(const uint8_t* data, size_t size) {
  const Result<Program> program = parse_program(as_text(data, size), "input");
  if (!program) {
    claim_good_message(program);
    return 0;
  }
  const Result<Program> again = parse_program(program_text(*program), "written");
  claim(again.ok() && again->operators == program->operators && again->dims == program->dims);
  for (const Operator& op : program->operators) {
    for (const Choice choice : choices_of(op.rule)) {
      const ChoiceStates states = states_of(op.rule, choice);
      claim(states.operands.size() == op.operands.size());
      claim(*parse_choice(op.rule, text_of(op.rule, choice)) == choice);
    }
  }
  return 0;
}
