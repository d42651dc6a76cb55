#pragma once

#include <memory>
#include <vector>

#include "weft/cost/end_walk.h"
#include "weft/simulate/module_rows.h"
#include "weft/simulate/weights_walk.h"

namespace weft {

/// What a microbatch carries from stage to stage, by module of the plan.
using WalkedFlow = std::vector<CountedTensor>;

/// A microbatch in a stage, from its forward to its weight gradients.
struct WalkedVisit {
  WalkedFlow inputs;
  std::vector<std::unique_ptr<WayBack>> ways;        ///< by part of the stage; null where nothing goes back
  std::vector<std::unique_ptr<WayBack>> media_ways;  ///< by module: from an encoder's output to what the llm takes in
  std::vector<CountedTensor> kept;  ///< what the graph's nodes hold beside saved tensors: as long as there is a graph
  std::shared_ptr<WalkedFlow> media_gradients;  ///< by module: of what the llm took in
  WeightQueue queue;
};

/// One pipeline stage of a plan on one rank, walked through as parallelize/stage runs it.
class StageWalk {
 public:
  /// `parts` are those of the stage's pipeline, all of them. `module` is whose pipeline it is.
  StageWalk(const Plan& plan, size_t module, int32_t stage, int64_t rank, std::vector<StagePart> parts,
            const StageBuckets& buckets, ByteCount& count);

  bool is_last() const { return is_last_; }
  bool has_text_entry() const;
  WeightsWalk& weights() { return weights_; }

  /// One tensor of a flow: whose it is, its bytes, and whether a gradient comes back for it.
  struct FlowBytes {
    size_t module = 0;
    int64_t bytes = 0;
    bool needs_gradient = false;
  };
  std::vector<FlowBytes> tensors_in(const MicrobatchLoad& load) const { return tensors_between(stage_ - 1, load); }
  /// From a stage of the pipeline to the next.
  std::vector<FlowBytes> tensors_between(int32_t stage, const MicrobatchLoad& load) const;
  std::vector<FlowBytes> tensors_out(const MicrobatchLoad& load) const { return tensors_between(stage_, load); }

  /// `keeps`: a backward follows.
  /// `received` are by layer of the module the rows that come to experts here.
  WalkedFlow forward(WalkedFlow flow, const MicrobatchLoad& load, const std::vector<int64_t>& received, bool keeps,
                     bool defers, WalkedVisit& visit);
  /// Gradients of what it gave become those of what it was given.
  WalkedFlow backward(WalkedFlow gradients, WalkedVisit& visit);

 private:
  struct Part {
    StagePart part;
    size_t module = 0;
    size_t first_block = 0;
    size_t end_block = 0;
  };
  bool is_beside(size_t module) const;
  bool is_frozen(size_t module) const;
  bool needs_gradient(size_t module, const MicrobatchLoad& load) const;
  bool has_data(size_t module, const MicrobatchLoad& load) const;
  ModuleRows rows(size_t module, const MicrobatchLoad& load) const;
  WalkContext context_of(size_t module, const ModuleRows& rows) const;
  CountedTensor run_layers(const Part& part, CountedTensor x, const ModuleRows& rows,
                           const std::vector<int64_t>& received, const WalkContext& context);
  CountedTensor enter_text(const Part& part, WalkedFlow& flow, const MicrobatchLoad& load, const WalkContext& context,
                           WalkedVisit& visit);
  template <typename Run>
  CountedTensor run_block(size_t block, const WalkContext& context, Run run);

  const Plan& plan_;
  size_t module_;
  int32_t stage_;
  bool is_last_ = false;
  std::vector<StagePart> all_parts_;
  std::vector<Part> parts_;
  std::vector<std::optional<ModulePlace>> places_;  ///< by module
  ByteCount& count_;
  WeightsWalk weights_;
};

}  // namespace weft
