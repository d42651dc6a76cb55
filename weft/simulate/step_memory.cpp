#include "weft/simulate/step_memory.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/rank_row.h"
#include "weft/program/dropping_ops.h"
#include "weft/simulate/encoder_walk.h"
#include "weft/simulate/message_order.h"

namespace weft {
namespace {

/// Losses, scales and lists of places, which are too small to walk.
constexpr int64_t kSmallTensorBytes = 32 << 10;
/// Of a GPU's libraries for matrix products and attention, from their first use on: workspaces of both threads that
/// start kernels. 310 MiB were seen on an H200.
constexpr int64_t kLibraryBytes = 448 << 20;
/// Tokens, targets, positions and places.
constexpr int64_t kNumbersPerToken = 8;

/// Walks a rank's row as pipeline/executor runs it.
class RowWalk {
 public:
  RowWalk(const Plan& plan, const StepLoad& load, const Schedule& schedule, int64_t rank, WalkedDevice device)
      : plan_(plan), load_(load), schedule_(schedule), count_(device) {
    if (const auto row = row_of_rank(plan, schedule, rank)) row_ = static_cast<size_t>(*row);
    const size_t llm = plan.modules.size() - 1;
    for (size_t module = 0; module < plan.modules.size(); ++module) {
      const std::optional<RankGroups> groups = rank_groups(plan, module, rank);
      places_.push_back(groups ? std::optional(groups->place) : std::nullopt);
      if (module != llm || !groups) continue;
      place_ = groups->place;
      routed_place_ = std::find(groups->routed.begin(), groups->routed.end(), rank) - groups->routed.begin();
      stages_.resize(static_cast<size_t>(schedule.num_stages()));
      for (const StageContent& content : stages_of(plan, module, groups->place)) {
        stages_[static_cast<size_t>(content.stage())] =
            std::make_unique<StageWalk>(plan, module, places_, content, count_);
      }
    }
    for (size_t module = 0; module < llm; ++module) {
      if (!plan.modules[module].is_in_pipeline()) add_encoder(module, rank);
    }
  }

  std::vector<ActionBytes> run() {
    std::vector<ActionBytes> found;
    if (!row_) return found;
    const MessageOrder order(schedule_, [&](const Action& action) { return carries_anything(action); });
    const CountedTensor shares = share_inputs();
    CountedTensor on_device;
    if (!count_.is_of_processor()) on_device = {count_, kLibraryBytes + batch_bytes()};
    const std::vector<Action>& row = schedule_.rows[*row_];
    backwards_ = backwards_of_row(row, stages_.size());
    for (size_t index = 0; index < row.size(); ++index) {
      // They go in their order.
      while (!sends_.empty() && sends_.front().taken_before <= index) sends_.pop_front();
      sent_until_ = order.taken_before(*row_, index);
      const int64_t on_their_way = sent_bytes();
      count_.forget_peak();
      play(row[index]);
      found.push_back({.action = row[index],
                       .held = count_.held() - sent_bytes(),
                       .peak = count_.peak() + kSmallTensorBytes,
                       .settled_peak = count_.sure_peak() - on_their_way});
    }
    return found;
  }

  int64_t whole_gradient_bytes() const {
    int64_t bytes = 0;
    for (const auto& stage : stages_) bytes += stage ? stage->weights().whole_gradient_bytes() : 0;
    for (const auto& encoder : encoders_) bytes += encoder->here ? encoder->here->weights().whole_gradient_bytes() : 0;
    return bytes;
  }

 private:
  using Place = std::pair<int32_t, int32_t>;
  /// An encoder beside the pipeline, as far as this rank has to do with it.
  struct Encoder {
    size_t module = 0;
    std::optional<BridgeWalk> bridge;
    std::unique_ptr<EncoderWalk> here;
  };
  struct Sent {
    CountedTensor tensor;
    size_t taken_before = 0;  ///< an action of the row
  };

  void add_encoder(size_t module, int64_t rank) {
    const ScheduledEncoder& rows = schedule_.encoders[encoders_.size()];
    const ModuleKind kind = plan_.modules[module].kind;
    Encoder& encoder = *encoders_.emplace_back(std::make_unique<Encoder>());
    encoder.module = module;
    encoder.bridge = BridgeWalk::make(plan_, load_, module, rank, count_, flights_);
    const std::optional<RankGroups> groups = rank_groups(plan_, module, rank);
    if (!groups) return;
    const std::vector<StageContent> contents = stages_of(plan_, module, groups->place);
    encoder.here =
        std::make_unique<EncoderWalk>(kind,
                                      EncoderWalk::Settings{.module = module,
                                                            .rows = &rows,
                                                            .macro_batches = &macro_batches(module),
                                                            .bridge = encoder.bridge ? &*encoder.bridge : nullptr,
                                                            .count = &count_,
                                                            .flights = &flights_},
                                      std::make_unique<StageWalk>(plan_, module, places_, contents.front(), count_));
  }

  /// Numbers of places that a rank's share of an encoder's rows has, where others have the rest.
  int64_t numbers_of(const ModulePlan& module, const ModuleRows& rows) const {
    if (module.cp == 1) return 0;
    const int64_t of_dropout = encoders_drop_elements(plan_.model.modules) ? rows.whole : 0;
    if (module.kind != ModuleKind::kAudio) return of_dropout;
    return of_dropout + 3 * (rows.frames_given + rows.whole) + rows.out_whole;
  }

  /// What an encoder takes in, in the precision that it computes in.
  int64_t media_bytes(const ModulePlan& encoder, const EncoderLoad& media) const {
    const auto* entry = std::get_if<Matmul>(&plan_.model.find(encoder.kind)->entry.ops.front().shape);
    const int64_t rows = std::accumulate(media.segments.begin(), media.segments.end(), int64_t{0});
    return entry == nullptr ? 0 : std::max(rows, media.frames) * entry->in * element_bytes_of(plan_.precision.compute);
  }

  /// Of the step's batch, which lies on the device throughout.
  int64_t batch_bytes() const {
    int64_t bytes = 0;
    for (size_t module = 0; module < places_.size(); ++module) {
      const ModulePlan& settings = plan_.modules[module];
      if (!places_[module]) continue;
      if (!settings.is_in_pipeline()) {
        for (const auto& macro : macro_batches(module)) bytes += macro ? media_bytes(settings, *macro) : 0;
        continue;
      }
      for (const MicrobatchLoad& each : load_.llm[static_cast<size_t>(place_->dp)]) {
        const auto media = each.media.find(settings.kind);
        if (media != each.media.end()) bytes += media_bytes(settings, media->second);
        if (settings.kind != ModuleKind::kLlm) continue;
        bytes += std::accumulate(each.samples.begin(), each.samples.end(), int64_t{0}) * kNumbersPerToken * kIndexBytes;
      }
    }
    return bytes;
  }

  /// Ids, positions, targets and numbers of this rank's tokens, and places of media, where others have the rest.
  CountedTensor share_inputs() {
    int64_t numbers = 0;
    const bool is_shared = place_ && plan_.llm().cp > 1;
    for (size_t m = 0; is_shared && m < load_.llm[static_cast<size_t>(place_->dp)].size(); ++m) {
      const MicrobatchLoad& each = load(static_cast<int32_t>(m));
      const ModuleRows rows = rows_of(plan_, plan_.llm(), *place_, each);
      const int64_t axes = plan_.model.modules.size() > 1 ? 3 : 1;
      numbers += (2 + axes) * rows.whole + 2 * rows.targets;
      for (const auto& [kind, needed] : rows.needed) numbers += needed;
      for (const ModulePlan& module : plan_.modules) {
        if (module.is_encoder() && module.is_in_pipeline())
          numbers += numbers_of(module, rows_of(plan_, module, *place_, each));
      }
    }
    for (size_t module = 0; module < places_.size(); ++module) {
      const ModulePlan& encoder = plan_.modules[module];
      if (encoder.is_in_pipeline() || !places_[module]) continue;
      for (const auto& macro : macro_batches(module)) {
        if (macro) numbers += numbers_of(encoder, encoder_rows(plan_, encoder, *places_[module], *macro));
      }
    }
    return {count_, numbers * kIndexBytes};
  }

  /// Of an encoder beside the pipeline, those of this rank's samples.
  const std::vector<std::optional<EncoderLoad>>& macro_batches(size_t module) const {
    return load_.beside.at(plan_.modules[module].kind).macro_batches[static_cast<size_t>(places_[module]->dp)];
  }

  Encoder& encoder(int32_t number) { return *encoders_[static_cast<size_t>(number)]; }
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
        finish();
        return stage(s).weights().update();
      case ActionKind::kEncodeUpdate:
        finish();
        return encoder(s).here->weights().update();
      case ActionKind::kEncodeForward:
        return encoder(s).here->forward(m);
      case ActionKind::kEncodeBackward:
        return encoder(s).here->backward(m);
      case ActionKind::kEncodeReduce:
        return encoder(s).here->weights().reduce();
      case ActionKind::kSendRows:
        return encoder(s).here->send_rows(m);
      case ActionKind::kRecvRows:
        return encoder(s).bridge->receive_rows(m);
      case ActionKind::kSendRowGrads:
        return encoder(s).bridge->send_gradients(m);
      case ActionKind::kRecvRowGrads:
        return encoder(s).bridge->receive_gradients(m);
      case ActionKind::kSendEncoded:
        return encoder(s).here->send_encoded(m);
      case ActionKind::kRecvEncoded:
        return encoder(s).here->receive_encoded(m);
      case ActionKind::kSendEncodedGrads:
        return encoder(s).here->send_encoded_gradient(m);
      case ActionKind::kRecvEncodedGrads:
        return encoder(s).here->receive_encoded_gradient(m);
    }
  }

  void forward(int32_t index, int32_t microbatch) {
    StageWalk& model = stage(index);
    const Place place{index, microbatch};
    WalkedVisit& visit = visits_[place];
    WalkedFlow flow(plan_.modules.size());
    if (index > 0) {
      if (schedule_.crosses_ranks(index - 1)) {
        visit.inputs = joined(model.tensors_in(load(microbatch)), std::move(arrived_.extract(place).mapped()));
      } else {
        visit.inputs = std::move(made_.extract({index - 1, microbatch}).mapped());
      }
      flow = visit.inputs;
    }
    take_media(model, microbatch, flow);
    WalkedFlow result = model.forward(std::move(flow), load(microbatch), received_rows(microbatch), /*keeps=*/true,
                                      backwards_.are_split, visit);
    if (model.is_last()) return;
    WalkedFlow& outputs = made_[place];
    outputs.resize(plan_.modules.size());
    for (const StageWalk::FlowBytes& tensor : model.tensors_out(load(microbatch))) {
      const CountedTensor& x = result[tensor.module];
      outputs[tensor.module] = schedule_.crosses_ranks(index) ? tensor.sent(x, count_) : x;
    }
  }

  void take_media(const StageWalk& model, int32_t microbatch, WalkedFlow& flow) {
    for (const auto& each : encoders_) {
      if (!each->bridge || !model.takes_rows(each->module, load(microbatch))) continue;
      flow[each->module] = each->bridge->take_rows(microbatch);
      if (trains(plan_, plan_.modules[each->module].kind)) media_[{each->module, microbatch}] = flow[each->module];
    }
  }

  void give_media_gradients(const StageWalk& model, int32_t microbatch, WalkedFlow& of_inputs) {
    for (const auto& each : encoders_) {
      if (!each->bridge || !model.takes_rows(each->module, load(microbatch))) continue;
      const auto rows = media_.extract({each->module, microbatch});
      if (rows.empty()) continue;
      CountedTensor& gradient = of_inputs[each->module];
      if (!gradient.is_defined()) gradient = CountedTensor(count_, each->bridge->bytes_taken(microbatch));
      each->bridge->give_gradient(microbatch, gradient);
      gradient.reset();
    }
  }

  /// Whether a transfer between any two stages has tensors: a microbatch may lack media, and frozen encoders' rows have
  /// no gradients.
  bool carries_anything(const Action& action) const {
    const bool goes_back = action.kind == ActionKind::kSendBackward;
    const bool is_in_pipeline = action.kind == ActionKind::kSendForward || action.kind == ActionKind::kSendBackward;
    if (!place_ || !is_in_pipeline) return false;
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
    const int64_t first = routed_place_ / ep * ep;
    size_t router = 0;
    for (const size_t kind : llm.layers) {
      received.push_back(0);
      if (find_op(llm.distinct_layers[kind], "moe.router") == nullptr) continue;
      for (int64_t other = first; other < first + ep; ++other) {
        const auto& rows = load_.routed[router][static_cast<size_t>(other)][static_cast<size_t>(microbatch)];
        const auto here = static_cast<int64_t>(rows.size()) / ep, begin = (routed_place_ - first) * here;
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
        gradients = joined(model.tensors_out(load(microbatch)), std::move(arrived_gradients_.extract(place).mapped()));
      } else {
        gradients = std::move(made_gradients_.extract({index + 1, microbatch}).mapped());
      }
    }
    const bool is_last = backwards_.is_last(index, microbatch);
    WeightsWalk& weights = model.weights();
    if (!backwards_.are_split) weights.begin_gradients(is_last);
    weights.begin_backward(backwards_.are_split ? &visit.queue : nullptr);
    WalkedFlow of_inputs = model.backward(std::move(gradients), visit);
    weights.end_backward();
    if (backwards_.are_split && !defers) {
      weights.begin_gradients(is_last);
      run_queue(visit.queue);
    }
    if (index > 0) {
      WalkedFlow& made = made_gradients_[place];
      made.resize(plan_.modules.size());
      for (const StageWalk::FlowBytes& tensor : model.tensors_in(load(microbatch))) {
        if (!tensor.needs_gradient) continue;
        CountedTensor& gradient = of_inputs[tensor.module];
        if (!gradient.is_defined()) gradient = CountedTensor(count_, tensor.bytes);
        made[tensor.module] = schedule_.crosses_ranks(index - 1) ? tensor.sent(gradient, count_) : gradient;
      }
    }
    give_media_gradients(model, microbatch, of_inputs);
    visit.inputs.clear();
    visit.ways.clear();
    visit.kept.clear();
    if (defers) return;
    visits_.erase(place);
    weights.end_gradients();
  }

  void weights(int32_t index, int32_t microbatch) {
    WeightsWalk& weights = stage(index).weights();
    weights.begin_gradients(backwards_.is_last(index, microbatch));
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
      if (!are_gradients || tensor.needs_gradient) flow[tensor.module] = CountedTensor(count_, tensor.sent_bytes);
    }
    return flow;
  }

  /// What arrived for a stage, as it has it.
  WalkedFlow joined(const std::vector<StageWalk::FlowBytes>& tensors, WalkedFlow flow) {
    for (const StageWalk::FlowBytes& tensor : tensors) {
      CountedTensor& part = flow[tensor.module];
      if (part.is_defined()) part = tensor.arrived(part, count_);
    }
    return flow;
  }

  /// Before the first update of any stage here.
  void finish() {
    if (is_finished_) return;
    is_finished_ = true;
    std::vector<WeightsWalk*> all;
    for (auto& each : stages_)
      if (each) all.push_back(&each->weights());
    for (auto& each : encoders_)
      if (each->here) all.push_back(&each->here->weights());
    for (WeightsWalk* weights : all) weights->finish_reduce();
    for (WeightsWalk* weights : all) weights->measure();
  }

  int64_t sent_bytes() const {
    int64_t bytes = flights_.bytes();
    for (const Sent& sent : sends_) bytes += sent.tensor.is_shared() ? 0 : sent.tensor.bytes();
    return bytes;
  }

  const Plan& plan_;
  const StepLoad& load_;
  const Schedule& schedule_;
  ByteCount count_;
  int64_t routed_place_ = 0;                        ///< of RankGroups::routed
  std::vector<std::optional<RankPlace>> places_;    ///< by module
  std::optional<size_t> row_;                       ///< nothing: the rank is idle
  std::optional<RankPlace> place_;                  ///< of the llm
  std::vector<std::unique_ptr<StageWalk>> stages_;  ///< by stage, null for others'
  RowBackwards backwards_;
  bool is_finished_ = false;
  std::map<Place, WalkedVisit> visits_;
  std::map<Place, WalkedFlow> arrived_, arrived_gradients_, made_, made_gradients_;
  std::deque<Sent> sends_;
  Flights flights_;
  std::vector<std::unique_ptr<Encoder>> encoders_;             ///< as in the schedule
  std::map<std::pair<size_t, int32_t>, CountedTensor> media_;  ///< by module and microbatch: rows that need a gradient
  size_t sent_until_ = 0;                                      ///< of what the action that runs sends
};

}  // namespace

int64_t StepMemory::peak_bytes() const {
  int64_t most = 0;
  for (const ActionBytes& action : actions) most = std::max(most, action.peak);
  return bytes_before() + most;
}

int64_t StepMemory::settled_peak_bytes() const {
  int64_t most = 0;
  for (const ActionBytes& action : actions) most = std::max(most, action.settled_peak);
  return bytes_before() + most;
}

Result<StepMemory> step_memory(const Plan& plan, const StepLoad& load, int64_t rank, WalkedDevice device) {
  WEFT_TRY(const Schedule schedule, playable_schedule(plan));
  StepMemory memory{.state = held_state(plan, rank), .actions = {}};
  RowWalk walk(plan, load, schedule, rank, device);
  memory.late_gradients = walk.whole_gradient_bytes();
  memory.actions = walk.run();
  return memory;
}

}  // namespace weft
