#include "weft/program/run_strategy.h"

#include <map>
#include <optional>

#include <fmt/format.h>

namespace weft {
namespace {

class Unrolling {
 public:
  explicit Unrolling(const Program& program) : from_(program) {
    made_.program.name = program.name;
    made_.program.dims = program.dims;
  }

  UnrolledProgram run() {
    for (size_t op = 0; op < from_.operators.size();) {
      const auto repeat = from_.repeat_of(op);
      if (!repeat) {
        write(op++, std::nullopt);
        continue;
      }
      op = write_repeat(from_.repeats[*repeat]);
    }
    return std::move(made_);
  }

 private:
  size_t write_repeat(const Repeat& repeat) {
    size_t carried = value_of(repeat.carried_in, std::nullopt);
    for (size_t time = 0; time < static_cast<size_t>(repeat.count); ++time) {
      own_.clear();
      own_[repeat.carried_in] = carried;
      for (size_t op = repeat.begin; op < repeat.end; ++op) write(op, time);
      carried = own_.at(repeat.carried_out);
    }
    own_.clear();
    known_[repeat.carried_out] = carried;
    return repeat.end;
  }

  void write(size_t op, std::optional<size_t> time) {
    Operator copy = from_.operators[op];
    for (size_t& operand : copy.operands) operand = value_of(operand, time);
    copy.name += suffix(time);
    copy.result = add_value(copy.result, time, /*is_own=*/time.has_value());
    made_.program.operators.push_back(std::move(copy));
    made_.operators.push_back({op, time.value_or(0)});
  }

  /// Weights that are read inside are each time's own.
  size_t value_of(size_t value, std::optional<size_t> time) {
    if (const auto found = own_.find(value); found != own_.end()) return found->second;
    const bool is_own = time && from_.values[value].role == ProgramValue::Role::kWeight;
    if (!is_own) {
      if (const auto found = known_.find(value); found != known_.end()) return found->second;
    }
    return add_value(value, time, is_own);
  }

  size_t add_value(size_t value, std::optional<size_t> time, bool is_own) {
    ProgramValue copy = from_.values[value];
    if (is_own) copy.name += suffix(time);
    const size_t place = made_.program.values.size();
    (is_own ? own_ : known_)[value] = place;
    made_.program.values.push_back(std::move(copy));
    made_.values.push_back({value, is_own ? *time : 0});
    return place;
  }

  static std::string suffix(std::optional<size_t> time) { return time ? fmt::format("@{}", *time) : ""; }

  const Program& from_;
  UnrolledProgram made_;
  std::map<size_t, size_t> known_;  ///< values of the program that were written, outside of repeats
  std::map<size_t, size_t> own_;    ///< likewise, of the time of a repeat that is being written
};

}  // namespace

UnrolledProgram unrolled(const Program& program) {
  return Unrolling(program).run();
}

}  // namespace weft
