#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/layers/transformer_layer.h"
#include "weft/models/block_range.h"
#include "weft/models/inputs.h"
#include "weft/models/own_layer.h"
#include "weft/spec/model.h"
#include "weft/tensor/mesh_groups.h"

namespace weft {

/// Rows that an encoder hands to the language model, and the token rows that they replace.
struct MediaRows {
  at::Tensor positions;  ///< [rows], in the packed tokens
  at::Tensor rows;       ///< [rows, width]
  bool is_own = false;   ///< positions are in this rank's own rows between blocks, and these rows for them alone
};

/// What a module's layers hand to its exit: rows of the last one, and of those at which its branches begin.
struct LayerRows {
  at::Tensor last;
  std::vector<at::Tensor> branches = {};
};

/// Equal parts of rows that stand beside each other in them.
std::vector<at::Tensor> parts_of_rows(const at::Tensor& rows, int64_t num_parts);

/// Parts of encoders' rows that are added to token rows behind layers of the llm.
struct AddedRows {
  at::Tensor positions;           ///< [rows], among those that this rank has between blocks
  std::vector<at::Tensor> parts;  ///< each [rows, width]
  int64_t first_layer = 0;        ///< of the llm, that the first of them follows

  /// Rows behind a layer.
  at::Tensor behind(int64_t layer, const at::Tensor& x) const;
  /// Those that layers from this one on are to add, beside each other; undefined where there are none.
  at::Tensor from(int64_t layer) const;
};

/// What all layers of a module share while a batch goes through them.
struct LayerPass {
  PackedSegments segments;                              ///< who sees whom
  PackedSegments windows;                               ///< the same in layers with windows
  RotaryTable rotary;                                   ///< undefined where rows are not turned
  std::shared_ptr<const ContextRows> shared = nullptr;  ///< how rows lie on ranks; null where all are here
  KvCache* cache = nullptr;
  std::shared_ptr<const NamedInputs> named = nullptr;  ///< of a user's own program
  std::map<std::string, at::Tensor> tables = {};       ///< what programs of layers read, by their names for it

  /// Of the rows that segments are made of, those that are here.
  int64_t num_rows(const PackedSegments& all) const;
};

class ProgramBlock;

/// A module that computes, whole or the blocks of a pipeline stage. Stages and pipelines know no more of a module than
/// this.
class ModuleNetwork {
 public:
  virtual ~ModuleNetwork() = default;

  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  const TransformerLayer& layer(int64_t index) const { return layers_[static_cast<size_t>(index)]; }
  /// To tell each how many heads it has where they are dealt out over ranks.
  std::vector<TransformerLayer>& layers() { return layers_; }

  /// The entry block. Only the llm takes in rows of other modules.
  virtual at::Tensor enter(const Inputs& inputs, const std::vector<MediaRows>& media,
                           const RunContext& context) const = 0;
  virtual LayerPass begin(const Inputs& inputs, at::ScalarType type) const = 0;
  /// Layer `index` of those that are here.
  virtual at::Tensor run_layer(int64_t index, const at::Tensor& x, const LayerPass& pass,
                               const RunContext& context) const;
  /// The exit block: an encoder's rows, the llm's loss. `context` is how rows are run, `outside` how those are that
  /// come of them.
  virtual at::Tensor leave(const LayerRows& rows, const Inputs& inputs, const RunContext& context,
                           const RunContext& outside) const = 0;

  /// Logits of the token after the last row, [1, vocabulary], on all tensor-parallel ranks; the llm's alone. `one` is
  /// how a single row is run.
  virtual at::Tensor next_logits(const at::Tensor& /*x*/, const RunContext& /*context*/,
                                 const RunContext& /*one*/) const {
    return {};
  }

  /// The table of tokens' embeddings, if it is here.
  virtual ParameterPtr table() const { return {}; }
  /// Whether the exit's matrix is that table.
  virtual bool is_tied() const { return false; }
  /// Once it is known what is trained: the ranks of tensor parallelism, for blocks that communicate themselves, the
  /// type of rows, and whether these ranks divide them between blocks.
  virtual void place(const MeshGroups& tensor_parallel, at::ScalarType type, bool divides_rows);

 protected:
  /// Makers for the blocks at both ends of a module.
  struct ModuleEnds {
    OpParameterMaker entry;
    OpParameterMaker exit;
  };
  static ModuleEnds ends_of(const Module& module, ParameterMaker& maker);
  static int64_t head_dim_of(const Module& module);
  void make_layers(const Module& module, const BlockRange& blocks, bool normalizes_expert_weights,
                   ParameterMaker& maker);
  /// Adds what programs of layers need to turn heads.
  void add_rotary_rows(LayerPass& pass) const;

 private:
  std::vector<TransformerLayer> layers_;                     ///< what no program computes of them
  std::vector<std::shared_ptr<const OwnLayer>> own_layers_;  ///< of each; nothing where it is a transformer layer
  std::vector<std::shared_ptr<ProgramBlock>> programs_;      ///< of each that has a strategy; nothing where it has none
  std::vector<bool> is_windowed_;
};

/// Whether a plan's strategy has programs compute layers of a family.
bool has_layer_programs(const Model& model);

/// The network that a module names, with the blocks that somebody holds. There must be one.
std::shared_ptr<ModuleNetwork> make_network(const Module& module, const ModelNumbers& numbers, const BlockRange& blocks,
                                            ParameterMaker& maker);

/// What a model is run with: an error where there is no network for one of its modules.
Result<ModelNumbers> numbers_to_run(const Model& model);

}  // namespace weft
