#include "weft/data/synthetic.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/spec/draw_batch.h"

namespace weft {
namespace {

/// Few enough that a small model learns something of their order within a hundred steps.
constexpr int64_t kMostWords = 256;
/// One word in so many is chosen freely; the others follow from the one before.
constexpr uint64_t kFreeWord = 8;

/// Numbers that depend on nothing but their seed (splitmix64).
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  /// As if so many had been drawn.
  void skip(uint64_t count) { state_ += count * 0x9e3779b97f4a7c15ULL; }
  uint64_t below(uint64_t n) { return next() % n; }
  /// Mean 0 and variance 1: what prepared pixels and mel frames have.
  float even() {
    constexpr float kHalfWidth = 1.7320508F;
    return (static_cast<float>(next() >> 40) * 0x1p-23F - 1.0F) * kHalfWidth;
  }

 private:
  uint64_t state_;
};

uint64_t mixed(uint64_t seed, int64_t index, uint64_t purpose) {
  Numbers numbers(seed);
  Numbers again(numbers.next() ^ static_cast<uint64_t>(index));
  return again.next() ^ (purpose * 0xd1b54a32d192ed03ULL);
}

constexpr uint64_t kForLoad = 1;
constexpr uint64_t kForContent = 2;

/// Splits `count` into parts for the gaps before, between and after media: sizes differ by one at most.
int64_t share(int64_t count, int64_t parts, int64_t part) {
  return count / parts + (part < count % parts ? 1 : 0);
}

}  // namespace

ImageGrid grid_of_patches(int64_t patches, int64_t merge_size) {
  const int64_t units = patches / (merge_size * merge_size);
  auto rows = static_cast<int64_t>(std::sqrt(static_cast<double>(units)));
  while (rows > 1 && units % rows != 0) --rows;
  rows = std::max<int64_t>(rows, 1);
  return {.rows = rows * merge_size, .columns = units / rows * merge_size};
}

SyntheticSamples::SyntheticSamples(const Model& model, const Workload& workload, const SampleForm& form, uint64_t seed)
    : model_(&model), workload_(&workload), form_(form), seed_(seed) {
  const int64_t stride = std::max<int64_t>(1, form.vocabulary / kMostWords);
  for (int64_t id = 0; id < form.vocabulary && std::ssize(words_) < kMostWords; id += stride) {
    const bool is_special = id == form.image.begin || id == form.image.inside || id == form.image.end ||
                            id == form.audio.begin || id == form.audio.inside || id == form.audio.end ||
                            id == form.other_special;
    if (!is_special) words_.push_back(id);
  }
}

Result<SyntheticSamples> SyntheticSamples::create(const Model& model, const Workload& workload, const SampleForm& form,
                                                  uint64_t seed) {
  WEFT_TRY(const SampleLoad average, average_sample(model, workload));
  double longest = 0;
  for (const Segment& segment : average.llm) longest = std::max(longest, segment.length);
  if (form.max_tokens > 0 && longest > static_cast<double>(form.max_tokens)) {
    return Error{.source = workload.source,
                 .field = workload.tokens_include_media ? "sequence_tokens" : "text_tokens",
                 .problem = fmt::format("makes samples of up to {:.0f} tokens, but {}'s max_position_embeddings is {}",
                                        longest, model.name, form.max_tokens),
                 .advice = "Give shorter samples."};
  }
  SyntheticSamples samples(model, workload, form, seed);
  if (samples.words_.size() < 2) {
    return Error{.source = model.name,
                 .field = "vocab_size",
                 .problem = fmt::format("is {}, which leaves fewer than two tokens for text", form.vocabulary),
                 .advice = "Use a model with a larger vocabulary."};
  }
  return samples;
}

SampleLoad SyntheticSamples::load(int64_t index) const {
  return SampleDrawer(*model_, *workload_, mixed(seed_, index, kForLoad)).draw();
}

ImageGrid SyntheticSamples::grid_of(const Segment& image) const {
  if (form_.tile_side > 0) return {.rows = form_.tile_side, .columns = form_.tile_side};
  return grid_of_patches(static_cast<int64_t>(image.length), form_.merge_size);
}

int64_t SyntheticSamples::image_rows(const ImageGrid& grid) const {
  return grid.num_patches() / (form_.merge_size * form_.merge_size);
}

int64_t SyntheticSamples::clip_rows(const Segment& clip) const {
  return static_cast<int64_t>(clip.length) / model_->media.audio_positions_per_embedding;
}

SampleRows SyntheticSamples::media_rows(int64_t index) const {
  SampleRows rows;
  const SampleLoad asked = load(index);
  for (const Segment& image : asked.vision) rows.image += image_rows(grid_of(image));
  for (const Segment& clip : asked.audio) rows.audio += clip_rows(clip);
  return rows;
}

Result<SampleLengths> SyntheticSamples::lengths_of(int64_t index, std::vector<SkippedSample>&) const {
  return SampleLengths{.load = load(index), .rows = media_rows(index)};
}

Result<Sample> SyntheticSamples::read(int64_t index, const SampleContent& wanted, std::vector<SkippedSample>&) const {
  return make(index, wanted);
}

void SyntheticSamples::leave_out(const std::vector<SkippedSample>& skipped) {
  WEFT_CHECK(skipped.empty(), "{} synthetic samples are broken", skipped.size());
}

Sample SyntheticSamples::make(int64_t index, const SampleContent& content) const {
  Sample sample;
  sample.load = load(index);
  Numbers numbers(mixed(seed_, index, kForContent));

  // Lengths first: text fills what media leave, and there is always something to predict.
  struct Piece {
    SampleForm::Brackets tokens;
    int64_t rows = 0;
  };
  std::vector<Piece> pieces;
  int64_t media_tokens = 0;
  const auto add_piece = [&](const SampleForm::Brackets& tokens, int64_t rows) {
    pieces.push_back({tokens, rows});
    media_tokens += rows + (tokens.begin >= 0 ? 1 : 0) + (tokens.end >= 0 ? 1 : 0);
  };
  for (const Segment& image : sample.load.vision) {
    sample.images.push_back(grid_of(image));
    add_piece(form_.image, image_rows(sample.images.back()));
  }
  for (const Segment& clip : sample.load.audio) {
    if (clip_rows(clip) == 0) continue;
    sample.clip_frames.push_back(static_cast<int64_t>(clip.length) * model_->media.mel_frames_per_audio_position);
    add_piece(form_.audio, clip_rows(clip));
  }
  const auto wanted = static_cast<int64_t>(num_tokens(sample.load.llm));
  const int64_t text = std::max<int64_t>(wanted - media_tokens, std::ssize(pieces) + 2);

  const auto num_words = static_cast<uint64_t>(words_.size());
  uint64_t word = numbers.below(num_words);
  const auto add_text = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      sample.ids.push_back(words_[word]);
      word = numbers.below(kFreeWord) == 0 ? numbers.below(num_words) : (word * 5 + 3) % num_words;
    }
  };
  const int64_t gaps = std::ssize(pieces) + 1;
  for (int64_t gap = 0; gap < gaps; ++gap) {
    add_text(share(text, gaps, gaps - 1 - gap));
    if (gap == std::ssize(pieces)) break;
    const Piece& piece = pieces[static_cast<size_t>(gap)];
    if (piece.tokens.begin >= 0) sample.ids.push_back(piece.tokens.begin);
    sample.ids.insert(sample.ids.end(), static_cast<size_t>(piece.rows), piece.tokens.inside);
    if (piece.tokens.end >= 0) sample.ids.push_back(piece.tokens.end);
  }
  const auto is_media = [&](int64_t id) { return id == form_.image.inside || id == form_.audio.inside; };
  sample.load.llm = {{static_cast<double>(sample.ids.size()), 1}};
  sample.targets.assign(sample.ids.size(), kNoTarget);
  for (size_t i = 0; i + 1 < sample.ids.size(); ++i) {
    if (!is_media(sample.ids[i + 1])) sample.targets[i] = sample.ids[i + 1];
  }

  // The same numbers, whichever of them are wanted.
  const auto add = [&](std::vector<float>& values, int64_t count, int64_t width, Range own) {
    numbers.skip(static_cast<uint64_t>(own.begin * width));
    for (int64_t i = 0; i < own.size() * width; ++i) values.push_back(numbers.even());
    numbers.skip(static_cast<uint64_t>((count - own.end) * width));
  };
  const auto part_of = [&](bool is_wanted, const std::vector<Range>* ranges, size_t i, int64_t count) {
    if (!is_wanted) return Range{};
    return ranges == nullptr ? Range{0, count} : (*ranges)[i];
  };
  const MediaRanges* ranges = content.ranges ? &*content.ranges : nullptr;
  for (size_t i = 0; i < sample.images.size(); ++i) {
    const int64_t count = sample.images[i].num_patches();
    add(sample.pixels, count, form_.patch_elements,
        part_of(content.pixels, ranges == nullptr ? nullptr : &ranges->images, i, count));
  }
  for (int64_t band = 0; band < form_.mel_bins; ++band) {
    for (size_t i = 0; i < sample.clip_frames.size(); ++i) {
      const int64_t count = sample.clip_frames[i];
      add(sample.features, count, 1, part_of(content.features, ranges == nullptr ? nullptr : &ranges->clips, i, count));
    }
  }
  return sample;
}

}  // namespace weft
