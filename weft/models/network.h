#pragma once

#include <memory>
#include <optional>

#include "weft/models/audio/audio_encoder.h"
#include "weft/models/inputs.h"
#include "weft/models/text/decoder.h"
#include "weft/models/vision/vision_encoder.h"

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
  const VisionEncoder* vision() const { return vision_.get(); }
  const AudioEncoder* audio() const { return audio_.get(); }

  /// Rows for the language model, [rows, width].
  at::Tensor encode_vision(const VisionInputs& inputs, const NetworkRun& run) const;
  at::Tensor encode_audio(const AudioInputs& inputs, const NetworkRun& run) const;
  /// What leaves the last decoder layer, [tokens, width]. The inputs must be on the parameters' device, pixels and mel
  /// frames of their type.
  at::Tensor hidden(const Inputs& inputs, const NetworkRun& run, KvCache* cache = nullptr) const;
  at::Tensor logits(const Inputs& inputs, const NetworkRun& run) const;
  /// The sum over target tokens of the cross entropy; the caller divides by the number of the whole batch's.
  at::Tensor loss_sum(const Inputs& inputs, const NetworkRun& run) const;

 private:
  ModelNumbers numbers_;
  std::shared_ptr<VisionEncoder> vision_;
  std::shared_ptr<AudioEncoder> audio_;
  std::shared_ptr<Decoder> decoder_;
  at::ScalarType type_ = at::kFloat;
};

}  // namespace weft
