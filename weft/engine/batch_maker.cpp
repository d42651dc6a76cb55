#include "weft/engine/batch_maker.h"

#include <algorithm>
#include <tuple>

#include "weft/engine/sample_inputs.h"
#include "weft/meaning/plan_batch.h"

namespace weft {
namespace {

/// Of what several threads found: each sample's problems once, in order.
void tidy(std::vector<SkippedSample>& skipped) {
  const auto place = [](const SkippedSample& s) { return std::tuple(s.sample, s.attempt, !s.is_new); };
  std::sort(skipped.begin(), skipped.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  const auto is_same = [](const SkippedSample& a, const SkippedSample& b) {
    return a.sample == b.sample && a.attempt == b.attempt;
  };
  skipped.erase(std::unique(skipped.begin(), skipped.end(), is_same), skipped.end());
}

std::vector<int64_t> joined(const std::vector<std::vector<int64_t>>& parts) {
  std::vector<int64_t> all;
  for (const std::vector<int64_t>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// The next so many, after which `next` stands.
std::vector<Sample> taken(std::vector<Sample>::iterator& next, size_t count) {
  const auto begin = next;
  next += static_cast<std::ptrdiff_t>(count);
  return {std::make_move_iterator(begin), std::make_move_iterator(next)};
}

}  // namespace

/// Reads samples of one batch, several at once.
class BatchMaker::Reader {
 public:
  Reader(const SampleSource& samples, int64_t first, WorkerThreads& workers)
      : samples_(samples), first_(first), workers_(workers) {}

  Result<std::vector<SampleLengths>> lengths(int64_t count) {
    std::vector<int64_t> indices(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) indices[static_cast<size_t>(i)] = i;
    return read_all<SampleLengths>(indices, [&](int64_t index, std::vector<SkippedSample>& skipped) {
      return samples_.lengths_of(index, skipped);
    });
  }
  Result<std::vector<Sample>> samples(const std::vector<int64_t>& indices, const WantedMedia& wanted) {
    const SampleContent content{.pixels = wanted.vision, .features = wanted.audio};
    return read_all<Sample>(indices, [&](int64_t index, std::vector<SkippedSample>& skipped) {
      return samples_.read(index, content, skipped);
    });
  }

  bool has_news() const {
    return std::any_of(skipped_.begin(), skipped_.end(), [](const SkippedSample& sample) { return sample.is_new; });
  }
  std::vector<SkippedSample> skipped() && {
    tidy(skipped_);
    return std::move(skipped_);
  }

 private:
  template <typename T, typename Read>
  Result<std::vector<T>> read_all(const std::vector<int64_t>& indices, const Read& read) {
    std::vector<std::optional<Result<T>>> found(indices.size());
    std::vector<std::vector<SkippedSample>> skipped(indices.size());
    workers_.for_each(std::ssize(indices), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      found[at] = read(first_ + indices[at], skipped[at]);
    });
    std::vector<T> all;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (!*found[i]) return found[i]->error();
      all.push_back(**std::move(found[i]));
      skipped_.insert(skipped_.end(), skipped[i].begin(), skipped[i].end());
    }
    return all;
  }

  const SampleSource& samples_;
  int64_t first_;
  WorkerThreads& workers_;
  std::vector<SkippedSample> skipped_;
};

bool BatchMaker::needs_all_lengths() const {
  return !rank.batch_shape().encoders.empty() || (plan.balance != Balance::kNone && costs.is_given());
}

BatchAssignment BatchMaker::assign(const std::vector<SampleLengths>& lengths) const {
  const BatchShape& shape = rank.batch_shape();
  BatchCosts batch;
  if (plan.balance == Balance::kNone) return assign_batch(plan, batch);
  if (!costs.is_given()) return assign_in_order(shape);
  for (const SampleLengths& sample : lengths) {
    batch.llm.push_back(costs.llm(sample.load));
    for (const auto& [kind, encoder] : shape.encoders) batch.encoders[kind].push_back(costs.encoder(kind, sample.load));
  }
  return assign_batch(plan, batch);
}

std::optional<Error> BatchMaker::make_microbatches(Reader& reader, LocalBatch& local) const {
  const auto share = rank.data_parallel_rank(ModuleKind::kLlm);
  if (!share) return std::nullopt;
  const auto& encoders = local.batch.assignment.encoders;
  const WantedMedia wanted{.vision = !encoders.contains(ModuleKind::kVision),
                           .audio = !encoders.contains(ModuleKind::kAudio)};
  const std::vector<std::vector<int64_t>>& microbatches = local.batch.assignment.llm[static_cast<size_t>(*share)];
  auto samples = reader.samples(joined(microbatches), wanted);
  if (!samples) return samples.error();
  if (reader.has_news()) return std::nullopt;
  auto next = samples->begin();
  for (const std::vector<int64_t>& microbatch : microbatches) {
    const std::vector<Sample> own = taken(next, microbatch.size());
    for (const Sample& sample : own) {
      local.num_tokens += static_cast<double>(sample.ids.size());
      const auto flops = training_step_flops(plan.model, plan.workload, sample.load);
      if (!flops) return flops.error();
      local.flops += *flops / static_cast<double>(plan.workload.global_batch_samples);
    }
    std::optional<StepDraws> own_draws = draws;
    if (own_draws) own_draws->samples = microbatch;
    auto inputs = inputs_of(rank.numbers(), rank.vocabulary(), own, wanted, own_draws);
    if (!inputs) return inputs.error();
    local.num_targets += static_cast<double>(inputs->num_targets());
    local.batch.microbatches.push_back(*std::move(inputs));
  }
  return std::nullopt;
}

std::optional<Error> BatchMaker::make_macro_batches(Reader& reader, StepBatch& made) const {
  for (const auto& [kind, shares] : made.assignment.encoders) {
    const auto share = rank.data_parallel_rank(kind);
    if (!share) continue;
    const WantedMedia wanted{.vision = kind == ModuleKind::kVision, .audio = kind == ModuleKind::kAudio};
    const std::vector<std::vector<int64_t>>& macros = shares[static_cast<size_t>(*share)];
    auto samples = reader.samples(joined(macros), wanted);
    if (!samples) return samples.error();
    if (reader.has_news()) return std::nullopt;
    auto next = samples->begin();
    for (const std::vector<int64_t>& macro : macros) {
      Inputs& media = made.encoders[kind].emplace_back();
      const std::vector<Sample> own = taken(next, macro.size());
      if (own.empty()) continue;
      auto inputs = inputs_of(rank.numbers(), rank.vocabulary(), own, wanted);
      if (!inputs) return inputs.error();
      media.vision = std::move(inputs->vision);
      media.audio = std::move(inputs->audio);
    }
  }
  return std::nullopt;
}

LocalBatch BatchMaker::make(const SampleSource& samples, int64_t first) const {
  LocalBatch local;
  Reader reader(samples, first, workers);
  std::vector<SampleLengths> lengths;
  if (needs_all_lengths()) {
    auto all = reader.lengths(plan.workload.global_batch_samples);
    if (!all) {
      local.error = all.error();
      return local;
    }
    lengths = *std::move(all);
  }
  local.batch.assignment = assign(lengths);
  local.error = make_microbatches(reader, local);
  if (!local.error) local.error = make_macro_batches(reader, local.batch);
  const bool has_news = reader.has_news();
  local.skipped = std::move(reader).skipped();
  if (local.error || has_news) return local;
  if (!local.batch.assignment.encoders.empty()) {
    for (const SampleLengths& sample : lengths)
      local.batch.media.push_back({.image = sample.rows.image, .video = sample.rows.video, .audio = sample.rows.audio});
  }
  if (!is_for_gpu) return local;
  // Beside the step before: a step then begins at once.
  for (Inputs& microbatch : local.batch.microbatches) microbatch = microbatch.staged(rank.options());
  for (auto& [kind, macros] : local.batch.encoders) {
    for (Inputs& macro : macros) macro = macro.staged(rank.options());
  }
  return local;
}

}  // namespace weft
