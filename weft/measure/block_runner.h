#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include <torch/csrc/autograd/edge.h>

#include "weft/comm/echo/echo_world.h"
#include "weft/measure/block_inputs.h"
#include "weft/measure/block_plan.h"
#include "weft/measure/gpu_backlog.h"
#include "weft/pipeline/trained_module.h"
#include "weft/tensor/time_marks.h"

namespace weft {

/// Milliseconds of one run.
struct BlockPasses {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;

  double sum() const { return forward + backward_input + backward_weight; }
};

/// Bytes of tensors, see BlockMeasurement.
struct BlockBytes {
  double kept = 0;
  double forward_peak = 0;
  double backward_peak = 0;
};

/// One block on one device, as a rank of the plan that its shape is of runs it: the same stage, weights in the same
/// buckets, gradients added to the same sums. The other ranks are an echo.
class BlockRunner {
 public:
  struct Settings {
    const Model& model;
    BlockShape shape;
    Precision precision = Precision::kFp32;
    at::Device device = at::kCPU;
    BlockRecompute recompute = BlockRecompute::kKeep;
    std::function<void()> meet;  ///< EchoWorld's
  };
  static Result<std::unique_ptr<BlockRunner>> create(const Settings& settings);

  /// A forward, the input gradient, the weight gradients.
  void run(TimeMarks& marks);
  /// Before each forward and each backward so many bytes go through the caches, as other blocks of a model do between
  /// them.
  void pass_by(int64_t bytes);
  /// Of weights and their gradients.
  double weight_bytes();
  /// Of the runs since `marks` was cleared, which have been waited for. Copies of the echo are left out;
  /// `copy_bytes_per_ms` is how fast a GPU makes them.
  std::vector<BlockPasses> passes(const TimeMarks& marks, double copy_bytes_per_ms);

  /// Of a forward and a backward that is not split. Has to be called on the thread that made it.
  BlockBytes measure_bytes();

  /// Of the rows that the stage before hands on.
  double input_bytes() const;
  /// What the tokens that it runs are to those of the shape.
  double token_share() const { return token_share_; }

 private:
  /// A forward's ends, between forward and backward.
  struct Visit {
    std::vector<at::Tensor> inputs;
    std::vector<torch::autograd::Edge> roots;
    std::vector<at::Tensor> gradients;
    WeightGradients deferred;
  };
  /// Where the marks of one run are, and what the echo had copied at each.
  struct RunMarks {
    std::array<size_t, 6> at{};
    std::array<EchoCopies, 6> copies{};
  };

  /// What the last run of a pass took: its host to hand it over, and its device. The first is expected to be slow.
  struct PassTime {
    double host_ms = 2;
    double device_ms = 0;
  };

  BlockRunner(BlockPlan plan, ModelNumbers numbers, const Settings& settings);
  void set_hooks();
  void mark(TimeMarks& marks, size_t place);
  void forward(Visit& visit, bool defers);
  void run_forward(Visit& visit, const Inputs& inputs, bool defers);
  Inputs copied_inputs() const;
  void backward(Visit& visit, bool defers);
  void weights(Visit& visit);
  TrainedStage& stage() { return module_->stages.front(); }
  void run_others();
  int64_t held_bytes() const;
  int64_t peak_bytes() const;
  void forget_peak();

  BlockPlan plan_;
  ModelNumbers numbers_;
  at::Device device_;
  at::TensorOptions options_;
  EchoWorld echo_;
  TrainingSettings settings_;
  std::unique_ptr<TrainedModule> module_;
  Inputs inputs_;
  double token_share_ = 1;
  std::vector<at::Tensor> given_;  ///< what the stage before hands on
  std::vector<at::Tensor> output_gradients_;
  at::Tensor others_;  ///< what stands for other blocks' tensors
  BlockHooks hooks_;
  TimeMarks* marking_ = nullptr;  ///< while a forward is timed
  GpuBacklog backlog_;
  std::array<PassTime, 3> last_;
  double pass_began_ms_ = 0;
  std::vector<RunMarks> runs_;
};

}  // namespace weft
