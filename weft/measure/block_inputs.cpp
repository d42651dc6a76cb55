#include "weft/measure/block_inputs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include "weft/data/synthetic.h"
#include "weft/families/media/audio_index.h"

namespace weft {
namespace {

/// Whole sequences, and what is left over as a shorter one.
std::vector<int64_t> lengths_of(const BlockShape& shape, int64_t unit) {
  const auto rounded = [&](double tokens) {
    return std::max<int64_t>(1, std::llround(tokens / static_cast<double>(unit))) * unit;
  };
  const int64_t length = rounded(shape.sequence_tokens);
  int64_t left = rounded(shape.tokens);
  std::vector<int64_t> lengths;
  for (; left >= length; left -= length) lengths.push_back(length);
  if (left > 0) lengths.push_back(left);
  return lengths;
}

/// Text, and media between the marks that models expect around them.
class TokenWriter {
 public:
  TokenWriter(const MediaTokens& special, int64_t vocabulary) {
    for (int64_t id = 0; id < vocabulary && std::ssize(words_) < kMostWords; ++id) {
      const bool is_special = id == special.image || id == special.video || id == special.audio ||
                              id == special.vision_start || id == special.vision_end || id == special.audio_start ||
                              id == special.audio_end;
      if (!is_special) words_.push_back(id);
    }
  }

  void text(int64_t count) {
    for (; count > 0; --count) ids_.push_back(words_[random_() % words_.size()]);
  }
  void media(int64_t start, int64_t inside, int64_t count, int64_t end) {
    if (start >= 0) ids_.push_back(start);
    ids_.insert(ids_.end(), static_cast<size_t>(count), inside);
    if (end >= 0) ids_.push_back(end);
  }
  const std::vector<int64_t>& ids() const { return ids_; }

 private:
  static constexpr int64_t kMostWords = 4096;
  std::mt19937_64 random_{1};
  std::vector<int64_t> words_;
  std::vector<int64_t> ids_;
};

}  // namespace

Result<BlockInputs> inputs_of_block(const Model& model, ModelNumbers numbers, const BlockShape& shape) {
  const int64_t vocabulary = vocabulary_of(model);
  const MediaTokens& special = numbers.media.tokens;
  TokenWriter writer(special, vocabulary);
  RawInputs raw;
  BlockInputs made;
  const auto end_sample = [&] {
    const int64_t before = std::accumulate(raw.lengths.begin(), raw.lengths.end(), int64_t{0});
    raw.lengths.push_back(std::ssize(writer.ids()) - before);
  };
  if (shape.module == ModuleKind::kLlm) {
    // A table of positions has an end, where sequences begin again.
    const bool has_table = find_op(model.modules.back().entry, "positions") != nullptr;
    for (const int64_t length : lengths_of(shape, 1)) {
      const int64_t longest = has_table ? numbers.llm.max_positions : length;
      for (int64_t left = length; left > 0; left -= longest) {
        writer.text(std::min(left, longest));
        end_sample();
      }
      made.tokens += static_cast<double>(length);
    }
  } else if (shape.module == ModuleKind::kVision) {
    const int64_t merge = numbers.vision->merge_size;
    const int64_t side = numbers.vision->tile_side, tile_rows = model.media.rows_per_tile();
    int64_t patches = 0;
    for (const int64_t length : lengths_of(shape, side > 0 ? tile_rows : merge * merge)) {
      const ImageGrid grid = side > 0 ? ImageGrid{.rows = side, .columns = side} : grid_of_patches(length, merge);
      raw.image_grids.push_back({1, grid.rows, grid.columns});
      patches += grid.num_patches();
      writer.media(special.vision_start, special.image, grid.num_patches() / (merge * merge), special.vision_end);
      end_sample();
    }
    raw.pixel_values = at::randn({patches, numbers.vision->patch_elements()});
    made.tokens = static_cast<double>(side > 0 ? std::ssize(raw.image_grids) * tile_rows : patches);
  } else {
    int64_t frames = 0;
    const int64_t stride = model.media.mel_frames_per_audio_position;
    for (const int64_t length : lengths_of(shape, model.media.audio_positions_per_embedding)) {
      raw.audio_frames.push_back(length * stride);
      frames += length * stride;
      made.tokens += static_cast<double>(length);
      writer.media(special.audio_start, special.audio, num_audio_tokens(length * stride), special.audio_end);
      end_sample();
    }
    raw.input_features = at::randn({numbers.audio->mel_bins, frames});
  }
  numbers.llm.max_positions =
      std::max(numbers.llm.max_positions, *std::max_element(raw.lengths.begin(), raw.lengths.end()));
  raw.input_ids = at::tensor(writer.ids(), at::kLong);
  raw.targets = raw.input_ids.clone();
  // As in training: what a configuration drops is drawn, and its masks are kept.
  raw.draws = StepDraws{.seed = 0, .step = 0, .samples = std::vector<int64_t>(raw.lengths.size())};
  std::iota(raw.draws->samples.begin(), raw.draws->samples.end(), 0);
  WEFT_TRY(made.inputs, prepare_inputs(numbers, vocabulary, raw));
  if (shape.module == ModuleKind::kLlm) return made;
  Inputs media;
  media.vision = made.inputs.vision;
  media.audio = made.inputs.audio;
  made.inputs = std::move(media);
  return made;
}

}  // namespace weft
