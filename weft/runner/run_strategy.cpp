#include "weft/runner/run_strategy.h"

#include <map>

#include <fmt/format.h>

namespace weft {
namespace {

class Unrolling {
 public:
  explicit Unrolling(const Program& program) : from_(program) {
    to_.name = program.name;
    to_.dims = program.dims;
  }

  Program run() {
    for (size_t op = 0; op < from_.operators.size();) {
      const auto repeat = from_.repeat_of(op);
      if (!repeat) {
        write(op++, "");
        continue;
      }
      op = write_repeat(from_.repeats[*repeat]);
    }
    return std::move(to_);
  }

 private:
  size_t write_repeat(const Repeat& repeat) {
    size_t carried = value_of(repeat.carried_in, "");
    for (int64_t time = 0; time < repeat.count; ++time) {
      own_.clear();
      own_[repeat.carried_in] = carried;
      for (size_t op = repeat.begin; op < repeat.end; ++op) write(op, fmt::format("@{}", time));
      carried = own_.at(repeat.carried_out);
    }
    own_.clear();
    known_[repeat.carried_out] = carried;
    return repeat.end;
  }

  void write(size_t op, const std::string& suffix) {
    Operator copy = from_.operators[op];
    for (size_t& operand : copy.operands) operand = value_of(operand, suffix);
    copy.name += suffix;
    (suffix.empty() ? known_ : own_)[copy.result] = to_.values.size();
    const size_t made = to_.values.size();
    to_.values.push_back({copy.name, ProgramValue::Role::kResult, from_.values[copy.result].dims});
    copy.result = made;
    to_.operators.push_back(std::move(copy));
  }

  /// Weights that are read inside are each time's own.
  size_t value_of(size_t value, const std::string& suffix) {
    if (const auto found = own_.find(value); found != own_.end()) return found->second;
    const ProgramValue& read = from_.values[value];
    const bool is_own = !suffix.empty() && read.role == ProgramValue::Role::kWeight;
    if (!is_own) {
      if (const auto found = known_.find(value); found != known_.end()) return found->second;
    }
    (is_own ? own_ : known_)[value] = to_.values.size();
    to_.values.push_back({read.name + (is_own ? suffix : ""), read.role, read.dims});
    return to_.values.size() - 1;
  }

  const Program& from_;
  Program to_;
  std::map<size_t, size_t> known_;  ///< values of the program that were written, outside of repeats
  std::map<size_t, size_t> own_;    ///< likewise, of the time of a repeat that is being written
};

}  // namespace

Program unrolled(const Program& program) {
  return Unrolling(program).run();
}

}  // namespace weft
