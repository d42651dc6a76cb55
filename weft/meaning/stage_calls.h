#pragma once

#include <map>

#include "weft/meaning/exchange_calls.h"
#include "weft/meaning/program_exchanges.h"
#include "weft/meaning/stage_flow.h"
#include "weft/meaning/step_load.h"
#include "weft/meaning/weight_calls.h"

namespace weft {

/// What a rank has of one microbatch of the llm, or of one macro batch of an encoder beside it.
struct RankPortion {
  int64_t number = 0;                                 ///< of the microbatch or macro batch
  std::map<ModuleKind, SharedRows> rows;              ///< of modules in the pipeline that have data in it
  std::map<ModuleKind, std::vector<int64_t>> places;  ///< of encoders' rows among the tokens here
  std::vector<ModuleKind> from_outside;               ///< encoders beside the pipeline whose rows it needs

  bool has(ModuleKind kind) const;
};
RankPortion portion_of(const Plan& plan, const MicrobatchLoad& load, const ModulePlace& llm, int64_t number);
RankPortion portion_of(const Plan& plan, const EncoderLoad& load, const ModulePlace& encoder, int64_t number);

/// A tensor of a portion over a border between stages, on all tensor-parallel ranks together.
struct FlowRows {
  const ModulePlace* place = nullptr;
  int64_t rows = 0;
  int64_t sent = 0;  ///< of them, by this rank to its counterpart
  int64_t width = 0;
  bool needs_gradient = false;
};

/// The inner list of the actions of one stage: what a rank calls, in order, as a portion goes through the stage's
/// blocks and back.
class StageCalls {
 public:
  /// By module of the plan: those of the stage's pipeline.
  using Places = std::map<ModuleKind, ModulePlace>;

  /// All of them outlive it. `module` is the one whose pipeline the stage is of.
  StageCalls(const Plan& plan, const StepLoad& load, size_t module, const Places& places, const StageContent& content,
             CallList& calls);

  void forward(const RankPortion& portion);
  /// Where weights' gradients are made apart, what belongs to them goes to `deferred`.
  void backward(const RankPortion& portion, DeferredCalls* deferred);
  WeightCalls& weights() { return weights_; }

  /// Over the border behind a stage of the pipeline.
  std::vector<FlowRows> flow_behind(int32_t stage, const RankPortion& portion) const;
  /// What arrived of it becomes rows as between blocks.
  void join(const FlowRows& tensor);

 private:
  /// A block, or what happens between two.
  struct Item {
    const ModulePlace* place = nullptr;
    const Block* block = nullptr;
    const SharedRows* rows = nullptr;
    std::optional<size_t> number;             ///< of the stage's blocks
    std::vector<ProgramExchange> of_program;  ///< of the operators that the block's program computes
    std::vector<BlockExchange> exchanges;     ///< of those behind them, or of all
    std::vector<OpGradients> gradients;
    BlockRecompute recompute = BlockRecompute::kKeep;
    Traffic expert_rows;
    bool has_gradient = false;  ///< of what comes out of it
  };

  std::vector<Item> items_of(const RankPortion& portion) const;
  void add_part(const StagePart& part, const RankPortion& portion, size_t& number, std::vector<Item>& items) const;
  void add_llm_entry(const ModulePlace& llm, const RankPortion& portion, size_t number, std::vector<Item>& items) const;
  void add_output(const ModulePlace& encoder, const RankPortion& portion, std::vector<Item>& items) const;
  Item block_item(const ModulePlace& place, const RankPortion& portion, int64_t block, size_t number) const;
  int64_t first_backward(ModuleKind kind, const RankPortion& portion) const;
  Traffic expert_rows(const ModulePlace& place, int64_t layer, int64_t microbatch) const;
  void add(const Item& item, const BlockExchange& exchange);
  /// What the program of a block does in such passes.
  void add_program(const Item& item, std::initializer_list<BlockPass> passes);
  void backward_program(const Item& item, DeferredCalls* deferred);

  const Plan& plan_;
  const StepLoad& load_;
  bool is_encoder_;
  bool is_last_;
  const Places& places_;
  const StageContent& content_;
  CallList& calls_;
  Trainable trainable_;
  std::vector<FlowModule> flow_;
  int64_t bytes_;
  WeightCalls weights_;
};

}  // namespace weft
