#pragma once

#include <memory>
#include <vector>

#include "weft/models/module_network.h"
#include "weft/models/text/decoder.h"

namespace weft {

/// How a whole network is run on one rank.
struct NetworkRun {
  RunContext context;
  bool recomputes = false;  ///< every transformer layer keeps only its input
};

/// A model that computes: its encoders and its language model, all on one rank.
class Network {
 public:
  /// The parameters come from the maker, uninitialised.
  static Result<Network> create(const Model& model, ParameterMaker& maker);

  const ModelNumbers& numbers() const { return numbers_; }
  const Decoder& decoder() const { return *decoder_; }
  /// Null where the model has no such module.
  const ModuleNetwork* find(ModuleKind kind) const;

  /// An encoder's rows for the language model, [rows, width].
  at::Tensor encode(ModuleKind encoder, const Inputs& inputs, const NetworkRun& run) const;
  /// What leaves the last decoder layer, [tokens, width]. The inputs must be on the parameters' device, pixels and mel
  /// frames of their type.
  at::Tensor hidden(const Inputs& inputs, const NetworkRun& run, KvCache* cache = nullptr) const;
  at::Tensor logits(const Inputs& inputs, const NetworkRun& run) const;
  /// The sum over target tokens of the cross entropy; the caller divides by the number of the whole batch's.
  at::Tensor loss_sum(const Inputs& inputs, const NetworkRun& run) const;

 private:
  struct Part {
    ModuleKind kind = ModuleKind::kLlm;
    std::shared_ptr<ModuleNetwork> network;
    std::vector<int64_t> branches = {};  ///< layers whose rows the exit takes besides
    int64_t output_parts = 1;
  };
  at::Tensor encode(const Part& encoder, const Inputs& inputs, const NetworkRun& run) const;
  /// Layers at `branches` give their rows to the exit, too.
  LayerRows run_layers(const ModuleNetwork& network, at::Tensor x, const std::vector<int64_t>& branches,
                       const std::vector<AddedRows>& added, const Inputs& inputs, const NetworkRun& run,
                       KvCache* cache = nullptr) const;

  ModelNumbers numbers_;
  std::vector<Part> encoders_;
  std::shared_ptr<Decoder> decoder_;
  at::ScalarType type_ = at::kFloat;
};

}  // namespace weft
