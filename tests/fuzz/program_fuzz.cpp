#include <algorithm>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/program/program_module.h"
#include "weft/program/program_text.h"
#include "weft/program/run_lengths.h"

using namespace weft;

namespace {

/// A model runs with any number of samples up to the one that it says.
void claim_any_samples(const Program& program) {
  const Result<ProgramModel> model = model_of(program);
  if (!model) return claim_good_message(model);
  const size_t dim = model->numbers.rows.sample_dim;
  const int64_t declared = program.dims[dim].length, most = model->numbers.most_samples;
  claim(most >= declared);
  for (const int64_t samples : {int64_t{1}, declared / 2 + 1, std::min(3 * declared, most), most}) {
    const Result<RunLengths> lengths = changed_lengths(program, {{program.dims[dim].name, samples}});
    claim(lengths.ok());
    for (const ProgramValue& value : program.values) {
      int64_t elements = 1;
      for (const size_t own : value.dims) {
        claim(own == dim || (*lengths)[own].length == program.dims[own].length);
        claim(!__builtin_mul_overflow(elements, (*lengths)[own].length, &elements));
      }
      claim(elements <= Layout::kMostElements);
    }
  }
}

}  // namespace

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
  claim_any_samples(*program);
  return 0;
}
