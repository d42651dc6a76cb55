#include "weft/meaning/step_calls.h"

#include <memory>
#include <set>

#include "weft/base/check.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/rank_row.h"
#include "weft/meaning/stage_calls.h"

namespace weft {
namespace {

/// Walks a rank's row as pipeline/executor runs it.
class RowCalls {
 public:
  RowCalls(const Plan& plan, const StepLoad& load, int64_t rank)
      : plan_(plan),
        load_(load),
        schedule_(playable(plan)),
        bytes_(static_cast<int64_t>(num_bytes(plan.precision.compute))) {
    const size_t llm = plan.modules.size() - 1;
    if (const auto row = row_of_rank(plan, schedule_, rank)) row_ = static_cast<size_t>(*row);
    if (place_on(plan, llm, rank)) {
      for (const size_t module : modules_of_pipeline(plan, llm))
        llm_places_[plan.modules[module].kind] = place_on(plan, module, rank).value();
      const ModulePlace& place = llm_places_.at(ModuleKind::kLlm);
      const auto& loads = load.llm[static_cast<size_t>(place.groups.place.dp)];
      for (size_t m = 0; m < loads.size(); ++m)
        microbatches_.push_back(portion_of(plan, loads[m], place, static_cast<int64_t>(m)));
      llm_contents_ = stages_of(plan, llm, place.groups.place);
      stages_.resize(static_cast<size_t>(schedule_.num_stages()));
      for (const StageContent& content : llm_contents_) {
        stages_[static_cast<size_t>(content.stage())] =
            std::make_unique<StageCalls>(plan, load, llm, llm_places_, content, calls_);
      }
    }
    for (size_t module = 0; module < llm; ++module) {
      if (!plan.modules[module].is_in_pipeline()) add_encoder(module, rank);
    }
  }

  std::vector<ActionCalls> list() {
    std::vector<ActionCalls> found;
    if (!row_) return found;
    const std::vector<Action>& row = schedule_.rows[*row_];
    backwards_ = backwards_of_row(row, stages_.size());
    for (const Action& action : row) {
      const auto before = std::ssize(calls_.calls());
      play(action);
      found.push_back({action, {calls_.calls().begin() + before, calls_.calls().end()}});
    }
    return found;
  }

 private:
  /// An encoder beside the pipeline, where this rank has a stage of it.
  struct Encoder {
    StageCalls::Places places;
    std::vector<StageContent> contents;
    std::vector<std::optional<RankPortion>> macro_batches;
    std::unique_ptr<StageCalls> stage;
    const ScheduledEncoder* settings = nullptr;
    int32_t num_backward = 0;

    const ModulePlace& place() const { return places.begin()->second; }
    int32_t index() const { return contents.front().stage(); }
    bool is_last() const { return index() + 1 == place().plan->pp; }
  };

  static Schedule playable(const Plan& plan) {
    Result<Schedule> schedule = playable_schedule(plan);
    WEFT_CHECK(schedule.ok(), "{}", schedule.error().message());
    return *std::move(schedule);
  }

  void add_encoder(size_t module, int64_t rank) {
    Encoder& encoder = *encoders_.emplace_back(std::make_unique<Encoder>());
    encoder.settings = &schedule_.encoders[encoders_.size() - 1];
    const std::optional<ModulePlace> place = place_on(plan_, module, rank);
    if (!place) return;
    const ModuleKind kind = plan_.modules[module].kind;
    encoder.places[kind] = *place;
    const auto& macro_batches = load_.beside.at(kind).macro_batches[static_cast<size_t>(place->groups.place.dp)];
    for (size_t k = 0; k < macro_batches.size(); ++k) {
      encoder.macro_batches.emplace_back();
      if (macro_batches[k])
        encoder.macro_batches.back() = portion_of(plan_, *macro_batches[k], *place, static_cast<int64_t>(k));
    }
    encoder.contents = stages_of(plan_, module, place->groups.place);
    encoder.stage =
        std::make_unique<StageCalls>(plan_, load_, module, encoder.places, encoder.contents.front(), calls_);
  }

  StageCalls& stage(int32_t index) { return *stages_[static_cast<size_t>(index)]; }
  const RankPortion& microbatch(int32_t m) const { return microbatches_[static_cast<size_t>(m)]; }

  void play(const Action& action) {
    const int32_t s = action.stage, m = action.microbatch;
    switch (action.kind) {
      case ActionKind::kForward:
        if (s > 0 && schedule_.crosses_ranks(s - 1)) join(stage(s), s - 1, m, /*are_gradients=*/false);
        return stage(s).forward(microbatch(m));
      case ActionKind::kBackward:
        return backward(s, m, /*defers=*/false);
      case ActionKind::kBackwardInput:
        return backward(s, m, /*defers=*/true);
      case ActionKind::kBackwardWeight:
        return weights(s, m);
      case ActionKind::kSendForward:
        return transfer(stage(s), s, m, /*are_gradients=*/false, /*sends=*/true);
      case ActionKind::kRecvForward:
        return transfer(stage(s), s - 1, m, /*are_gradients=*/false, /*sends=*/false);
      case ActionKind::kSendBackward:
        return transfer(stage(s), s - 1, m, /*are_gradients=*/true, /*sends=*/true);
      case ActionKind::kRecvBackward:
        return transfer(stage(s), s, m, /*are_gradients=*/true, /*sends=*/false);
      case ActionKind::kReduceGrad:
        return stage(s).weights().reduce();
      case ActionKind::kUpdate:
        finish();
        return stage(s).weights().update();
      case ActionKind::kEncodeForward:
        return encode(*encoders_[static_cast<size_t>(s)], m);
      case ActionKind::kEncodeBackward:
        return encode_backward(*encoders_[static_cast<size_t>(s)], m);
      case ActionKind::kEncodeReduce:
        return encoders_[static_cast<size_t>(s)]->stage->weights().reduce();
      case ActionKind::kEncodeUpdate:
        finish();
        return encoders_[static_cast<size_t>(s)]->stage->weights().update();
      case ActionKind::kSendEncoded:
      case ActionKind::kRecvEncoded:
      case ActionKind::kSendEncodedGrads:
      case ActionKind::kRecvEncodedGrads:
        return transfer_encoded(*encoders_[static_cast<size_t>(s)], action);
      case ActionKind::kSendRows:
      case ActionKind::kRecvRows:
      case ActionKind::kSendRowGrads:
      case ActionKind::kRecvRowGrads:
        return;
    }
  }

  void backward(int32_t s, int32_t m, bool defers) {
    StageCalls& own = stage(s);
    if (s + 1 < schedule_.num_stages() && schedule_.crosses_ranks(s)) join(own, s, m, /*are_gradients=*/true);
    const bool is_last = backwards_.is_last(s, m);
    DeferredCalls& deferred = deferred_[{s, m}];
    if (!backwards_.are_split) own.weights().begin_gradients(is_last);
    own.backward(microbatch(m), backwards_.are_split ? &deferred : nullptr);
    if (defers) return;
    if (backwards_.are_split) return weights(s, m);
    own.weights().end_gradients();
  }

  void weights(int32_t s, int32_t m) {
    WeightCalls& own = stage(s).weights();
    own.begin_gradients(backwards_.is_last(s, m));
    for (const auto& task : deferred_[{s, m}]) task();
    deferred_.erase({s, m});
    own.end_gradients();
  }

  /// Ranks need some rows whole, of which each sent a part.
  void join(StageCalls& own, int32_t behind, int32_t m, bool are_gradients) {
    for (const FlowRows& tensor : own.flow_behind(behind, microbatch(m))) {
      if (tensor.needs_gradient || !are_gradients) own.join(tensor);
    }
  }

  void transfer(const StageCalls& own, int32_t behind, int32_t m, bool are_gradients, bool sends) {
    for (const FlowRows& tensor : own.flow_behind(behind, microbatch(m))) {
      if (are_gradients && !tensor.needs_gradient) continue;
      move(llm_places_.at(ModuleKind::kLlm), tensor, sends);
    }
  }

  /// Each rank sends its part.
  void move(const ModulePlace& pipeline, const FlowRows& tensor, bool sends) {
    const int64_t elements = tensor.sent * tensor.width;
    if (sends) return calls_.send(pipeline.pipeline, elements, bytes_);
    calls_.receive(pipeline.pipeline, elements, bytes_);
  }

  void encode(Encoder& encoder, int32_t macro) {
    const std::optional<RankPortion>& portion = encoder.macro_batches[static_cast<size_t>(macro)];
    const RankPortion nothing{.number = macro};
    if (portion && encoder.index() > 0) {
      for (const FlowRows& tensor : encoder.stage->flow_behind(encoder.index() - 1, *portion))
        encoder.stage->join(tensor);
    }
    encoder.stage->forward(portion ? *portion : nothing);
  }

  /// Between the stages of its own pipeline.
  void transfer_encoded(const Encoder& encoder, const Action& action) {
    const std::optional<RankPortion>& portion = encoder.macro_batches[static_cast<size_t>(action.microbatch)];
    if (!portion) return;
    const bool sends = is_send(action.kind);
    const bool are_gradients =
        action.kind == ActionKind::kSendEncodedGrads || action.kind == ActionKind::kRecvEncodedGrads;
    const int32_t behind = sends == are_gradients ? encoder.index() - 1 : encoder.index();
    for (const FlowRows& tensor : encoder.stage->flow_behind(behind, *portion)) {
      if (tensor.needs_gradient || !are_gradients) move(encoder.place(), tensor, sends);
    }
  }

  void encode_backward(Encoder& encoder, int32_t macro) {
    const std::optional<RankPortion>& portion = encoder.macro_batches[static_cast<size_t>(macro)];
    const RankPortion nothing{.number = macro};
    if (portion && !encoder.is_last()) {
      for (const FlowRows& tensor : encoder.stage->flow_behind(encoder.index(), *portion)) {
        if (tensor.needs_gradient) encoder.stage->join(tensor);
      }
    }
    if (encoder.settings->recompute_from_inputs) encoder.stage->forward(portion ? *portion : nothing);
    WeightCalls& weights = encoder.stage->weights();
    weights.begin_gradients(++encoder.num_backward == encoder.settings->num_macro_batches);
    encoder.stage->backward(portion ? *portion : nothing, nullptr);
    weights.end_gradients();
  }

  /// Before the first update.
  void finish() {
    if (is_finished_) return;
    is_finished_ = true;
    for (const auto& own : stages_) {
      if (own) own->weights().sum_tied();
    }
  }

  const Plan& plan_;
  const StepLoad& load_;
  Schedule schedule_;
  int64_t bytes_;
  CallList calls_;
  std::optional<size_t> row_;
  StageCalls::Places llm_places_;
  std::vector<StageContent> llm_contents_;
  std::vector<RankPortion> microbatches_;
  std::vector<std::unique_ptr<StageCalls>> stages_;  ///< by stage of the llm's pipeline, those here
  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::map<std::pair<int32_t, int32_t>, DeferredCalls> deferred_;  ///< by stage and microbatch
  RowBackwards backwards_;
  bool is_finished_ = false;
};

}  // namespace

std::vector<ActionCalls> step_calls(const Plan& plan, const StepLoad& load, int64_t rank) {
  return RowCalls(plan, load, rank).list();
}

}  // namespace weft
