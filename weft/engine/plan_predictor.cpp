#include "weft/engine/plan_predictor.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/clock.h"
#include "weft/checkpoint/agreement.h"
#include "weft/checkpoint/initial_weights.h"
#include "weft/engine/next_token.h"
#include "weft/engine/on_ranks.h"
#include "weft/engine/prediction_plan.h"
#include "weft/engine/rank_device.h"
#include "weft/meaning/plan_batch.h"
#include "weft/pipeline/training_rank.h"

namespace weft {
namespace {

/// What is told in place of a token where logits are no numbers.
constexpr double kNotFinite = -1;

MediaRowCounts media_rows(const ModelNumbers& numbers, const RawInputs& raw) {
  const at::Tensor ids = raw.input_ids.contiguous();
  const int64_t* first = ids.data_ptr<int64_t>();
  const auto count = [&](int64_t id) { return id < 0 ? 0 : std::count(first, first + ids.numel(), id); };
  const MediaTokens& tokens = numbers.media.tokens;
  return {.image = count(tokens.image), .video = count(tokens.video), .audio = count(tokens.audio)};
}

/// Grows several texts in step, one for every microbatch of every data-parallel rank. All ranks know all tokens.
class Round {
 public:
  /// Texts beyond the prompts are copies of the last, whose tokens nobody wants.
  Round(const PlanPrediction& job, TrainingRank& rank, Group everyone, const std::vector<PlannedPrompt>& prompts,
        size_t first)
      : job_(job), rank_(rank), everyone_(std::move(everyone)), assignment_(assign_in_order(rank.batch_shape())) {
    const auto count = static_cast<size_t>(num_texts(job.plan));
    most_new_ = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t prompt = std::min(first + i, prompts.size() - 1);
      texts_.push_back(
          {.prompt = &prompts[prompt],
           .number = prompt,
           .position = prompts[prompt].inputs.positions.narrow(1, prompts[prompt].inputs.positions.size(1) - 1, 1),
           .is_done = first + i >= prompts.size()});
      most_new_ = std::max(most_new_, prompts[prompt].max_new_tokens);
    }
    const auto share = rank.data_parallel_rank(ModuleKind::kLlm);
    if (!share) return;
    for (const std::vector<int64_t>& samples : assignment_.llm[static_cast<size_t>(*share)]) {
      WEFT_CHECK(samples.size() == 1, "a microbatch of {} texts", samples.size());
      own_.push_back(static_cast<size_t>(samples.front()));
      const PlannedPrompt& prompt = *texts_[own_.back()].prompt;
      growing_.most_tokens.push_back(prompt.inputs.ids.size(0) + most_new_);
      choosers_.emplace_back(job.sampling, texts_[own_.back()].number, tokens_of(prompt.inputs.ids));
    }
  }

  struct Done {
    std::vector<Generation> texts;
    double prefill_ms = 0;
    double decode_ms = 0;
  };
  Result<Done> run() {
    Done done;
    double begin = now_ms();
    if (auto error = take(rank_.grow(prompt_batch(), growing_))) return *error;
    done.prefill_ms = now_ms() - begin;
    begin = now_ms();
    while (std::any_of(texts_.begin(), texts_.end(), [](const Text& text) { return !text.is_done; })) {
      if (auto error = take(rank_.grow(next_batch(), growing_))) return *error;
    }
    done.decode_ms = now_ms() - begin;
    for (Text& text : texts_) {
      if (!text.result.tokens.empty()) done.texts.push_back(std::move(text.result));
    }
    return done;
  }

 private:
  struct Text {
    const PlannedPrompt* prompt = nullptr;
    size_t number = 0;     ///< of the prompt
    at::Tensor position;   ///< [axes, 1] of the last token
    bool is_done = false;  ///< it goes on in step with the others, and nobody reads it
    int64_t last_token = 0;
    Generation result = {};
  };

  StepBatch empty_batch() const {
    StepBatch batch{.assignment = assignment_};
    batch.media.resize(texts_.size());
    for (const auto& [kind, shares] : assignment_.encoders) {
      const auto share = rank_.data_parallel_rank(kind);
      if (share) batch.encoders[kind].resize(shares[static_cast<size_t>(*share)].size());
    }
    return batch;
  }

  StepBatch prompt_batch() const {
    StepBatch batch = empty_batch();
    for (size_t i = 0; i < texts_.size(); ++i) batch.media[i] = media_rows(rank_.numbers(), texts_[i].prompt->raw);
    for (const size_t text : own_) {
      Inputs& inputs = batch.microbatches.emplace_back(texts_[text].prompt->inputs);
      if (assignment_.encoders.contains(ModuleKind::kVision)) inputs.vision.reset();
      if (assignment_.encoders.contains(ModuleKind::kAudio)) inputs.audio.reset();
    }
    for (auto& [kind, macros] : batch.encoders) {
      const auto& shares = assignment_.encoders.at(kind)[static_cast<size_t>(*rank_.data_parallel_rank(kind))];
      for (size_t macro = 0; macro < macros.size(); ++macro) {
        WEFT_CHECK(shares[macro].size() <= 1, "a macro batch of {} texts", shares[macro].size());
        if (shares[macro].empty()) continue;
        const Inputs& inputs = texts_[static_cast<size_t>(shares[macro].front())].prompt->inputs;
        if (kind == ModuleKind::kVision) macros[macro].vision = inputs.vision;
        if (kind == ModuleKind::kAudio) macros[macro].audio = inputs.audio;
      }
    }
    return batch;
  }

  /// The last token of every text.
  StepBatch next_batch() const {
    StepBatch batch = empty_batch();
    for (const size_t index : own_) {
      const Text& text = texts_[index];
      const at::Tensor none = at::empty({0}, text.position.options());
      batch.microbatches.push_back({.ids = at::full({1}, text.last_token, text.position.options()),
                                    .positions = text.position,
                                    .samples = PackedSegments({1}),
                                    .target_rows = none,
                                    .targets = none,
                                    .vision_places = none,
                                    .audio_places = none});
    }
    return batch;
  }

  /// Tokens by what was computed here, told to all ranks.
  std::optional<Error> take(const std::vector<at::Tensor>& logits) {
    std::vector<double> told(texts_.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      const Text& text = texts_[own_[i]];
      const auto token = next_token(choosers_[i], logits[i], text.result.tokens.size());
      told[own_[i]] = token ? static_cast<double>(*token) : kNotFinite;
    }
    everyone_
        .all_reduce(Buffer{.data = told.data(), .count = std::ssize(told), .type = DataType::kFp64}, Reduction::kSum)
        .wait();
    for (size_t i = 0; i < texts_.size(); ++i) {
      Text& text = texts_[i];
      if (text.is_done) continue;
      if (told[i] == kNotFinite) return not_finite_error(text.result.tokens.size());
      add(text, static_cast<int64_t>(told[i]));
    }
    return std::nullopt;
  }

  void add(Text& text, int64_t token) {
    Generation& result = text.result;
    result.tokens.push_back(token);
    if (text.number == 0 && job_.on_token && everyone_.rank() == 0) job_.on_token(token);
    result.reached_end = std::find(job_.end_ids.begin(), job_.end_ids.end(), token) != job_.end_ids.end();
    text.is_done = result.reached_end || std::ssize(result.tokens) == text.prompt->max_new_tokens;
    text.last_token = token;
    if (!text.is_done) text.position = text.position + 1;
  }

  const PlanPrediction& job_;
  TrainingRank& rank_;
  Group everyone_;
  BatchAssignment assignment_;
  std::vector<Text> texts_;
  int64_t most_new_ = 0;
  std::vector<size_t> own_;  ///< texts of this rank's microbatches
  std::vector<TokenChooser> choosers_;
  GrowingTexts growing_;
};

Result<std::unique_ptr<TrainingRank>> load_rank(World& world, const PlanPrediction& job) {
  const UnlimitedWaits patience(world.all());
  auto device = open_rank_device(world, job.device);
  if (auto error = first_error(world.all(), device ? std::nullopt : std::optional(device.error()))) return *error;
  WEFT_TRY(std::unique_ptr<TrainingRank> rank,
           TrainingRank::create(world, job.plan, {.seed = std::nullopt, .device = *device}));
  const auto weights = WeightFolder::open(job.model);
  if (auto error = first_error(world.all(), weights ? std::nullopt : std::optional(weights.error()))) return *error;
  if (auto error =
          load_initial_weights(*weights, job.plan.model, world.all(), rank->optimizers(), {.folder = job.adapter}))
    return *error;
  return rank;
}

Result<PlannedGenerations> run_rank(World& world, const PlanPrediction& job,
                                    const std::vector<PlannedPrompt>& prompts) {
  WEFT_TRY(const std::unique_ptr<TrainingRank> rank, load_rank(world, job));
  PlannedGenerations all;
  for (size_t first = 0; first < prompts.size(); first += static_cast<size_t>(num_texts(job.plan))) {
    WEFT_TRY(Round::Done done, Round(job, *rank, world.all(), prompts, first).run());
    all.prefill_ms += done.prefill_ms;
    all.decode_ms += done.decode_ms;
    for (Generation& text : done.texts) all.prompts.push_back(std::move(text));
  }
  return all;
}

}  // namespace

Result<std::optional<PlannedGenerations>> generate_on_ranks(const PlanPrediction& job,
                                                            const std::vector<PlannedPrompt>& prompts) {
  TrainConfig config;
  config.source = "--threads";
  config.device = job.device;
  config.threads_per_rank = job.num_threads;
  return on_ranks<PlannedGenerations>(job.plan, config, /*memory=*/{}, /*say=*/{},
                                      [&](World& world) { return run_rank(world, job, prompts); });
}

}  // namespace weft
