#include "weft/engine/batch_maker.h"

#include <algorithm>
#include <tuple>

#include "weft/engine/media_slices.h"
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
    return read_all<SampleLengths>(static_cast<size_t>(count), [&](size_t i, std::vector<SkippedSample>& skipped) {
      return samples_.lengths_of(first_ + static_cast<int64_t>(i), skipped);
    });
  }
  /// Of each the content that is wanted.
  Result<std::vector<Sample>> samples(const std::vector<int64_t>& indices, const std::vector<SampleContent>& contents) {
    return read_all<Sample>(indices.size(), [&](size_t i, std::vector<SkippedSample>& skipped) {
      return samples_.read(first_ + indices[i], contents[i], skipped);
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
  Result<std::vector<T>> read_all(size_t count, const Read& read) {
    std::vector<std::optional<Result<T>>> found(count);
    std::vector<std::vector<SkippedSample>> skipped(count);
    workers_.for_each(static_cast<int64_t>(count), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      found[at] = read(at, skipped[at]);
    });
    std::vector<T> all;
    for (size_t i = 0; i < count; ++i) {
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

std::vector<int64_t> BatchMaker::numbers_of_segments(const List& list, const std::vector<Sample>& samples) const {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < list.size(); ++i) {
    for (int64_t k = 0; k < samples[i].num_segments(); ++k)
      numbers.push_back(list[i] + k * plan.workload.global_batch_samples);
  }
  return numbers;
}

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

std::optional<Error> BatchMaker::add_slices(Reader& reader, const std::vector<List>& lists,
                                            std::vector<MadeList>& made) const {
  std::vector<MediaSlices> slices;
  std::vector<int64_t> indices;
  std::vector<SampleContent> contents;
  for (size_t i = 0; i < lists.size(); ++i) {
    slices.emplace_back(rank, made[i].samples, made[i].inputs);
    for (size_t k = 0; k < lists[i].size(); ++k) {
      const SampleContent& content = slices[i].contents()[k];
      if (!content.pixels && !content.features) continue;
      indices.push_back(lists[i][k]);
      contents.push_back(content);
    }
  }
  auto read = reader.samples(indices, contents);
  if (!read) return read.error();
  if (reader.has_news()) return std::nullopt;
  auto next = read->begin();
  for (size_t i = 0; i < lists.size(); ++i) {
    for (size_t k = 0; k < lists[i].size(); ++k) {
      const SampleContent& content = slices[i].contents()[k];
      if (content.pixels || content.features) made[i].samples[k] = std::move(*next++);
    }
    slices[i].fill(made[i].samples, made[i].inputs);
  }
  return std::nullopt;
}

Result<std::vector<BatchMaker::MadeList>> BatchMaker::make_lists(Reader& reader, const std::vector<List>& lists,
                                                                 WantedMedia wanted, bool is_llm) const {
  const std::vector<int64_t> indices = joined(lists);
  const SampleContent content{.pixels = is_shared && wanted.vision, .features = is_shared && wanted.audio};
  WEFT_TRY(std::vector<Sample> samples, reader.samples(indices, std::vector<SampleContent>(indices.size(), content)));
  std::vector<MadeList> made;
  if (reader.has_news()) return made;
  wanted.has_content = is_shared;
  auto next = samples.begin();
  for (const List& list : lists) {
    MadeList& own = made.emplace_back();
    own.samples = taken(next, list.size());
    if (list.empty()) continue;
    std::optional<StepDraws> own_draws = is_llm || (draws && draws->of_encoders) ? draws : std::nullopt;
    if (own_draws) own_draws->samples = numbers_of_segments(list, own.samples);
    WEFT_TRY(own.inputs, inputs_of(rank.numbers(), rank.vocabulary(), own.samples, wanted, own_draws));
  }
  if (is_shared) return made;
  if (auto error = add_slices(reader, lists, made)) return *std::move(error);
  if (reader.has_news()) made.clear();
  return made;
}

std::optional<Error> BatchMaker::make_microbatches(Reader& reader, LocalBatch& local) const {
  const auto share = rank.data_parallel_rank(ModuleKind::kLlm);
  if (!share) return std::nullopt;
  const auto& encoders = local.batch.assignment.encoders;
  const WantedMedia wanted{.vision = !encoders.contains(ModuleKind::kVision),
                           .audio = !encoders.contains(ModuleKind::kAudio)};
  auto made = make_lists(reader, local.batch.assignment.llm[static_cast<size_t>(*share)], wanted, /*is_llm=*/true);
  if (!made) return made.error();
  for (MadeList& microbatch : *made) {
    for (const Sample& sample : microbatch.samples) {
      local.num_tokens += rank.numbers().program ? num_tokens(sample.load.llm) : static_cast<double>(sample.ids.size());
      local.num_records += static_cast<double>(sample.num_segments());
      const auto flops = training_step_flops(plan.model, plan.workload, sample.load);
      if (!flops) return flops.error();
      local.flops += *flops / static_cast<double>(plan.workload.global_batch_samples);
    }
    local.num_targets += static_cast<double>(microbatch.inputs.num_targets());
    local.batch.microbatches.push_back(std::move(microbatch.inputs));
  }
  return std::nullopt;
}

std::optional<Error> BatchMaker::make_macro_batches(Reader& reader, StepBatch& made) const {
  for (const auto& [kind, shares] : made.assignment.encoders) {
    const auto share = rank.data_parallel_rank(kind);
    if (!share) continue;
    const WantedMedia wanted{.vision = kind == ModuleKind::kVision, .audio = kind == ModuleKind::kAudio};
    auto macros = make_lists(reader, shares[static_cast<size_t>(*share)], wanted, /*is_llm=*/false);
    if (!macros) return macros.error();
    for (MadeList& macro : *macros) {
      Inputs& media = made.encoders[kind].emplace_back();
      media.vision = std::move(macro.inputs.vision);
      media.audio = std::move(macro.inputs.audio);
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
