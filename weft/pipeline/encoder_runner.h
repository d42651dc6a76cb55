#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include <torch/csrc/autograd/edge.h>

#include "weft/comm/group.h"
#include "weft/parallelize/stage.h"
#include "weft/pipeline/encoder_bridge.h"
#include "weft/pipeline/pace.h"
#include "weft/pipeline/stage_weights.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// Runs one rank's stage of an encoder beside the pipeline: EF and EB of its macro batches, what they hand over to the
/// llm and to neighbours in the encoder's own pipeline, and ER.
class EncoderRunner {
 public:
  struct Settings {
    size_t module = 0;  ///< of the plan
    const StageModel* model = nullptr;
    StageWeights* weights = nullptr;
    ScheduledEncoder rows;            ///< as scheduled
    std::optional<Group> pipeline;    ///< of its stages, where it has several
    EncoderBridge* bridge = nullptr;  ///< on its last stage
    int32_t encoder = 0;              ///< of the schedule
    Pace pace;
  };
  explicit EncoderRunner(Settings settings);

  /// A step over this rank's macro batches begins.
  void begin(const std::vector<Inputs>& macro_batches);
  /// EF. Returns the sum of all that was computed, undefined where there was nothing.
  at::Tensor forward(int64_t macro);
  /// SEND_R, on the last stage.
  void send_rows(int64_t macro);
  /// RECV_G, there, too.
  void receive_gradients(int64_t macro);
  /// EB.
  void backward(int64_t macro);
  /// SEND_EF and RECV_EF, between stages of the encoder's own pipeline.
  void send_encoded(int64_t macro);
  void receive_encoded(int64_t macro);
  /// SEND_EB and RECV_EB.
  void send_encoded_gradient(int64_t macro);
  void receive_encoded_gradient(int64_t macro);
  /// ER. All EB of the step are over.
  void reduce();
  /// Adds what is on its way to neighbours in the encoder's own pipeline.
  void add_to(TensorFlights& flights) const;
  /// All is over.
  void end();
  /// In this step, for neighbours in the encoder's own pipeline.
  double waited_ms() const { return waited_ms_; }

 private:
  /// A macro batch from EF to EB.
  struct Visit {
    at::Tensor input;  ///< of stages behind the first
    std::optional<torch::autograd::Edge> root;
  };
  struct Sent {
    int64_t macro = 0;
    at::Tensor tensor;
    Work work;
  };
  struct Received {
    FlowTensor shape;
    at::Tensor part;
    Work work;
  };
  using Arriving = std::map<int64_t, Received>;  ///< by macro batch; none where it has nothing

  bool is_first() const { return settings_.model->stage() == 0; }
  bool is_last() const { return settings_.model->is_last(); }
  const Inputs& inputs(int64_t macro) const { return (*macro_batches_)[static_cast<size_t>(macro)]; }
  at::Tensor run(int64_t macro, Visit& visit);
  Received receive(const FlowTensor& shape, int64_t from);
  /// What has arrived of a macro batch, as this stage has it.
  at::Tensor take(Arriving& from, int64_t macro);
  void send(int64_t macro, const at::Tensor& tensor, int64_t to);
  void wait_for_place(int64_t macro);
  void keep_pace(ActionKind kind, int64_t macro) const {
    weft::keep_pace(settings_.pace, {kind, settings_.encoder, static_cast<int32_t>(macro)});
  }
  void reap_sends();

  Settings settings_;

  // Of the step that is running.
  const std::vector<Inputs>* macro_batches_ = nullptr;
  at::Tensor sum_;
  std::map<int64_t, Visit> visits_;
  std::map<int64_t, at::Tensor> made_;            ///< rows between EF and SEND_R, or SEND_EF
  std::map<int64_t, at::Tensor> made_gradients_;  ///< between EB and SEND_EB
  Arriving arriving_, arriving_gradients_;
  std::deque<Sent> sends_;
  int64_t num_backward_ = 0;  ///< EB that have begun
  double waited_ms_ = 0;
};

}  // namespace weft
