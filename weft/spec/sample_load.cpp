#include "weft/spec/sample_load.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/spec/work.h"

namespace weft {
namespace {

Error bad_fit(const Workload& workload, std::string field, std::string problem, std::string advice) {
  return {
      .source = workload.source, .field = std::move(field), .problem = std::move(problem), .advice = std::move(advice)};
}

/// The distribution of f(size) for one piece.
template <typename F>
Distribution mapped(const Distribution& sizes, F f) {
  std::vector<Distribution::Outcome> outcomes;
  for (const auto& [value, probability] : sizes.outcomes()) outcomes.push_back({f(value), probability});
  return Distribution::weighted(std::move(outcomes));
}

Segments expected_segments(const Distribution& pieces, const Distribution& lengths) {
  Segments segments;
  const double mean_pieces = pieces.mean();
  if (mean_pieces == 0) return segments;
  for (const auto& [length, probability] : lengths.outcomes()) segments.push_back({length, mean_pieces * probability});
  return segments;
}

/// Of `parts` sequences each.
Segments as_segments(const Distribution& lengths, double parts) {
  Segments segments;
  for (const auto& [length, probability] : lengths.outcomes())
    segments.push_back({length / parts, probability * parts});
  return segments;
}

/// Media that nothing in the model can take in.
std::optional<Error> find_stray_media(const Model& model, const Workload& workload) {
  struct Kind {
    ModuleKind module;
    const Media& media;
    const char *field, *words;
  };
  for (const auto& [module, media, field, words] :
       {Kind{ModuleKind::kVision, workload.images, "images_per_sample", "images"},
        Kind{ModuleKind::kAudio, workload.audio, "audio_clips_per_sample", "clips"}}) {
    if (media.pieces_per_sample.max() == 0 || model.find(module) != nullptr) continue;
    return bad_fit(workload, field,
                   fmt::format("has up to {} {}, but {} has no {} encoder", media.pieces_per_sample.max(), words,
                               model.name, name_of(module)),
                   fmt::format("Use a workload without {}, or a model with such an encoder.", words));
  }
  return std::nullopt;
}

/// A program's samples all have the rows that its dims say.
std::optional<Error> find_other_rows(const Model& model, const Workload& workload) {
  if (!model.numbers.program) return std::nullopt;
  const auto rows = static_cast<double>(model.numbers.program->rows.rows_per_sample);
  if (workload.tokens.min() == rows && workload.tokens.max() == rows) return std::nullopt;
  return bad_fit(workload, workload.tokens_include_media ? "sequence_tokens" : "text_tokens",
                 fmt::format("is {}, but a sample of the program {} has {} rows",
                             workload.tokens.min() == workload.tokens.max()
                                 ? fmt::format("{}", workload.tokens.min())
                                 : fmt::format("from {} to {}", workload.tokens.min(), workload.tokens.max()),
                             printable(model.name), rows),
                 fmt::format("Give {}, or change the program's dims.", rows));
}

}  // namespace

const Segments& SampleLoad::of(ModuleKind kind) const {
  switch (kind) {
    case ModuleKind::kVision:
      return vision;
    case ModuleKind::kAudio:
      return audio;
    case ModuleKind::kLlm:
      return llm;
  }
  WEFT_CHECK(false, "unknown module");
}

Segments image_segments(const MediaGeometry& media, double patches) {
  if (media.patches_per_tile == 0) return {{patches, 1}};
  return {{static_cast<double>(media.rows_per_tile()),
           std::max(1.0, std::ceil(patches / static_cast<double>(media.patches_per_tile)))}};
}

double image_embeddings(const MediaGeometry& media, double patches) {
  if (media.patches_per_tile > 0)
    patches = image_segments(media, patches).front().count * static_cast<double>(media.patches_per_tile);
  return patches / static_cast<double>(media.patches_per_embedding);
}

AudioLength audio_length(const MediaGeometry& media, double seconds) {
  const double frames = std::max(1.0, std::floor(seconds * static_cast<double>(media.mel_frames_per_second) + 1e-9));
  const auto stride = static_cast<double>(media.mel_frames_per_audio_position);
  const auto pool = static_cast<double>(media.audio_positions_per_embedding);
  const double positions = std::floor((frames - 1) / stride) + 1;
  return {.positions = positions, .embeddings = std::max(0.0, std::floor((positions - pool) / pool) + 1)};
}

Result<SampleLoad> average_sample(const Model& model, const Workload& workload) {
  if (auto error = find_stray_media(model, workload)) return *error;
  if (auto error = find_other_rows(model, workload)) return *error;
  SampleLoad load;
  Distribution embeddings = Distribution::constant(0);
  double most_embeddings = 0;
  if (model.find(ModuleKind::kVision) != nullptr && workload.images.pieces_per_sample.max() > 0) {
    const Media& images = workload.images;
    const auto merged = static_cast<double>(model.media.patches_per_embedding);
    for (const auto& [patches, ignored] : images.size.outcomes()) {
      if (model.media.patches_per_tile == 0 && std::fmod(patches, merged) != 0) {
        return bad_fit(workload, "patches_per_image",
                       fmt::format("has {}, but {} merges {} patches into one embedding", patches, model.name, merged),
                       fmt::format("Use multiples of {}.", merged));
      }
    }
    const double mean_images = images.pieces_per_sample.mean();
    for (const auto& [patches, probability] : images.size.outcomes()) {
      for (const auto& [length, count] : image_segments(model.media, patches))
        load.vision.push_back({length, mean_images * probability * count});
    }
    const Distribution per_image =
        mapped(images.size, [&](double patches) { return image_embeddings(model.media, patches); });
    embeddings = sum_of_draws(images.pieces_per_sample, per_image);
    most_embeddings += images.pieces_per_sample.max() * per_image.max();
  }
  if (model.find(ModuleKind::kAudio) != nullptr && workload.audio.pieces_per_sample.max() > 0) {
    const Media& clips = workload.audio;
    const Distribution positions = mapped(clips.size, [&](double s) { return audio_length(model.media, s).positions; });
    const Distribution per_clip = mapped(clips.size, [&](double s) { return audio_length(model.media, s).embeddings; });
    load.audio = expected_segments(clips.pieces_per_sample, positions);
    embeddings = sum(embeddings, sum_of_draws(clips.pieces_per_sample, per_clip));
    most_embeddings += clips.pieces_per_sample.max() * per_clip.max();
  }
  if (workload.tokens_include_media && most_embeddings > workload.tokens.min()) {
    return bad_fit(
        workload, "sequence_tokens",
        fmt::format("can be as short as {}, but the media of a sample of {} can take {} embeddings",
                    workload.tokens.min(), model.name, most_embeddings),
        "Give longer sequences or fewer or smaller media, or give text_tokens and let the media come on top.");
  }
  load.llm = as_segments(workload.tokens_include_media ? workload.tokens : sum(workload.tokens, embeddings),
                         workload.sequences_per_sample);
  return load;
}

std::optional<Error> find_nothing_to_train(const Model& model, const Workload& workload) {
  const auto is_trained = [&](const Module& module) { return !workload.is_frozen(module.kind); };
  if (std::any_of(model.modules.begin(), model.modules.end(), is_trained)) return std::nullopt;
  return bad_fit(workload, "frozen",
                 fmt::format("names every module of {}, so that nothing is left to train", model.name), "Remove one.");
}

Result<double> training_step_flops(const Model& model, const Workload& workload, const SampleLoad& sample) {
  if (auto error = find_nothing_to_train(model, workload)) return *std::move(error);
  double per_sample = 0;
  for (const Module& module : model.modules) {
    const Segments& segments = sample.of(module.kind);
    per_sample += forward_flops(module, segments) +
                  backward_flops(module, segments, backward_needs(model, workload, module.kind));
  }
  return per_sample * static_cast<double>(workload.global_batch_samples);
}

}  // namespace weft
