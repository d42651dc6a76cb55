#include "weft/program/program_uses.h"

namespace weft {

ProgramUses::ProgramUses(const Program& program)
    : readers_(program.values.size()), makers_(program.values.size()), repeats_(program.operators.size()) {
  for (size_t op = 0; op < program.operators.size(); ++op) {
    for (const size_t operand : program.operators[op].operands) {
      std::vector<size_t>& readers = readers_[operand];
      if (readers.empty() || readers.back() != op) readers.push_back(op);
    }
    makers_[program.operators[op].result] = op;
  }
  for (size_t repeat = 0; repeat < program.repeats.size(); ++repeat) {
    for (size_t op = program.repeats[repeat].begin; op < program.repeats[repeat].end; ++op) repeats_[op] = repeat;
  }
}

}  // namespace weft
