#include "weft/meaning/trainable.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/meaning/weight_patterns.h"
#include "weft/program/adapter_ops.h"
#include "weft/program/name_weights.h"
#include "weft/spec/num_experts.h"

namespace weft {
namespace {

/// Every name of a block's weights, in order.
template <typename Visit>
void each_name(const Module& module, Visit visit) {
  for (int64_t place = 0; place < num_blocks(module); ++place) {
    for (const auto& together : weight_names(module, place)) visit(together);
  }
}

/// Whether rows come of an operator's weights: none do of the marks of a clip.
bool passes_rows(const Op& op) {
  return op.rows.numerator > 0;
}

}  // namespace

bool Trainable::is_trained(ModuleKind kind, std::string_view name) const {
  for (size_t i = plan_.trainable.size(); i-- > 0;) {
    if (fits_pattern(name, plan_.trainable[i].weights)) return plan_.trainable[i].train;
  }
  if (plan_.workload.is_frozen(kind)) return false;
  return !has_adapters_ || is_adapter_weight(name);
}

int64_t Trainable::end_of(ModuleKind kind) const {
  const Module* module = plan_.model.find(kind);
  return module == nullptr ? 0 : num_blocks(*module);
}

int64_t Trainable::first_trained(ModuleKind kind) const {
  if (!has_rules()) return plan_.workload.is_frozen(kind) ? end_of(kind) : 0;
  int64_t& first = first_[static_cast<size_t>(kind)];
  if (first < 0) {
    first = 0;
    const auto is_trained = [&](int64_t place) {
      if (has_own_rules()) return has_trained(kind, place, /*that_rows_pass=*/false);
      return has_adapters(block_at(*plan_.model.find(kind), place));
    };
    if (!has_own_rules() && plan_.workload.is_frozen(kind)) first = end_of(kind);
    while (first < end_of(kind) && !is_trained(first)) ++first;
  }
  return first;
}

int64_t Trainable::first_with_gradients(ModuleKind kind) const {
  if (!has_own_rules()) return first_trained(kind);  // rows pass all adapters
  int64_t& first = first_with_gradients_[static_cast<size_t>(kind)];
  if (first < 0) {
    first = first_trained(kind);
    while (first < end_of(kind) && !has_trained(kind, first, /*that_rows_pass=*/true)) ++first;
  }
  return first;
}

bool Trainable::gives_gradients(const ModulePlan& encoder) const {
  return encoder.is_in_pipeline() ? first_with_gradients(encoder.kind) < end_of(encoder.kind) : trains(encoder.kind);
}

bool Trainable::has_trained(ModuleKind kind, int64_t place, bool that_rows_pass) const {
  const std::vector<bool> trained = weights_of(kind, place);
  size_t next = 0;
  for (const Op& op : block_at(*plan_.model.find(kind), place).ops) {
    std::vector<LocalWeight> weights;
    list_weights(op, {}, weights);
    for (size_t i = 0; i < weights.size(); ++i, ++next) {
      if (trained[next] && (passes_rows(op) || !that_rows_pass)) return true;
    }
  }
  return false;
}

bool Trainable::reaches_experts_alike() const {
  if (!trains_an_encoder()) return true;
  const Module& llm = *plan_.model.find(ModuleKind::kLlm);
  const int64_t first = first_with_gradients(ModuleKind::kLlm);
  for (int64_t place = 1; place <= std::ssize(llm.layers); ++place) {
    const Block& layer = block_at(llm, place);
    if (!has_router(layer)) continue;
    if (place < first) return false;
    const std::vector<OpGradients> with_media = gradients_of(ModuleKind::kLlm, place, true);
    const std::vector<OpGradients> without = gradients_of(ModuleKind::kLlm, place, first < place);
    const auto router = std::find_if(layer.ops.begin(), layer.ops.end(), is_router) - layer.ops.begin();
    for (auto i = static_cast<size_t>(router); i < layer.ops.size(); ++i) {
      if (with_media[i].of_output != without[i].of_output || with_media[i].of_input != without[i].of_input)
        return false;
    }
  }
  return true;
}

bool Trainable::trains_table() const {
  return has_rules() ? weights_of(ModuleKind::kLlm, 0).front() : !plan_.workload.is_frozen(ModuleKind::kLlm);
}

std::vector<bool> Trainable::weights_of(ModuleKind kind, int64_t place) const {
  const Module& module = *plan_.model.find(kind);
  std::vector<bool> trained;
  if (!has_own_rules()) {
    std::vector<LocalWeight> weights;
    for (const Op& op : block_at(module, place).ops) {
      list_weights(op, {}, weights);
      trained.resize(weights.size(), !plan_.workload.is_frozen(kind) && (!has_adapters_ || is_adapter(op)));
    }
    return trained;
  }
  for (const auto& together : weight_names(module, place)) trained.push_back(is_trained(kind, together.front()));
  return trained;
}

LocalParameters Trainable::trained_parameters(ModuleKind kind, int64_t place, const OpShare& share) const {
  const std::vector<bool> trained = weights_of(kind, place);
  std::vector<LocalWeight> weights;
  for (const Op& op : block_at(*plan_.model.find(kind), place).ops) list_weights(op, share, weights);
  LocalParameters sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (trained[i]) (weights[i].is_expert ? sum.expert : sum.dense) += weights[i].elements;
  }
  return sum;
}

bool Trainable::trains_an_encoder() const {
  return std::any_of(plan_.model.modules.begin(), plan_.model.modules.end(),
                     [&](const Module& module) { return module.kind != ModuleKind::kLlm && trains(module.kind); });
}

BackwardNeeds Trainable::backward_of(ModuleKind kind) const {
  if (!has_rules()) return backward_needs(plan_.model, plan_.workload, kind);
  const bool is_trained = trains(kind);
  return {.weights = is_trained, .inputs = is_trained || (kind == ModuleKind::kLlm && trains_an_encoder())};
}

BackwardNeeds Trainable::backward_of(ModuleKind kind, int64_t place) const {
  if (!has_rules()) return backward_of(kind);
  bool is_trained = false;
  if (has_own_rules()) {
    const std::vector<bool> trained = weights_of(kind, place);
    is_trained = std::find(trained.begin(), trained.end(), true) != trained.end();
  } else {
    is_trained = !plan_.workload.is_frozen(kind) && has_adapters(block_at(*plan_.model.find(kind), place));
  }
  return {.weights = is_trained,
          .inputs = first_trained(kind) < place || (kind == ModuleKind::kLlm && trains_an_encoder())};
}

BackwardNeeds Trainable::passes_of(ModuleKind kind, int64_t place) const {
  BackwardNeeds needs = backward_of(kind, place);
  if (place > 0 && place + 1 < end_of(kind)) needs.inputs |= needs.weights;
  return needs;
}

std::vector<OpGradients> Trainable::gradients_of(ModuleKind kind, int64_t place, bool has_input_gradient) const {
  const std::vector<bool> trained = weights_of(kind, place);
  std::vector<OpGradients> gradients;
  // A router weighs what experts give; the rows that they get do not depend on it.
  bool of_rows = has_input_gradient, of_choice = false;
  size_t next = 0;
  for (const Op& op : block_at(*plan_.model.find(kind), place).ops) {
    std::vector<LocalWeight> weights;
    list_weights(op, {}, weights);
    const auto first = trained.begin() + static_cast<std::ptrdiff_t>(next);
    const bool is_trained = std::find(first, first + std::ssize(weights), true) != first + std::ssize(weights);
    const auto* matmul = std::get_if<Matmul>(&op.shape);
    const bool is_tied = matmul != nullptr && matmul->is_tied;
    const bool of_weight = is_tied ? trains_table() : !weights.empty() && trained[next];
    const bool of_bias = weights.size() > 1 && trained[next + 1];
    next += weights.size();
    if (op.branches_from >= 0) of_rows = first_with_gradients(kind) <= op.branches_from + 1;
    const bool of_input = of_rows;
    (is_router(op) ? of_choice : of_rows) |= is_trained && passes_rows(op);
    gradients.push_back(
        {.of_output = of_rows || of_choice, .of_input = of_input, .of_weight = of_weight, .of_bias = of_bias});
  }
  // What an adapter adds is part of its product's output.
  const Block& block = block_at(*plan_.model.find(kind), place);
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (is_adapted(block, i)) gradients[i].of_output = gradients[i + 2].of_output;
  }
  return gradients;
}

namespace {

/// Adapters that nothing trains, and products that are trained beside theirs.
void find_bad_adapters(const Plan& plan, const Trainable& trainable, std::vector<Violation>& found) {
  if (!has_adapters(plan.model)) return;
  for (const Module& module : plan.model.modules) {
    for (int64_t place = 0; place < num_blocks(module) && found.empty(); ++place) {
      const Block& block = block_at(module, place);
      if (!has_adapters(block)) continue;
      if (plan.workload.is_frozen(module.kind)) {
        found.push_back({"adapters", fmt::format("are on {}, which the workload freezes, so that nothing trains them; "
                                                 "leave it out of the workload's frozen, or of the adapters' targets",
                                                 name_of(module.kind))});
        return;
      }
      const std::vector<bool> trained = trainable.weights_of(module.kind, place);
      const auto names = weight_names(module, place);
      size_t next = 0;
      for (size_t i = 0; i < block.ops.size(); ++i) {
        std::vector<LocalWeight> weights;
        list_weights(block.ops[i], {}, weights);
        if (is_adapted(block, i) && trained[next])
          found.push_back(
              {"trainable", fmt::format("trains {}, which has an adapter; train one of both", names[next].front())});
        next += weights.size();
      }
    }
  }
}

}  // namespace

std::vector<Violation> find_bad_rules(const Plan& plan) {
  std::vector<Violation> found;
  const Trainable trainable(plan);
  find_bad_adapters(plan, trainable, found);
  std::vector<std::string> names;
  if (trainable.has_rules()) {
    for (const Module& module : plan.model.modules) {
      each_name(module, [&](const std::vector<std::string>& together) {
        names.insert(names.end(), together.begin(), together.end());
        if (!found.empty()) return;
        for (const std::string& name : together) {
          const bool is_trained = trainable.is_trained(module.kind, name);
          if (is_trained == trainable.is_trained(module.kind, together.front())) continue;
          found.push_back({"trainable", fmt::format("{} is {} and {} is not, but they are one matrix here; give both "
                                                    "the same",
                                                    is_trained ? name : together.front(), "trained",
                                                    is_trained ? together.front() : name)});
          return;
        }
      });
    }
  }
  for (size_t i = 0; i < plan.trainable.size(); ++i) {
    if (auto problem = find_unfit(plan.trainable[i].weights, names))
      found.push_back({fmt::format("trainable[{}].weights", i), *std::move(problem)});
  }
  if (found.empty() && trainable.has_rules() &&
      std::none_of(plan.model.modules.begin(), plan.model.modules.end(),
                   [&](const Module& module) { return trainable.trains(module.kind); }))
    found.push_back({"trainable", "leaves nothing to train; give some weights \"train\": true"});
  return found;
}

}  // namespace weft
