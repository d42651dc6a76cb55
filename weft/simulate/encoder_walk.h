#pragma once

#include <map>

#include "weft/schedule/schedule.h"
#include "weft/simulate/bridge_walk.h"
#include "weft/simulate/stage_walk.h"

namespace weft {

/// One rank's stage of an encoder beside the pipeline, walked through as pipeline/encoder_runner runs it.
class EncoderWalk {
 public:
  /// `macro_batches` are those of this rank's samples. `bridge` is there on the last stage.
  struct Settings {
    size_t module = 0;
    const ScheduledEncoder* rows = nullptr;
    const std::vector<std::optional<EncoderLoad>>* macro_batches = nullptr;
    BridgeWalk* bridge = nullptr;
    ByteCount* count = nullptr;
    Flights* flights = nullptr;
  };
  EncoderWalk(ModuleKind kind, Settings settings, std::unique_ptr<StageWalk> stage);

  void forward(int64_t macro);
  void send_rows(int64_t macro) { settings_.bridge->send_rows(macro, made_.extract(macro).mapped()); }
  void backward(int64_t macro);
  void send_encoded(int64_t macro) { send(made_, macro); }
  void receive_encoded(int64_t macro);
  void send_encoded_gradient(int64_t macro) { send(made_gradients_, macro); }
  void receive_encoded_gradient(int64_t macro);
  WeightsWalk& weights() { return stage_->weights(); }

 private:
  struct Visit {
    CountedTensor input;
    WalkedVisit walked;
  };
  /// What has arrived of a macro batch, as this stage has it.
  CountedTensor take(std::map<int64_t, CountedTensor>& from, int64_t macro, const StageWalk::FlowBytes& tensor) const;
  void send(std::map<int64_t, CountedTensor>& from, int64_t macro);
  CountedTensor run(int64_t macro, bool keeps, Visit& visit);
  bool is_last() const { return stage_->is_last(); }

  Settings settings_;
  std::unique_ptr<StageWalk> stage_;
  std::vector<MicrobatchLoad> loads_;  ///< by macro batch
  std::map<int64_t, Visit> visits_;
  std::map<int64_t, CountedTensor> made_, made_gradients_, arriving_, arriving_gradients_;
  int64_t num_backward_ = 0;
};

}  // namespace weft
