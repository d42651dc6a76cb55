#include "weft/simulate/step_memory.h"

#include <algorithm>
#include <deque>
#include <map>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/simulate/message_order.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/simulate/stage_walk.h"

namespace weft {
namespace {

/// Losses, scales and lists of places, which are too small to walk.
constexpr int64_t kSmallTensorBytes = 32 << 10;

/// Walks a rank's row as pipeline/executor runs it.
class RowWalk {
 public:
  RowWalk(const Plan& plan, const StepLoad& load, const Schedule& schedule, int64_t rank)
      : plan_(plan), load_(load), schedule_(schedule), buckets_(stage_buckets(plan, rank)) {
    std::vector<StagePart> parts;
    list_stage_parts(plan, parts);
    place_ = find_place(plan.llm(), rank);
    if (place_) data_place_ = data_place(plan.llm(), rank);
    stages_.resize(static_cast<size_t>(schedule.num_stages()));
    for (const StageBuckets& buckets : buckets_) {
      const auto module = static_cast<size_t>(buckets.module);
      if (plan.modules[module].is_encoder()) continue;
      stages_[static_cast<size_t>(buckets.stage)] =
          std::make_unique<StageWalk>(plan, module, buckets.stage, rank, parts, buckets, count_);
    }
  }

  std::vector<ActionBytes> run() {
    std::vector<ActionBytes> found;
    if (!place_) return found;
    const MessageOrder order(schedule_, [&](const Action& action) { return carries_anything(action); });
    const CountedTensor shares = share_inputs();
    const std::vector<Action>& row = schedule_.rows[static_cast<size_t>(place_->pp)];
    last_microbatch_.resize(stages_.size(), -1);
    for (const Action& action : row) {
      splits_ |= action.kind == ActionKind::kBackwardWeight;
      if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight)
        last_microbatch_[static_cast<size_t>(action.stage)] = action.microbatch;
    }
    for (size_t index = 0; index < row.size(); ++index) {
      // They go in their order.
      while (!sends_.empty() && sends_.front().taken_before <= index) sends_.pop_front();
      sent_until_ = order.taken_before(static_cast<size_t>(place_->pp), index);
      const int64_t on_their_way = sent_bytes();
      count_.forget_peak();
      play(row[index]);
      found.push_back({.action = row[index],
                       .held = count_.held() - sent_bytes(),
                       .peak = count_.peak() + kSmallTensorBytes,
                       .settled_peak = count_.peak() - on_their_way});
    }
    return found;
  }

 private:
  using Place = std::pair<int32_t, int32_t>;
  struct Sent {
    CountedTensor tensor;
    size_t taken_before = 0;  ///< an action of the row
  };

  /// Ids, positions and targets of this rank's tokens, and places of media, where others have the rest.
  CountedTensor share_inputs() {
    if (plan_.llm().cp == 1) return {};
    int64_t numbers = 0;
    for (const MicrobatchLoad& each : load_.llm[static_cast<size_t>(place_->dp)]) {
      const ModuleRows rows = rows_of(plan_, plan_.llm(), *place_, each);
      const int64_t axes = plan_.model.modules.size() > 1 ? 3 : 1;
      numbers += (1 + axes) * rows.whole + 2 * rows.targets;
      for (const auto& [kind, needed] : rows.needed) numbers += needed;
      for (const ModulePlan& module : plan_.modules) {
        if (module.kind != ModuleKind::kAudio || !module.is_in_pipeline()) continue;
        const ModuleRows audio = rows_of(plan_, module, *place_, each);
        numbers += 3 * (audio.frames + audio.whole) + audio.out_whole;
      }
    }
    return {count_, numbers * kIndexBytes};
  }

  StageWalk& stage(int32_t index) { return *stages_[static_cast<size_t>(index)]; }
  const MicrobatchLoad& load(int32_t microbatch) const {
    return load_.llm[static_cast<size_t>(place_->dp)][static_cast<size_t>(microbatch)];
  }

  void play(const Action& action) {
    const int32_t s = action.stage, m = action.microbatch;
    switch (action.kind) {
      case ActionKind::kForward:
        return forward(s, m);
      case ActionKind::kBackward:
        return backward(s, m, /*defers=*/false);
      case ActionKind::kBackwardInput:
        return backward(s, m, /*defers=*/true);
      case ActionKind::kBackwardWeight:
        return weights(s, m);
      case ActionKind::kSendForward:
        return send(made_, {s, m});
      case ActionKind::kSendBackward:
        return send(made_gradients_, {s, m});
      case ActionKind::kRecvForward:
        arrived_[{s, m}] = receive(stage(s).tensors_in(load(m)), false);
        return;
      case ActionKind::kRecvBackward:
        arrived_gradients_[{s, m}] = receive(stage(s).tensors_out(load(m)), true);
        return;
      case ActionKind::kReduceGrad:
        return stage(s).weights().reduce();
      case ActionKind::kUpdate:
        return update();
      case ActionKind::kEncodeForward:
      case ActionKind::kEncodeBackward:
        return;
    }
  }

  void forward(int32_t index, int32_t microbatch) {
    StageWalk& model = stage(index);
    const Place place{index, microbatch};
    WalkedVisit& visit = visits_[place];
    WalkedFlow flow(plan_.modules.size());
    if (index > 0) {
      if (schedule_.crosses_ranks(index - 1)) {
        visit.inputs = std::move(arrived_.extract(place).mapped());
      } else {
        visit.inputs = std::move(made_.extract({index - 1, microbatch}).mapped());
      }
      flow = visit.inputs;
    }
    WalkedFlow result =
        model.forward(std::move(flow), load(microbatch), received_rows(microbatch), /*keeps=*/true, splits_, visit);
    if (model.is_last()) return;
    WalkedFlow& outputs = made_[place];
    outputs.resize(plan_.modules.size());
    for (const StageWalk::FlowBytes& tensor : model.tensors_out(load(microbatch)))
      outputs[tensor.module] = result[tensor.module];
  }

  /// Whether a transfer between any two stages has tensors: a microbatch may lack media, and frozen encoders' rows have
  /// no gradients.
  bool carries_anything(const Action& action) const {
    const bool goes_back = action.kind == ActionKind::kSendBackward;
    const auto& own = *std::find_if(stages_.begin(), stages_.end(), [](const auto& each) { return each != nullptr; });
    for (const StageWalk::FlowBytes& tensor :
         own->tensors_between(goes_back ? action.stage - 1 : action.stage, load(action.microbatch))) {
      if (!goes_back || tensor.needs_gradient) return true;
    }
    return false;
  }

  /// By layer, rows of all ranks that share experts out with this one and chose one that is here.
  std::vector<int64_t> received_rows(int32_t microbatch) const {
    const int64_t ep = plan_.llm().ep;
    if (ep == 1) return {};
    std::vector<int64_t> received;
    const Module& llm = *plan_.model.find(ModuleKind::kLlm);
    const int64_t first = data_place_ / ep * ep;
    size_t router = 0;
    for (const size_t kind : llm.layers) {
      received.push_back(0);
      if (find_op(llm.layer_kinds[kind], "moe.router") == nullptr) continue;
      for (int64_t other = first; other < first + ep; ++other) {
        const auto& rows = load_.routed[router][static_cast<size_t>(other)][static_cast<size_t>(microbatch)];
        const auto here = static_cast<int64_t>(rows.size()) / ep, begin = (data_place_ - first) * here;
        for (int64_t expert = begin; expert < begin + here; ++expert)
          received.back() += rows[static_cast<size_t>(expert)];
      }
      ++router;
    }
    return received;
  }

  void backward(int32_t index, int32_t microbatch, bool defers) {
    StageWalk& model = stage(index);
    const Place place{index, microbatch};
    WalkedVisit& visit = visits_.at(place);
    WalkedFlow gradients(plan_.modules.size());
    if (!model.is_last()) {
      if (schedule_.crosses_ranks(index)) {
        gradients = std::move(arrived_gradients_.extract(place).mapped());
      } else {
        gradients = std::move(made_gradients_.extract({index + 1, microbatch}).mapped());
      }
    }
    const bool is_last = last_microbatch_[static_cast<size_t>(index)] == microbatch;
    WeightsWalk& weights = model.weights();
    if (!splits_) weights.begin_gradients(is_last);
    weights.begin_backward(splits_ ? &visit.queue : nullptr);
    WalkedFlow of_inputs = model.backward(std::move(gradients), visit);
    weights.end_backward();
    if (splits_ && !defers) {
      weights.begin_gradients(is_last);
      run_queue(visit.queue);
    }
    if (index > 0) {
      WalkedFlow& made = made_gradients_[place];
      made.resize(plan_.modules.size());
      for (const StageWalk::FlowBytes& tensor : model.tensors_in(load(microbatch))) {
        if (!tensor.needs_gradient) continue;
        made[tensor.module] = of_inputs[tensor.module];
        if (!made[tensor.module].is_defined()) made[tensor.module] = CountedTensor(count_, tensor.bytes);
      }
    }
    visit.inputs.clear();
    visit.ways.clear();
    visit.kept.clear();
    if (defers) return;
    visits_.erase(place);
    weights.end_gradients();
  }

  void weights(int32_t index, int32_t microbatch) {
    WeightsWalk& weights = stage(index).weights();
    weights.begin_gradients(last_microbatch_[static_cast<size_t>(index)] == microbatch);
    run_queue(visits_.at({index, microbatch}).queue);
    visits_.erase({index, microbatch});
    weights.end_gradients();
  }

  static void run_queue(WeightQueue& queue) {
    while (!queue.empty()) {
      const std::function<void()> task = std::move(queue.front());
      queue.pop_front();
      task();
    }
  }

  void send(std::map<Place, WalkedFlow>& from, Place place) {
    WalkedFlow sent = std::move(from.extract(place).mapped());
    for (CountedTensor& tensor : sent) {
      if (tensor.is_defined()) sends_.push_back({std::move(tensor), sent_until_});
    }
  }

  WalkedFlow receive(const std::vector<StageWalk::FlowBytes>& tensors, bool are_gradients) {
    WalkedFlow flow(plan_.modules.size());
    for (const StageWalk::FlowBytes& tensor : tensors) {
      if (!are_gradients || tensor.needs_gradient) flow[tensor.module] = CountedTensor(count_, tensor.bytes);
    }
    return flow;
  }

  void update() {
    if (is_updated_) return;
    is_updated_ = true;
    for (auto& each : stages_)
      if (each) each->weights().finish_reduce();
    for (auto& each : stages_)
      if (each) each->weights().update();
  }

  int64_t sent_bytes() const {
    int64_t bytes = 0;
    for (const Sent& sent : sends_) bytes += sent.tensor.is_shared() ? 0 : sent.tensor.bytes();
    return bytes;
  }

  const Plan& plan_;
  const StepLoad& load_;
  const Schedule& schedule_;
  ByteCount count_;
  std::vector<StageBuckets> buckets_;
  int64_t data_place_ = 0;  ///< among the ranks that the llm's cp and dp make
  std::optional<ModulePlace> place_;
  std::vector<std::unique_ptr<StageWalk>> stages_;  ///< by stage, null for others'
  std::vector<int32_t> last_microbatch_;
  bool splits_ = false;
  bool is_updated_ = false;
  std::map<Place, WalkedVisit> visits_;
  std::map<Place, WalkedFlow> arrived_, arrived_gradients_, made_, made_gradients_;
  std::deque<Sent> sends_;
  size_t sent_until_ = 0;  ///< of what the action that runs sends
};

}  // namespace

int64_t StepMemory::peak_bytes() const {
  int64_t most = 0;
  for (const ActionBytes& action : actions) most = std::max(most, action.peak);
  return state.weights + state.gradients + state.optimizer + most;
}

int64_t StepMemory::settled_peak_bytes() const {
  int64_t most = 0;
  for (const ActionBytes& action : actions) most = std::max(most, action.settled_peak);
  return state.weights + state.gradients + state.optimizer + most;
}

Result<StepMemory> step_memory(const Plan& plan, const StepLoad& load, int64_t rank) {
  for (size_t index = 0; index < plan.modules.size(); ++index) {
    const ModulePlan& module = plan.modules[index];
    if (module.is_in_pipeline()) continue;
    return Error{.field = fmt::format("modules[{}].placement", index),
                 .problem = fmt::format("puts the {} encoder beside the pipeline; a step's memory is only known with "
                                        "all encoders inline",
                                        name_of(module.kind)),
                 .advice = "Ask for the memory of the plan's high load (memory_of_ranks) instead."};
  }
  WEFT_TRY(const Schedule schedule, playable_schedule(plan));
  StepMemory memory{.state = held_state(plan, rank), .actions = {}};
  memory.actions = RowWalk(plan, load, schedule, rank).run();
  return memory;
}

}  // namespace weft
