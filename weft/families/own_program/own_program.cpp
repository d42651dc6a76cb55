#include "weft/families/family.h"
#include "weft/program/program_module.h"
#include "weft/program/program_text.h"

namespace weft {
namespace {

/// A model that its user has written as a program: the text is all there is.
void read_own_program(Fields& config, DeclaredModel& model) {
  const std::string text = config.text(kProgramKey);
  if (text.empty()) return;
  const auto complain = [&](const Error& error) {
    config.complain(kProgramKey, error.field.empty() ? error.problem : error.field + ": " + error.problem,
                    error.advice);
  };
  const Result<Program> program = parse_program(text, kProgramKey);
  if (!program) return complain(program.error());
  Result<ProgramModel> declared = model_of(*program);
  if (!declared) return complain(declared.error());
  for (const Operator& op : program->operators) {
    if (op.kind != OperatorKind::kElementwise || op.calculation.function) continue;
    model.numbers.llm.not_run = Error{.field = kProgramKey,
                                      .problem = "has the operator " + op.name + ", which does not say what it does",
                                      .advice = "Add it: '; does silu'. Without, it can be planned, not run."};
    break;
  }
  model.numbers.llm.max_positions = declared->numbers.rows.rows_per_sample;
  model.numbers.program = std::move(declared->numbers);
  model.has_tied_embeddings = declared->is_tied;
  model.modules.push_back(std::move(declared->module));
}

}  // namespace

std::vector<Family> own_program_families() {
  return {{kProgramFamily, read_own_program}};
}

}  // namespace weft
