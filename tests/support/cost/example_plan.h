#pragma once

#include <numeric>

#include "weft/meaning/even_layers.h"
#include "weft/plan/plan.h"
#include "weft/spec/model_reader.h"

// Small plans that tests of several folders build on.

namespace weft {

struct GptShape {
  int64_t width = 1024;
  int64_t heads = 16;
  int64_t layers = 8;
  int64_t positions = 512;
  int64_t vocabulary = 1000;
  bool is_tied = false;
};

inline Model gpt_model(const GptShape& shape) {
  const Json config = {{"model_type", "gpt2"},
                       {"n_embd", shape.width},
                       {"n_head", shape.heads},
                       {"n_layer", shape.layers},
                       {"n_positions", shape.positions},
                       {"vocab_size", shape.vocabulary},
                       {"tie_word_embeddings", shape.is_tied}};
  return *read_model({.source = "gpt", .root = config}, "gpt");
}

/// A machine that loses nothing: products at their peak, everything else for nothing. 100 TFLOP/s in bf16.
inline Cluster ideal_cluster(int64_t nodes = 1, int64_t devices_per_node = 8) {
  constexpr double kEndless = 1e200;
  return {.name = "ideal",
          .nodes = nodes,
          .devices_per_node = devices_per_node,
          .device = {.name = "ideal device",
                     .memory_gib = 1e5,
                     .memory_bandwidth_gb_per_s = kEndless,
                     .matrix_tflops = {{Precision::kBf16, 100}, {Precision::kFp32, 50}}},
          .within_node = {.bandwidth_gb_per_s = kEndless},
          .between_nodes = {.bandwidth_gb_per_s = kEndless},
          .cards_per_node = devices_per_node,
          .host = {},
          .efficiency = {.matrix = 1,
                         .matrix_half_size = 0,
                         .attention_products = 1,
                         .fused_attention = 1,
                         .memory = 1,
                         .passes_per_operator = 1,
                         .kernel_us = 0,
                         .host_us_per_kernel = 0,
                         .within_node = 1,
                         .between_nodes = 1,
                         .update = 1,
                         .action_us = 0,
                         .overlap = 0,
                         .slowdown_per_doubling = 0}};
}

/// A legal plan of a text model, with samples of equal length; layers that are not given are spread evenly.
inline Plan text_plan(Model model, Cluster cluster, const Degrees& degrees, int64_t sequence_tokens,
                      SchedulePlan schedule = {}, std::vector<std::vector<int64_t>> layers = {}) {
  Plan plan;
  ModulePlan llm{.axis_order = {"tp", "cp", "dp", "pp"}, .layers = std::move(layers)};
  llm.degrees() = degrees;
  const auto num_layers = static_cast<int64_t>(model.modules.front().layers.size());
  plan.model = std::move(model);
  plan.cluster = std::move(cluster);
  plan.world_size = llm.num_ranks();
  llm.ranks.resize(static_cast<size_t>(plan.world_size));
  std::iota(llm.ranks.begin(), llm.ranks.end(), 0);
  if (llm.layers.empty()) llm.layers = even_layers(num_layers, Placement::kLoop, llm.pp, llm.vpp);
  llm.recompute.assign(static_cast<size_t>(llm.pp), std::vector<Recompute>(static_cast<size_t>(llm.vpp)));
  plan.schedule = std::move(schedule);
  plan.workload = {.name = "text",
                   .source = "text",
                   .global_batch_samples = plan.schedule.mbs * plan.schedule.microbatches * llm.dp,
                   .tokens = Distribution::constant(static_cast<double>(sequence_tokens)),
                   .tokens_include_media = true};
  plan.modules.push_back(std::move(llm));
  return plan;
}

}  // namespace weft
