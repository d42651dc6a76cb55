#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/spec/op.h"

namespace weft {

/// A part of the model with its own parallel settings.
enum class ModuleKind { kVision, kAudio, kLlm };

std::string_view name_of(ModuleKind kind);

/// The repeated unit that is priced: a ViT layer, a decoder layer, an embedding, a head.
struct Block {
  std::string name;
  std::vector<Op> ops;
};

/// A chain of blocks: one entry, layers in order, one exit. Layers of the same kind are described once.
///
/// A module counts its work in tokens of its own: patches for vision, 20 ms positions for audio, text tokens and
/// media embeddings for the llm.
struct Module {
  ModuleKind kind = ModuleKind::kLlm;
  int64_t width = 0;         ///< elements of a row between two layers
  int64_t output_width = 0;  ///< elements of a row that leaves the module (for the llm: its width)
  RowsPerToken output_rows;  ///< rows that leave the module per token: 1/4 after a 2×2 merge
  Block entry;
  std::vector<Block> layer_kinds;
  std::vector<size_t> layers;  ///< for each layer its index in layer_kinds
  Block exit;
};

/// How an image and a second of audio become tokens, for workloads that count in patches and seconds.
struct MediaGeometry {
  int64_t patches_per_embedding = 0;          ///< spatial merge squared
  int64_t mel_frames_per_second = 0;          ///< log-mel frames
  int64_t mel_frames_per_audio_position = 0;  ///< stride of the convolutions
  int64_t audio_positions_per_embedding = 0;  ///< pooling
};

/// A model as everything downstream reads it: modules in flow order, encoders first, the llm last.
struct Model {
  std::string name;
  std::string family;  ///< Hugging Face's model_type
  std::vector<Module> modules;
  MediaGeometry media;
  bool has_tied_embeddings = false;
  Json config;  ///< what it was read from, so that documents which carry the model can stand alone

  const Module* find(ModuleKind kind) const;
};

/// The operator of this name; null where the block has none.
const Op* find_op(const Block& block, std::string_view name);
/// The same, which the block must have.
const Op& op_named(const Block& block, std::string_view name);

int64_t num_parameters(const Block& block);
int64_t num_parameters(const Module& module);
int64_t num_parameters(const Model& model);

}  // namespace weft
