#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/program/op.h"

namespace weft {

/// A part of the model with its own parallel settings.
enum class ModuleKind { kVision, kAudio, kLlm };

std::string_view name_of(ModuleKind kind);

/// Of a module: far more than real ones have, and few enough to be listed one by one.
inline constexpr int64_t kMostLayers = 10'000;

struct BlockProgram;

/// The repeated unit that is priced: a ViT layer, a decoder layer, an embedding, a head.
struct Block {
  std::string name;
  std::vector<Op> ops;
  std::string layer = {};  ///< what a library calls the layer that runs it; empty: a transformer layer does
  /// What computes it, or its first operators, where a program does (program_blocks.h).
  std::shared_ptr<const BlockProgram> program = nullptr;
};

/// What stands in weight files before the names of a block's operators.
struct BlockPaths {
  std::string entry;
  std::string layer;  ///< "{}" is the number of the layer
  std::string exit;
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
  /// Equal parts of a row that leaves an encoder. The first takes the place of a token's row; each of the others is
  /// added to that row behind a layer of the llm, in order from its first layer on.
  int64_t output_parts = 1;
  Block entry;
  std::vector<Block> distinct_layers;
  std::vector<size_t> layers;  ///< for each layer its index in distinct_layers
  Block exit;
  std::string network;      ///< the name of what runs it; empty: it can be planned, not run
  BlockPaths paths;         ///< of its weights
  double deviation = 0.02;  ///< of fresh matrices
};

/// A module's blocks in order: 0 is the entry, then come the layers, the exit is last.
int64_t num_blocks(const Module& module);
const Block& block_at(const Module& module, int64_t place);

/// Layers whose rows the exit takes besides those of the last one, ascending: where its branches begin.
std::vector<int64_t> branch_layers(const Module& module);

/// The operator of this name; null where the block has none.
const Op* find_op(const Block& block, std::string_view name);
/// The same, which the block must have.
const Op& op_named(const Block& block, std::string_view name);

int64_t num_parameters(const Block& block);
int64_t num_parameters(const Module& module);

/// The same but for rounding, of any sizes.
double estimated_parameters(const Module& module);

}  // namespace weft
