#include "tests/support/meaning/random_load.h"

#include <algorithm>
#include <random>

#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/spec/num_experts.h"

namespace weft {
namespace {

/// What one sample has of one kind of media.
struct SampleMedia {
  std::vector<int64_t> segments;  ///< rows of the encoder
  int64_t outputs = 0;            ///< rows that it gives
};

struct Sample {
  int64_t text = 0;  ///< tokens before its media, and as many after
  std::map<ModuleKind, SampleMedia> media;
};

class LoadDrawer {
 public:
  LoadDrawer(const Plan& plan, uint64_t seed) : plan_(plan), random_(seed) {}

  StepLoad draw() {
    for (int64_t i = 0; i < plan_.workload.global_batch_samples; ++i) samples_.push_back(draw_sample());
    for (const ModulePlan& module : plan_.modules) {
      if (!module.is_in_pipeline()) deal_beside(module);
    }
    deal_text();
    draw_choices();
    load_.balances_experts = below(2) == 0;
    return std::move(load_);
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int64_t unit(ModuleKind kind) const {
    return kind == ModuleKind::kVision ? plan_.model.media.patches_per_embedding : 2;
  }

  /// Images of one size, with a row in front.
  bool has_tiles(ModuleKind kind) const {
    return kind == ModuleKind::kVision && plan_.model.media.patches_per_tile > 0;
  }
  int64_t tile_outputs() const { return plan_.model.media.patches_per_tile / plan_.model.media.patches_per_embedding; }

  Sample draw_sample() {
    Sample sample{.text = 1 + below(6), .media = {}};
    for (const ModulePlan& module : plan_.modules) {
      if (!module.is_encoder()) continue;
      SampleMedia media;
      for (int64_t left = below(3); left > 0; --left) {
        const int64_t outputs = has_tiles(module.kind) ? tile_outputs() : 1 + below(7);
        media.segments.push_back(outputs * unit(module.kind) + (has_tiles(module.kind) ? 1 : 0));
        media.outputs += outputs;
      }
      if (media.outputs > 0) sample.media[module.kind] = std::move(media);
    }
    return sample;
  }

  std::optional<EncoderLoad> load_of(ModuleKind kind, const std::vector<int64_t>& samples) const {
    EncoderLoad load;
    int64_t rows = 0;
    for (const int64_t index : samples) {
      const Sample& sample = samples_[static_cast<size_t>(index)];
      const auto found = sample.media.find(kind);
      if (found == sample.media.end()) continue;
      for (const int64_t segment : found->second.segments) {
        load.segments.push_back(segment);
        const bool lists_units = kind == ModuleKind::kAudio || has_tiles(kind);
        const int64_t first = rows + (has_tiles(kind) ? 1 : 0);
        for (int64_t row = first; lists_units && row < rows + segment; row += unit(kind)) load.pairs.push_back(row);
        rows += segment;
      }
    }
    if (rows == 0) return std::nullopt;
    return load;
  }

  void deal_beside(const ModulePlan& module) {
    const auto placements = encoder_placements(plan_);
    int64_t num_macro = 0;
    for (const EncoderPlacement& placement : *placements) {
      if (placement.rows.name == name_of(module.kind)) num_macro = placement.rows.num_macro_batches;
    }
    const auto total = std::ssize(samples_);
    BesideLoad& beside = load_.beside[module.kind];
    beside.macro_batches.resize(static_cast<size_t>(module.dp));
    BatchAssignment::Shares shares(static_cast<size_t>(module.dp));
    int64_t next_sample = 0;
    for (int64_t slot = 0; slot < num_macro * module.dp; ++slot) {
      const auto share = static_cast<size_t>(slot % module.dp);
      const int64_t end = total * (slot + 1) / (num_macro * module.dp);
      std::vector<int64_t>& own = shares[share].emplace_back();
      for (; next_sample < end; ++next_sample) own.push_back(next_sample);
      beside.macro_batches[share].push_back(load_of(module.kind, own));
    }
    std::vector<MediaRowCounts> counts(samples_.size());
    for (size_t sample = 0; sample < samples_.size(); ++sample) {
      const auto found = samples_[sample].media.find(module.kind);
      if (found == samples_[sample].media.end()) continue;
      (module.kind == ModuleKind::kVision ? counts[sample].image : counts[sample].audio) = found->second.outputs;
    }
    beside.numbers = RowNumbers(module.kind, shares, counts);
  }

  void deal_text() {
    int64_t next = 0;
    for (int64_t share = 0; share < plan_.llm().dp; ++share) {
      auto& microbatches = load_.llm.emplace_back();
      auto& samples = load_.samples.emplace_back();
      for (int64_t m = 0; m < plan_.schedule.microbatches; ++m) {
        std::vector<int64_t>& own = samples.emplace_back();
        for (int64_t i = 0; i < plan_.schedule.mbs; ++i) own.push_back(next++);
        microbatches.push_back(microbatch_of(own));
      }
    }
  }

  MicrobatchLoad microbatch_of(const std::vector<int64_t>& own) const {
    MicrobatchLoad microbatch;
    int64_t token = 0;
    for (const int64_t index : own) {
      const Sample& sample = samples_[static_cast<size_t>(index)];
      const int64_t begin = token;
      token += sample.text;
      for (const auto& [kind, media] : sample.media) {
        for (int64_t row = 0; row < media.outputs; ++row) microbatch.places[kind].push_back(token++);
      }
      for (int64_t i = 0; i < sample.text; ++i) microbatch.targets.push_back(token++);
      microbatch.samples.push_back(token - begin);
    }
    for (const ModulePlan& module : plan_.modules) {
      if (!module.is_encoder() || !module.is_in_pipeline()) continue;
      if (const auto media = load_of(module.kind, own)) microbatch.media[module.kind] = *media;
    }
    return microbatch;
  }

  void draw_choices() {
    const Module& llm = plan_.model.modules.back();
    for (const size_t kind : llm.layers) {
      const auto& ops = llm.distinct_layers[kind].ops;
      if (std::none_of(ops.begin(), ops.end(), is_router)) continue;
      auto& router = load_.routed.emplace_back(static_cast<size_t>(num_expert_ranks(plan_.llm())));
      for (auto& microbatches : router) {
        microbatches.resize(static_cast<size_t>(plan_.schedule.microbatches));
        for (std::vector<int64_t>& counts : microbatches) {
          for (int64_t expert = 0; expert < num_experts(llm); ++expert) counts.push_back(below(20));
        }
      }
    }
  }

  const Plan& plan_;
  std::mt19937_64 random_;
  std::vector<Sample> samples_;
  StepLoad load_;
};

}  // namespace

StepLoad random_load(const Plan& plan, uint64_t seed) {
  return LoadDrawer(plan, seed).draw();
}

}  // namespace weft
