#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/exchange/import_parts.h"
#include "weft/meaning/training_ranges.h"

namespace weft {
namespace {

/// Steps in which so many samples are seen.
std::optional<int64_t> steps_of(const std::optional<int64_t>& samples, int64_t batch) {
  if (!samples) return std::nullopt;
  return std::max<int64_t>(0, *samples / std::max<int64_t>(1, batch));
}

/// The embedding and the head may have a rate of their own.
void read_end_rates(ImportedKeys& keys, TrainingNumbers& numbers) {
  numbers.end_layers_rate =
      keys.number_if("decoupled-lr", "optimizer.rules: the embedding's and the head's rate", kLearningRateRange);
  const auto least =
      keys.number_if("decoupled-min-lr", "their last rate: the schedule's share of their own here", kLearningRateRange);
  if (numbers.end_layers_rate && numbers.learning_rate == 0)
    keys.complain("decoupled-lr", "follows the schedule of lr, which is 0");
  if (!numbers.end_layers_rate || !numbers.learning_rate || *numbers.learning_rate <= 0) return;
  const double there = least.value_or(numbers.end_rate);
  const double here = *numbers.end_layers_rate * numbers.end_rate / *numbers.learning_rate;
  if (std::abs(there - here) > 1e-6 * *numbers.end_layers_rate)
    keys.note(
        fmt::format("the embedding's and the head's rate ends at {:g} there and, by the schedule of all others, at "
                    "{:g} here",
                    there, here));
}

}  // namespace

void read_megatron_training(Import& import) {
  ImportedKeys& keys = import.keys;
  const int64_t batch = import.plan.workload.global_batch_samples;
  TrainingNumbers numbers;
  numbers.steps = keys.integer_if("train-iters", "steps", kStepRange);
  if (const auto by_samples = steps_of(keys.integer_if("train-samples", "steps: over the batch"), batch))
    numbers.steps = by_samples;
  numbers.seed = keys.integer("seed", 1234, "seed", ImportedKeys::kWithZero);
  numbers.learning_rate = keys.number_if("lr", "optimizer.learning_rate", kLearningRateRange);
  numbers.end_rate = keys.number("min-lr", 0, "learning_rate_schedule.end_fraction: over lr", kLearningRateRange);
  numbers.schedule = keys.text("lr-decay-style", "linear", "learning_rate_schedule.kind");
  if (numbers.schedule != "linear" && numbers.schedule != "cosine" && numbers.schedule != "constant") {
    keys.not_understood("lr-decay-style", "schedules here are constant, linear and cosine");
    numbers.schedule = "constant";
  }
  auto decay = keys.integer_if("lr-decay-iters", "steps of the schedule");
  if (const auto by_samples =
          steps_of(keys.integer_if("lr-decay-samples", "steps of the schedule, over the batch"), batch))
    decay = by_samples;
  const int64_t whole = decay.value_or(numbers.steps.value_or(0));
  if (decay && numbers.steps && *decay != *numbers.steps && numbers.schedule != "constant") {
    keys.note(
        fmt::format("the learning rate falls over {} steps where the run has {}; here the schedule ends with the run, "
                    "so its later rates differ",
                    *decay, *numbers.steps));
  }
  const auto fraction = keys.number_if("lr-warmup-fraction", "learning_rate_schedule.warmup_steps: of the schedule's");
  const auto warmup =
      keys.integer_if("lr-warmup-iters", "learning_rate_schedule.warmup_steps", ImportedKeys::kWithZero);
  const auto warmup_samples =
      steps_of(keys.integer_if("lr-warmup-samples", "learning_rate_schedule.warmup_steps: over the batch",
                               ImportedKeys::kWithZero),
               batch);
  numbers.warmup_steps = warmup.value_or(warmup_samples.value_or(0));
  if (fraction)
    numbers.warmup_steps =
        static_cast<int64_t>(std::llround(std::clamp(*fraction, 0.0, 1.0) * static_cast<double>(whole)));
  if (const auto start = keys.number_if("lr-warmup-init", "the first rate; 0 here"); start && *start != 0)
    keys.not_understood("lr-warmup-init", "warming up begins at 0 here");
  numbers.weight_decay = keys.number("weight-decay", 0.01, "optimizer.weight_decay", kWeightDecayRange);
  for (const char* key : {"start-weight-decay", "end-weight-decay"}) {
    const auto other = keys.number_if(key, "optimizer.weight_decay");
    if (other && *other != numbers.weight_decay) keys.not_understood(key, "weight decay stays the same here");
  }
  if (const auto style = keys.text_if("weight-decay-incr-style", "constant"); style && *style != "constant")
    keys.not_understood("weight-decay-incr-style", "weight decay stays the same here");
  numbers.max_gradient_norm = keys.number("clip-grad", 1, "optimizer.max_gradient_norm", kGradientNormRange);
  numbers.beta1 = keys.number("adam-beta1", 0.9, "optimizer.beta1", kBeta1Range);
  numbers.beta2 = keys.number("adam-beta2", 0.999, "optimizer.beta2", kBeta2Range);
  numbers.epsilon = keys.number("adam-eps", 1e-8, "optimizer.epsilon", kEpsilonRange);
  const std::string optimizer = keys.text("optimizer", "adam", "AdamW");
  if (optimizer != "adam" && optimizer != "adamw") keys.not_understood("optimizer", "AdamW is the optimizer here");
  if (keys.has("save"))
    numbers.checkpoint_steps = keys.integer_if("save-interval", "checkpoints.interval_steps", kStepRange);
  read_end_rates(keys, numbers);
  set_config(numbers, import);
}

}  // namespace weft
