// Training steps of a model, on demand: model_step.py starts this beside PyTorch and has the two step in turn.
//   weft_model_step FOLDER THREADS   FOLDER holds a model as Hugging Face saves it and inputs.safetensors
// Answers every line of standard input with one: milliseconds, loss, and the most memory since the libraries were
// loaded.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "bench/must.h"
#include "weft/base/check.h"
#include "weft/models/load_weights.h"
#include "weft/models/network.h"
#include "weft/models/tensor_file.h"
#include "weft/spec/model_reader.h"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

/// "VmRSS" or "VmHWM", the resident memory now and at its most.
int64_t status_kib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    int64_t kib = 0;
    if (word == field + ":" && status >> kib) return kib;
  }
  return 0;
}

void forget_most_memory() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

/// The state and the update of PyTorch's AdamW(fused=True) with its default settings.
class AdamW {
 public:
  explicit AdamW(const std::vector<ParameterPtr>& parameters) : parameters_(parameters) {
    for (const ParameterPtr& parameter : parameters) {
      values_.push_back(parameter->value.detach());
      means_.push_back(at::zeros_like(values_.back()));
      squares_.push_back(at::zeros_like(values_.back()));
      steps_.push_back(at::zeros({}, at::TensorOptions().dtype(at::kFloat)));
    }
  }

  void update() {
    const at::NoGradGuard no_graph;
    std::vector<at::Tensor> values, gradients, means, squares, steps;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i]->gradient.defined()) continue;
      values.push_back(values_[i]);
      gradients.push_back(parameters_[i]->gradient);
      means.push_back(means_[i]);
      squares.push_back(squares_[i]);
      steps.push_back(steps_[i].add_(1));
    }
    at::_fused_adamw_(values, gradients, means, squares, {}, steps, /*lr=*/1e-3, 0.9, 0.999, /*weight_decay=*/1e-2,
                      /*eps=*/1e-8, /*amsgrad=*/false, /*maximize=*/false);
    for (const ParameterPtr& parameter : parameters_) parameter->gradient = at::Tensor();
  }

 private:
  std::vector<ParameterPtr> parameters_;
  std::vector<at::Tensor> values_, means_, squares_, steps_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::puts("usage: weft_model_step FOLDER THREADS"), 2;
  const std::filesystem::path folder = argv[1];
  at::set_num_threads(std::stoi(argv[2]));
  (void)at::mm(at::ones({64, 64}), at::ones({64, 64}));
  const int64_t before_kib = status_kib("VmRSS");

  WholeParameters maker(at::TensorOptions().dtype(at::kFloat));
  const Network network = must(Network::create(must(read_model_file(folder)), maker));
  {
    const auto error = load_weights(must(WeightFolder::open(folder)), maker.all(), network.numbers().files);
    WEFT_CHECK(!error, "{}", error->message());
  }
  const RawInputs raw = must(raw_inputs(must(read_tensors(folder / "inputs.safetensors"))));
  const Inputs inputs = must(prepare_inputs(network.numbers(), network.decoder().vocabulary(), raw));
  AdamW optimizer(maker.all());

  std::string line;
  while (std::getline(std::cin, line)) {
    forget_most_memory();
    const std::clock_t processor = std::clock();
    const auto start = Clock::now();
    const at::Tensor loss = network.loss_sum(inputs, {}) / static_cast<double>(inputs.num_targets());
    loss.backward();
    optimizer.update();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    const double processor_ms = 1e3 * static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
    std::printf("%.3f %.3f %.7f %ld\n", ms, processor_ms, loss.item<double>(), status_kib("VmHWM") - before_kib);
    std::fflush(stdout);
  }
  return 0;
}
