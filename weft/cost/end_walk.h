#pragma once

#include "weft/cost/layer_walk.h"

namespace weft {

/// Cosines and sines for the rows of a module, there as long as a layer may turn its heads by them.
CountedTensor walk_llm_rotary(int64_t rows, int64_t head_dim, bool has_sections, const WalkContext& context);
CountedTensor walk_vision_rotary(int64_t rows, int64_t head_dim, const WalkContext& context);

/// Rows of an encoder that take the places of tokens, and where their gradient is put.
struct WalkedMedia {
  int64_t num_rows = 0;
  bool are_own = false;  ///< those of this rank's rows between blocks; else all, before rows are divided
  bool needs_gradient = false;
  CountedTensor* gradient = nullptr;
};

/// The llm's rows from tokens and media.
CountedTensor walk_llm_entry(const WalkedBlock& entry, const std::vector<WalkedMedia>& media,
                             const WalkContext& context);
/// The loss of so many target rows, whose logits are kept or made again, some rows at a time.
void walk_llm_exit(const WalkedBlock& exit, const CountedTensor& x, int64_t targets, bool recomputes_logits,
                   const WalkContext& context);

/// Rows of an earlier layer that an exit takes, and where their gradient is put.
struct WalkedLayerRows {
  CountedTensor rows;
  bool is_view = false;  ///< some columns of wider rows
  std::shared_ptr<CountedTensor> gradient = std::make_shared<CountedTensor>();
};

CountedTensor walk_vision_entry(const WalkedBlock& entry, const WalkContext& context);
/// `rows` are those that mergers give, of one part's width. `reorders`: they change places at the end.
CountedTensor walk_vision_exit(const WalkedBlock& exit, const CountedTensor& x,
                               const std::vector<WalkedLayerRows>& branches, const SiteRows& rows, bool reorders,
                               const WalkContext& context);

/// Of a tower whose images have a row for the class.
CountedTensor walk_tower_entry(const WalkedBlock& entry, const WalkContext& context);
/// `width` is that of `x`, whose patches are merged.
CountedTensor walk_tower_exit(const WalkedBlock& exit, const CountedTensor& x, int64_t width, const SiteRows& rows,
                              const WalkContext& context);

/// `frames` are those that the first convolution is run for.
CountedTensor walk_audio_entry(const WalkedBlock& entry, int64_t frames, const WalkContext& context);
CountedTensor walk_audio_exit(const WalkedBlock& exit, const CountedTensor& x, const SiteRows& rows,
                              const WalkContext& context);

}  // namespace weft
