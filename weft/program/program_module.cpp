#include "weft/program/program_module.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/program/name_weights.h"
#include "weft/program/program_ops.h"
#include "weft/program/program_strategy.h"
#include "weft/program/program_uses.h"
#include "weft/program/sample_dim.h"

namespace weft {
namespace {

using Role = ProgramValue::Role;

Error refused(std::string where, std::string problem, std::string advice) {
  return {.field = std::move(where), .problem = std::move(problem), .advice = std::move(advice)};
}

/// Data that operators read, or that a repeat begins with.
std::vector<size_t> given_values(const Program& program, const ProgramUses& uses) {
  std::vector<bool> is_carried(program.values.size());
  for (const Repeat& repeat : program.repeats) is_carried[repeat.carried_in] = true;
  std::vector<size_t> given;
  for (size_t value = 0; value < program.values.size(); ++value) {
    const Role role = program.values[value].role;
    if (role != Role::kInput && role != Role::kData) continue;
    if (is_carried[value] || !uses.readers_of(value).empty()) given.push_back(value);
  }
  return given;
}

/// Dims without elements have nothing to train on, and weights that nobody reads nothing to learn.
std::optional<Error> find_useless(const Program& program, const ProgramUses& uses) {
  for (size_t value = 0; value < program.values.size(); ++value) {
    const ProgramValue& own = program.values[value];
    if (own.role == Role::kWeight && uses.readers_of(value).empty())
      return refused(own.name, "is a weight that no operator reads", "Leave it out, or read it.");
    for (const size_t dim : own.dims) {
      if (program.dims[dim].length < 1)
        return refused(program.dims[dim].name, "is a dim of no elements", "Give it a length of at least 1.");
    }
  }
  return std::nullopt;
}

/// Blocks are listed one by one, so that their number is looked at before.
std::optional<Error> find_too_many_layers(const Program& program) {
  int64_t layers = 0;
  for (const Repeat& repeat : program.repeats) layers += repeat.count;
  if (layers <= kMostLayers) return std::nullopt;
  return refused(program.name,
                 fmt::format("has {} layers, at most {} are possible", with_commas(layers), with_commas(kMostLayers)),
                 "Give its repeats smaller numbers.");
}

/// Experts' rows have no dim of samples, so that this is said before that is missed.
std::optional<Error> find_experts(const Program& program) {
  for (const Operator& op : program.operators) {
    if (op.kind == OperatorKind::kDispatch || op.kind == OperatorKind::kCombine)
      return refused(op.name, fmt::format("is a {}: programs with experts are not trained yet", name_of(op.kind)),
                     "weft shard finds strategies for it; to train experts, use a family that has them.");
  }
  return std::nullopt;
}

/// The dim of samples is the first of all data.
Result<size_t> find_sample_dim(const Program& program, const std::vector<size_t>& given) {
  if (given.empty())
    return refused(program.name, "reads no data", "Declare what it learns from: 'data ids [b s]', 'input x [b h]'.");
  const auto& first = program.values[given.front()].dims;
  for (const size_t value : given) {
    const ProgramValue& data = program.values[value];
    if (!data.dims.empty() && !first.empty() && data.dims.front() == first.front()) continue;
    const std::string dim = first.empty() ? "b" : program.dims[first.front()].name;
    return refused(data.name, fmt::format("lacks the dim of samples {} as its first dim", in_quotes(dim)),
                   "All data begin with it: samples are dealt out to ranks and microbatches along it.");
  }
  if (program.dims[first.front()].unit != 1)
    return refused(program.dims[first.front()].name, "is the dim of samples, but comes in units",
                   "Leave out its unit.");
  return first.front();
}

/// The only result that nobody reads.
Result<size_t> find_loss(const Program& program, const ProgramUses& uses) {
  std::vector<size_t> ends;
  for (size_t i = 0; i < program.operators.size(); ++i) {
    if (uses.readers_of(program.operators[i].result).empty() && !uses.repeat_of(i)) ends.push_back(i);
  }
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const auto repeat = uses.repeat_of(i);
    const size_t made = program.operators[i].result;
    if (repeat && uses.readers_of(made).empty() && program.repeats[*repeat].carried_out != made)
      return refused(program.operators[i].name, "makes what nobody reads", "Leave it out, or read it.");
  }
  if (ends.empty())
    return refused(program.name, "ends with a repeat, and has no loss",
                   "Add one behind it: 'loss = cross_entropy(logits, targets) : b s v, b s -> b s'.");
  if (ends.size() > 1)
    return refused(program.operators[ends[0]].name,
                   fmt::format("and {} are both read by nobody, but a model has one loss",
                               in_quotes(program.operators[ends[1]].name)),
                   "Add them up, or leave one out.");
  const Operator& loss = program.operators[ends[0]];
  if (loss.kind != OperatorKind::kCrossEntropy && loss.kind != OperatorKind::kSum)
    return refused(loss.name, fmt::format("is what the program makes, but {} gives no loss", name_of(loss.kind)),
                   "End it with a cross_entropy, or with a sum: 'loss = sum(squares) : b h ->'.");
  if (ends[0] + 1 != program.operators.size())
    return refused(loss.name, "is the loss, but other operators come after it", "Write it last.");
  return ends[0];
}

/// What numbers of a value may be, by who reads it.
std::optional<Error> add_use(const Program& program, const ProgramUses& uses, size_t value, NamedInput& input) {
  bool is_read_whole = false, is_read_real = false, are_only_targets = true;
  for (const size_t reader : uses.readers_of(value)) {
    const Operator& op = program.operators[reader];
    const bool are_ids = op.kind == OperatorKind::kLookup && op.operands[0] == value;
    const bool are_targets = op.kind == OperatorKind::kCrossEntropy && op.operands[1] == value;
    (are_ids || are_targets ? is_read_whole : is_read_real) = true;
    if (!are_ids && !are_targets) continue;
    const ProgramValue& other = program.values[op.operands[are_ids ? 1 : 0]];
    const int64_t entries = program.dims[are_ids ? other.dims.front() : other.dims.back()].length;
    input.num_entries = std::min(entries, input.num_entries.value_or(entries));
    are_only_targets = are_only_targets && are_targets;
  }
  input.may_be_negative = is_read_whole && are_only_targets;
  if (!is_read_whole || !is_read_real) return std::nullopt;
  return refused(input.name, "is read as numbers of entries and as other numbers", "Declare it twice.");
}

class ModelMaker {
 public:
  explicit ModelMaker(const Program& program) : program_(program), uses_(program) {}

  Result<ProgramModel> make() {
    if (auto error = find_too_many_layers(program_)) return *std::move(error);
    if (auto error = find_experts(program_)) return *std::move(error);
    if (auto error = find_useless(program_, uses_)) return *std::move(error);
    const std::vector<size_t> given = given_values(program_, uses_);
    WEFT_TRY(const size_t sample_dim, find_sample_dim(program_, given));
    WEFT_TRY(const size_t loss, find_loss(program_, uses_));
    WEFT_TRY(blocks_, blocks_of(program_));
    ProgramNumbers& numbers = model_.numbers;
    numbers.marks_layers = blocks_.marks_layers;
    numbers.rows.sample_dim = sample_dim;
    const BlockProgram& layer = blocks_.kinds.front();
    const ProgramValue& carried = layer.program.values[*layer.carried_out];
    if (carried.dims.size() < 2 || carried.dims.front() != sample_dim)
      return refused(carried.name, "goes from layer to layer, but has not the dim of samples first and features last",
                     "Give it dims like [b s h] or [b h].");
    for (size_t place = 1; place + 1 < carried.dims.size(); ++place)
      numbers.rows.rows_per_sample *= program_.dims[carried.dims[place]].length;
    if (auto error = add_inputs(given)) return *std::move(error);
    count_targets(loss);
    Module& module = model_.module;
    module.width = module.output_width = program_.dims[carried.dims.back()].length;
    module.network = kProgramNetwork;
    module.paths = {.entry = "", .layer = blocks_.marks_layers ? "layers.{}." : "", .exit = ""};
    find_tied();
    if (auto error = add_block("entry", blocks_.entry, module.entry)) return *std::move(error);
    for (const BlockProgram& kind : blocks_.kinds) {
      const std::string name =
          blocks_.kinds.size() == 1 ? "layer" : fmt::format("layer{}", module.distinct_layers.size());
      if (auto error = add_block(name, kind, module.distinct_layers.emplace_back())) return *std::move(error);
    }
    module.layers = blocks_.layers;
    if (auto error = add_block("exit", blocks_.exit, module.exit)) return *std::move(error);
    if (auto error = find_tied_to_samples(program_, sample_dim)) return *std::move(error);
    model_.numbers.most_samples = most_samples();
    if (auto error = find_same_names()) return *std::move(error);
    hold_weights(module);
    return std::move(model_);
  }

 private:
  std::optional<Error> add_inputs(const std::vector<size_t>& given) {
    for (const size_t value : given) {
      NamedInput& input = model_.numbers.inputs.emplace_back(NamedInput{.name = program_.values[value].name});
      const std::vector<size_t>& dims = program_.values[value].dims;
      for (size_t place = 1; place < dims.size(); ++place) {
        input.shape.push_back(program_.dims[dims[place]].length);
        input.dims.push_back(program_.dims[dims[place]].name);
      }
      if (auto error = add_use(program_, uses_, value, input)) return error;
    }
    return std::nullopt;
  }

  /// Of a loss that is a sum, what it is the sum of.
  void count_targets(size_t loss) {
    const Operator* op = &program_.operators[loss];
    const auto maker = [&](size_t value) -> const Operator* {
      const auto found = uses_.maker_of(value);
      return found ? &program_.operators[*found] : nullptr;
    };
    size_t summed = op->result;
    while (op != nullptr && op->kind == OperatorKind::kSum) {
      summed = op->operands[0];
      op = maker(summed);
    }
    if (op != nullptr && op->kind == OperatorKind::kCrossEntropy) {
      const std::string& name = program_.values[op->operands[1]].name;
      for (size_t i = 0; i < model_.numbers.inputs.size(); ++i) {
        if (model_.numbers.inputs[i].name == name) model_.numbers.targets = i;
      }
      return;
    }
    int64_t elements = 1;
    for (const size_t dim : program_.values[summed].dims) {
      if (dim != model_.numbers.rows.sample_dim) elements *= program_.dims[dim].length;
    }
    model_.numbers.targets_per_sample = elements;
  }

  /// No other dim than that of samples is longer where more of them run.
  int64_t most_samples() const {
    const size_t sample_dim = model_.numbers.rows.sample_dim;
    int64_t most = Layout::kMostElements;
    for (const ProgramValue& own : program_.values) {
      if (own.dims.empty() || own.dims.front() != sample_dim) continue;
      int64_t of_sample = 1;
      for (size_t place = 1; place < own.dims.size(); ++place) of_sample *= program_.dims[own.dims[place]].length;
      most = std::min(most, Layout::kMostElements / of_sample);
    }
    return most;
  }

  /// A table of the entry that a product of the exit reads.
  void find_tied() {
    const ProgramUses uses(blocks_.entry.program);
    std::map<std::string_view, size_t> entry_values;
    for (size_t value = 0; value < blocks_.entry.program.values.size(); ++value)
      entry_values.emplace(blocks_.entry.program.values[value].name, value);
    for (const ProgramValue& own : blocks_.exit.program.values) {
      if (own.role != Role::kWeight) continue;
      const auto table = entry_values.find(own.name);
      if (table == entry_values.end()) continue;
      const std::vector<size_t>& readers = uses.readers_of(table->second);
      if (readers.size() == 1 && blocks_.entry.program.operators[readers[0]].kind == OperatorKind::kLookup &&
          blocks_.entry.choices[readers[0]] != Choice::same())
        tied_ = own.name;
    }
    model_.is_tied = tied_.has_value();
  }

  std::optional<Error> add_block(std::string name, const BlockProgram& program, Block& block) {
    block.name = std::move(name);
    const bool is_exit = &program == &blocks_.exit;
    auto ops = ops_of(program, blocks_.features, model_.numbers.rows, is_exit ? tied_ : std::nullopt);
    if (!ops) return ops.error();
    block.ops = *std::move(ops);
    // Data as they come; a block is never without an operator.
    if (block.ops.empty()) block.ops.push_back({.name = "data", .shape = Pointwise{.is_sum = true}});
    BlockProgram own = program;
    own.rows = model_.numbers.rows;
    block.program = std::make_shared<const BlockProgram>(std::move(own));
    return std::nullopt;
  }

  std::optional<Error> find_same_names() const {
    std::set<std::string> names;
    for (int64_t place = 0; place < num_blocks(model_.module); ++place) {
      for (const auto& together : weight_names(model_.module, place)) {
        for (const std::string& name : together) {
          if (!names.insert(name).second)
            return refused(name, "would be the name of two weights", "Call one of them otherwise.");
        }
      }
    }
    return std::nullopt;
  }

  const Program& program_;
  ProgramUses uses_;
  ProgramBlocks blocks_;
  ProgramModel model_;
  std::optional<std::string> tied_;
};

}  // namespace

int64_t NamedInput::num_elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Result<ProgramModel> model_of(const Program& program) {
  return ModelMaker(program).make();
}

}  // namespace weft
