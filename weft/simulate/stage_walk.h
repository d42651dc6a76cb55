#pragma once

#include <memory>
#include <vector>

#include "weft/cost/end_walk.h"
#include "weft/meaning/stage_flow.h"
#include "weft/simulate/module_rows.h"
#include "weft/simulate/weights_walk.h"

namespace weft {

/// What a microbatch carries from stage to stage, by module of the plan.
using WalkedFlow = std::vector<CountedTensor>;

/// Parts of an encoder's rows that layers of the llm add, from the first that is still to come.
struct WalkedParts {
  size_t encoder = 0;
  int64_t num_rows = 0;     ///< of a part
  int64_t first_layer = 0;  ///< that the first of them follows
  int64_t num_parts = 0;
  bool needs_gradient = false;
  CountedTensor rows = {};  ///< all of them
  /// What their gradients are, until they come together.
  std::shared_ptr<std::vector<CountedTensor>> gradients = std::make_shared<std::vector<CountedTensor>>();
};

/// A microbatch in a stage, from its forward to its weight gradients.
struct WalkedVisit {
  WalkedFlow inputs;
  std::vector<std::unique_ptr<WayBack>> ways;        ///< by part of the stage; null where nothing goes back
  std::vector<std::unique_ptr<WayBack>> media_ways;  ///< by module: from an encoder's output to what the llm takes in
  std::vector<CountedTensor> kept;  ///< what the graph's nodes hold beside saved tensors: as long as there is a graph
  std::vector<WalkedParts> added;   ///< whose gradients are to come together
  std::shared_ptr<WalkedFlow> media_gradients;  ///< by module: of what the llm took in
  WeightQueue queue;
};

/// One pipeline stage of a plan on one rank, walked through as parallelize/stage runs it.
class StageWalk {
 public:
  /// `module` is whose pipeline the stage is of. Places are by module, where the rank has any of it.
  StageWalk(const Plan& plan, size_t module, const std::vector<std::optional<RankPlace>>& places,
            const StageContent& content, ByteCount& count);

  int32_t stage() const { return stage_; }
  bool is_last() const { return is_last_; }
  /// Whether rows of an encoder beside the pipeline come in here.
  bool takes_rows(size_t encoder, const MicrobatchLoad& load) const;
  WeightsWalk& weights() { return weights_; }

  /// One tensor of a flow: whose it is, its bytes, and whether a gradient comes back for it.
  struct FlowBytes {
    size_t module = 0;
    int64_t bytes = 0;
    bool needs_gradient = false;
    int64_t sent_bytes = 0;  ///< of it, what goes to a stage elsewhere and comes from one
    bool is_joined = false;  ///< from the parts that tensor-parallel ranks are sent
    int64_t width = 0;       ///< of its rows

    /// What is sent of it: a copy if it is a part.
    CountedTensor sent(const CountedTensor& x, ByteCount& count) const {
      return sent_bytes == bytes ? x : CountedTensor(count, sent_bytes);
    }
    /// What becomes of what was sent.
    CountedTensor arrived(const CountedTensor& part, ByteCount& count) const {
      return is_joined ? CountedTensor(count, bytes) : part;
    }
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
  /// A microbatch on its way through a part.
  struct Passage {
    const Part& part;
    const Module& spec;
    ModuleRows rows;
    WalkContext context;
    bool needs_gradient = false;                 ///< what it has become so far
    CountedTensor rotary = {};                   ///< that its layers share
    std::vector<WalkedLayerRows> branches = {};  ///< rows of layers behind it that its exit takes
    std::vector<WalkedParts> added = {};         ///< parts of encoders' rows that its layers add
  };
  bool is_beside(size_t module) const;
  bool has_data(size_t module, const MicrobatchLoad& load) const;
  ModuleRows rows(size_t module, const MicrobatchLoad& load) const;
  WalkContext context_of(size_t module, const ModuleRows& rows) const;
  WalkedBlock walked(const Passage& passage, int64_t place) const;
  void enter(Passage& passage, WalkedFlow& flow, const MicrobatchLoad& load, WalkedVisit& visit);
  static CountedTensor walk_output(const CountedTensor& x, const Module& encoder, const ModuleRows& rows,
                                   bool divides_parts, const WalkContext& context);
  CountedTensor enter_llm(Passage& passage, WalkedFlow& flow, const MicrobatchLoad& load, WalkedVisit& visit);
  /// Rows that came from an earlier stage, with what stands beside them.
  void take_given(Passage& passage, WalkedFlow& flow, const std::vector<FlowBytes>& given);
  /// What becomes of a layer's rows behind it.
  CountedTensor behind_layer(Passage& passage, int64_t layer, CountedTensor x);
  void join_parts(const Part& part, WalkedFlow& gradients, WalkedVisit& visit);
  /// What goes on beside rows to a later stage.
  void pass_on(Passage& passage, WalkedFlow& flow, WalkedVisit& visit);
  void run_layers(Passage& passage, WalkedFlow& flow, const std::vector<int64_t>& received, WalkedVisit& visit);
  void finish(Passage& passage, WalkedFlow& flow);
  /// Runs a block, whose output has a gradient or not.
  template <typename Run>
  CountedTensor run_block(size_t block, bool needs_gradient, const WalkContext& context, Run run);

  const Plan& plan_;
  size_t module_;
  int32_t stage_;
  bool is_last_ = false;
  Trainable trainable_;
  std::vector<FlowModule> flow_;
  std::vector<Part> parts_;
  std::vector<std::optional<RankPlace>> places_;  ///< by module
  ByteCount& count_;
  WeightsWalk weights_;
};

}  // namespace weft
