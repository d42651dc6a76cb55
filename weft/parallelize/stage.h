#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "weft/meaning/stage_flow.h"
#include "weft/meaning/trainable.h"
#include "weft/models/module_network.h"
#include "weft/parallelize/block_hooks.h"
#include "weft/parallelize/context_parallel.h"
#include "weft/parallelize/tensor_parallel.h"
#include "weft/plan/plan.h"

namespace weft {

/// What a microbatch carries from one pipeline stage to the next, by module of the plan, as FlowKind says. Undefined
/// where a module has not begun, has no data in this microbatch, or was taken in whole by the language model.
using Flow = std::vector<at::Tensor>;

/// What one tensor of a Flow is.
struct FlowTensor {
  size_t module = 0;
  std::vector<int64_t> shape;  ///< on this rank
  bool needs_gradient = false;
  size_t shared_by = 0;  ///< the module of whose tensor-parallel ranks each has some of its rows, or all
  Range sent;            ///< rows of it that go to another rank's stage and come from one
};

/// What a stage gives: its Flow, or the loss on the last stage.
struct StageResult {
  Flow flow;
  at::Tensor loss;          ///< the sum over target tokens
  at::Tensor balance_loss;  ///< this microbatch's part of what routers here add to the step's loss, if there are any
  std::vector<at::Tensor> expert_rows;  ///< by router here: rows that chose each expert, int64
  /// Of the modules that ran here, the sum of all that they gave: not finite where any of it is not.
  std::vector<std::pair<ModuleKind, at::Tensor>> sums;
};

/// A text that grows token by token, as a stage of the llm keeps it: keys and values of all tokens so far.
struct GrowingText {
  int64_t most_tokens = 0;
  std::optional<KvCache> cache = std::nullopt;
  at::Tensor logits = {};  ///< of the next token, [1, vocabulary]; on the last stage
};

/// One pipeline stage of a plan on one rank, cut for tensor parallelism: of the llm's pipeline, with blocks of the llm
/// and of inline encoders, or of the pipeline of an encoder beside it.
class StageModel {
 public:
  struct Settings {
    const Plan& plan;
    const ModelNumbers& numbers;
    int32_t stage = 0;
    at::TensorOptions options;
    std::optional<Group> experts;    ///< the ranks that share out the llm's experts; nothing: each has all
    std::optional<Group> balance;    ///< the ranks whose routers see one microbatch; nothing: it is here alone
    const ContextParallel& context;  ///< of the pipeline's modules; must outlive the stage
    size_t module = 0;  ///< of the plan, whose pipeline this is a stage of: the llm, or an encoder beside it
    LossSettings loss = {};
  };
  /// By module of the plan, shared by the stages of a rank; null for modules that are not here.
  using TensorParallels = std::vector<std::unique_ptr<TensorParallel>>;
  StageModel(const Settings& settings, const TensorParallels& tensor_parallel);

  int32_t stage() const { return stage_; }
  bool is_last() const { return is_last_; }
  /// Of activations.
  at::TensorOptions options() const { return options_; }
  const std::vector<ParameterPtr>& parameters() const { return parameters_; }
  /// In the order of a forward; every parameter belongs to one.
  const std::vector<StageBlock>& blocks() const { return blocks_; }
  ModuleKind module_of(const Parameter& parameter) const;
  /// Whether sequence parallelism divides the rows between the blocks of its module.
  bool has_divided_rows(const ParameterPtr& parameter) const;
  /// The parameter of the embedding, if it is here or, where it is tied, its copy in the head.
  ParameterPtr embedding() const;

  /// Whether a module's first block is here.
  bool has_entry(ModuleKind module) const;
  /// Whether the llm begins here and takes in what encoders give.
  bool has_llm_entry() const { return has_entry(ModuleKind::kLlm); }
  /// Of the rows that an encoder beside the pipeline makes of a microbatch, those that go to this rank where the llm
  /// begins, by their place among them: all or, where rows are divided, those whose tokens it has. In the Flow that
  /// `forward` takes they are the encoder's.
  std::vector<int64_t> rows_taken(ModuleKind encoder, const Inputs& inputs) const;
  /// Whether the llm begins here and a microbatch has such rows, on this rank or on others that share its tokens.
  bool takes_rows(ModuleKind encoder, const Inputs& inputs) const;

  /// The tensors that this stage is given for a microbatch, and that it gives, in order.
  std::vector<FlowTensor> tensors_in(const Inputs& inputs) const { return tensors_between(stage_ - 1, inputs); }
  std::vector<FlowTensor> tensors_out(const Inputs& inputs) const { return tensors_between(stage_, inputs); }

  /// What this rank sends of a tensor that goes to a stage elsewhere, a copy if it is a part, and what it then has
  /// there. Without sequence parallelism every tensor-parallel rank has the same rows: each sends a part, and they are
  /// joined.
  static at::Tensor part_sent(const FlowTensor& tensor, const at::Tensor& x);
  at::Tensor joined(const FlowTensor& tensor, const at::Tensor& part) const;

  /// The inputs are this rank's share of a microbatch (ContextParallel::share), here and above. The hooks must be there
  /// until the backward. An encoder beside the llm gives all of its share's rows on every tensor-parallel rank.
  /// Where a text is given, the inputs are the next tokens of it: a prompt, then one at a time; there is no loss then.
  StageResult forward(Flow flow, const Inputs& inputs, WeightGradients* deferred, const BlockHooks* hooks = nullptr,
                      GrowingText* text = nullptr) const;

 private:
  struct ModuleRoute {
    ModuleKind kind = ModuleKind::kLlm;
    bool is_beside = false;  ///< the pipeline that this stage is of, and its rows come from outside
    int64_t width = 0;
    int64_t output_parts = 1;
    std::vector<int64_t> branches = {};  ///< layers whose rows the exit takes besides
    TensorParallel* tensor_parallel = nullptr;
  };
  struct PartModel {
    StagePart part;
    std::vector<BlockRecompute> recomputes;  ///< by layer
    bool recomputes_logits = false;
    ModuleKind kind = ModuleKind::kLlm;
    size_t first_block = 0;
    size_t end_block = 0;
    std::shared_ptr<ModuleNetwork> network;
  };

  std::vector<FlowTensor> tensors_between(int32_t stage, const Inputs& inputs) const;
  const ModuleRoute& route_of(const PartModel& model) const { return routes_[static_cast<size_t>(model.part.module)]; }
  void set_routes(const Settings& settings, const TensorParallels& tensor_parallel);
  at::Tensor is_between(ModuleKind encoder, const Inputs& inputs) const;
  at::Tensor places_between(ModuleKind encoder, const Inputs& inputs) const;
  at::Tensor whole_rows(const ModuleRoute& route, const at::Tensor& x, const Inputs& inputs) const;
  at::Tensor media_rows(const ModuleRoute& route, const at::Tensor& x, const Inputs& inputs) const;
  bool has_data(const ModuleRoute& route, const Inputs& inputs) const;
  void list_blocks(PartModel& model, const Trainable& trainable, int64_t exit_place, const CutParameters& maker,
                   size_t first_parameter, size_t first_begin);
  /// What encoders gave, where the language model begins.
  struct TakenIn {
    std::vector<MediaRows> media;
    std::map<size_t, AddedRows> added;  ///< by module
  };
  TakenIn taken_in(size_t module, Flow& flow, const Inputs& inputs) const;
  std::map<size_t, AddedRows> still_to_add(const PartModel& llm, const Flow& flow, const Inputs& inputs) const;
  LayerRows given_rows(const PartModel& model, const at::Tensor& x) const;
  void run_part(const PartModel& model, Flow& flow, const Inputs& inputs, WeightGradients* deferred,
                const BlockHooks* hooks, GrowingText* text, StageResult& result) const;

  int32_t stage_ = 0;
  bool is_last_ = false;
  bool is_encoder_ = false;  ///< of an encoder's own pipeline
  at::TensorOptions options_;
  at::ScalarType type_ = at::kFloat;
  /// Of a router's loss for one microbatch: a step's is the mean over all microbatches of all data-parallel ranks, so
  /// that its weight does not depend on their number.
  double balance_scale_ = 0;
  LossSettings loss_;
  std::vector<FlowModule> flow_;     ///< by module of the plan
  std::vector<ModuleRoute> routes_;  ///< by module of the plan
  std::vector<PartModel> parts_;
  std::optional<Group> experts_;
  std::optional<Group> balance_;
  bool experts_over_tp_ = false;
  const ContextParallel* context_;
  std::vector<ParameterPtr> parameters_;
  std::vector<StageBlock> blocks_;
  std::vector<bool> has_divided_rows_;  ///< by parameter
};

}  // namespace weft
