#include "weft/tensor/redistribute.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/tensor/rank_steps.h"

namespace weft {

struct Redistribution::State {
  Layout from;
  Layout to;
  Transition transition;
  int64_t rank;
  std::string what;  ///< for messages
  std::vector<int64_t> from_shape;
  RankSteps forward;
  RankSteps adjoint;

  State(const MeshGroups& groups, const Layout& from_in, const Layout& to_in)
      : from(from_in),
        to(to_in),
        transition(plan_transition(from, to)),
        rank(groups.rank()),
        what("redistribute of " + from.text()),
        from_shape(from.local_shape(groups.position())),
        forward(transition.forward, groups),
        adjoint(transition.adjoint, groups) {}
};

/// Forward and adjoint together. The way back is a redistribution like the way there, and so has a gradient itself.
struct RedistributeFunction : torch::autograd::Function<RedistributeFunction> {
  using StatePointer = std::shared_ptr<const Redistribution::State>;

  struct Holder : torch::CustomClassHolder {
    StatePointer state;
    bool is_way_back = false;
  };

  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const StatePointer& state,
                            bool is_way_back) {
    auto holder = c10::make_intrusive<Holder>();
    holder->state = state;
    holder->is_way_back = is_way_back;
    context->saved_data["redistribution"] = at::IValue::make_capsule(std::move(holder));
    return (is_way_back ? state->adjoint : state->forward).run(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto capsule = context->saved_data["redistribution"].toCapsule();
    const auto& holder = static_cast<const Holder&>(*capsule);
    return {apply(gradients[0], holder.state, !holder.is_way_back), at::Tensor(), at::Tensor()};
  }
};

Redistribution::Redistribution(const MeshGroups& groups, const Layout& from, const Layout& to) {
  WEFT_CHECK(from.grid() == groups.mesh().grid() && to.grid() == groups.mesh().grid(),
             "rank {}: a redistribution from {} to {} on the mesh {}, expected layouts on that mesh's axes",
             groups.rank(), from.text(), to.text(), groups.mesh().grid().text());
  WEFT_CHECK(from.shape() == to.shape(), "rank {}: a redistribution from {} to {}, expected one shape", groups.rank(),
             from.text(), to.text());
  state_ = std::make_shared<const State>(groups, from, to);
}

const Layout& Redistribution::from() const {
  return state_->from;
}

const Layout& Redistribution::to() const {
  return state_->to;
}

const Transition& Redistribution::transition() const {
  return state_->transition;
}

at::Tensor Redistribution::operator()(const at::Tensor& x) const {
  check_tensor(x, {.shape = state_->from_shape, .type = {}, .device = {}}, state_->rank, state_->what);
  if (state_->transition.forward.empty() && state_->transition.adjoint.empty()) return x;
  return RedistributeFunction::apply(x, state_, false);
}

at::Tensor redistribute(const at::Tensor& x, const Layout& from, const Layout& to, const MeshGroups& groups) {
  return Redistribution(groups, from, to)(x);
}

}  // namespace weft
