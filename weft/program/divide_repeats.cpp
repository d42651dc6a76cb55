#include "weft/program/divide_repeats.h"

#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/program/program_builder.h"
#include "weft/program/program_uses.h"

namespace weft {
namespace {

class Divider {
 public:
  Divider(const Program& whole, const ProgramUses& uses) : whole_(whole) {
    made_.program.name = whole.name;
    made_.program.dims = whole.dims;
    // What no operator of a repeat has for itself.
    for (size_t value = 0; value < whole.values.size(); ++value) {
      const std::vector<size_t>& readers = uses.readers_of(value);
      const bool is_weight = whole.values[value].role == ProgramValue::Role::kWeight;
      const bool is_of_repeat = is_weight && !readers.empty() && uses.repeat_of(readers.front()).has_value();
      if (whole.values[value].role != ProgramValue::Role::kResult && !is_of_repeat) shared_[value] = add(value, "");
    }
  }

  void add_outside(size_t op) {
    std::map<size_t, size_t> own;
    add_operator(op, "", own, 0);
    shared_.merge(own);
  }

  void add_repeat(const Repeat& repeat, const std::vector<int64_t>& counts) {
    size_t carried = shared_.at(repeat.carried_in);
    int64_t first = 0;
    for (const int64_t count : counts) {
      const std::string ending = counts.size() > 1 ? fmt::format(".{}-{}", first, first + count - 1) : "";
      std::map<size_t, size_t> own{{repeat.carried_in, carried}};
      const size_t begin = made_.program.operators.size();
      for (size_t op = repeat.begin; op < repeat.end; ++op) add_operator(op, ending, own, static_cast<size_t>(first));
      made_.program.repeats.push_back({.begin = begin,
                                       .end = made_.program.operators.size(),
                                       .count = count,
                                       .carried_in = carried,
                                       .carried_out = own.at(repeat.carried_out)});
      carried = own.at(repeat.carried_out);
      first += count;
    }
    shared_[repeat.carried_out] = carried;
  }

  DividedProgram take() { return std::move(made_); }

 private:
  size_t add(size_t value, const std::string& ending) {
    made_.program.values.push_back(whole_.values[value]);
    made_.program.values.back().name += ending;
    return made_.program.values.size() - 1;
  }

  /// `own` are the values of a part, looked up before those that all share.
  void add_operator(size_t op, const std::string& ending, std::map<size_t, size_t>& own, size_t layer) {
    Operator made = whole_.operators[op];
    made.name += ending;
    for (size_t& operand : made.operands) {
      const auto known = own.find(operand);
      const auto shared = known == own.end() ? shared_.find(operand) : known;
      if (known != own.end() || shared != shared_.end()) {
        operand = shared->second;
      } else {
        operand = own[operand] = add(operand, ending);
      }
    }
    const size_t result = made.result;
    own[result] = made.result = add(result, ending);
    made_.program.operators.push_back(std::move(made));
    made_.origins.emplace_back(op, layer);
  }

  const Program& whole_;
  DividedProgram made_;
  std::map<size_t, size_t> shared_;  ///< by value of the whole program: the one that stands for it
};

}  // namespace

namespace {

Error too_many_operators() {
  return {.problem = fmt::format("has so many parts that there are more than {} operators",
                                 with_commas(ProgramBuilder::kMostOperators)),
          .advice = "Join layers that are alike."};
}

}  // namespace

Result<DividedProgram> divide_repeats(const Program& program, const std::vector<std::vector<int64_t>>& parts) {
  if (parts.size() != program.repeats.size())
    return Error{.problem = fmt::format("has parts of {} repeats, but {} has {}", parts.size(), program.name,
                                        program.repeats.size()),
                 .advice = "Give a list of numbers of layers for each."};
  size_t num_operators = program.operators.size();
  for (size_t repeat = 0; repeat < parts.size(); ++repeat) {
    const Repeat& whole = program.repeats[repeat];
    int64_t left = whole.count;
    bool is_good = !parts[repeat].empty();
    for (const int64_t count : parts[repeat]) {
      is_good = is_good && count >= 1 && count <= left;
      if (is_good) left -= count;
    }
    if (!is_good || left != 0)
      return Error{.problem = fmt::format("has parts that are not the {} layers of repeat {}", whole.count, repeat),
                   .advice = "Numbers of layers are from 1 on, and their sum is all of them."};
    num_operators += (parts[repeat].size() - 1) * (whole.end - whole.begin);
    if (num_operators > ProgramBuilder::kMostOperators) return too_many_operators();
  }
  const ProgramUses uses(program);
  Divider divider(program, uses);
  for (size_t op = 0; op < program.operators.size();) {
    if (const auto repeat = uses.repeat_of(op)) {
      divider.add_repeat(program.repeats[*repeat], parts[*repeat]);
      op = program.repeats[*repeat].end;
    } else {
      divider.add_outside(op++);
    }
  }
  DividedProgram divided = divider.take();
  std::set<std::string_view> names;
  for (const ProgramValue& value : divided.program.values) {
    if (!names.insert(value.name).second)
      return Error{.problem = fmt::format("has a part that is called {}, as another tensor is", in_quotes(value.name)),
                   .advice = "Rename that tensor in the program: parts have their layers behind their names."};
  }
  if (auto wrong = find_wrong(divided.program)) return *std::move(wrong);
  return divided;
}

Result<DividedProgram> unrolled(const Program& program) {
  std::vector<std::vector<int64_t>> parts;
  size_t num_operators = program.operators.size();
  for (const Repeat& repeat : program.repeats) {
    const auto count = static_cast<size_t>(repeat.count);
    num_operators += (count - 1) * (repeat.end - repeat.begin);
    // Before lists of so many layers are made.
    if (num_operators > ProgramBuilder::kMostOperators) return too_many_operators();
    parts.emplace_back(count, 1);
  }
  WEFT_TRY(DividedProgram divided, divide_repeats(program, parts));
  divided.program.repeats.clear();
  return divided;
}

}  // namespace weft
