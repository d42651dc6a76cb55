#pragma once

#include <span>
#include <string_view>

#include "weft/base/fields.h"

namespace weft {

/// How much of a data sheet's rates training gets, and what it loses between kernels. One set for a whole cluster:
/// nothing here belongs to a model or to a shape. The defaults are those of an untuned cluster that runs our own
/// training; calibration fits them.
struct Efficiency {
  double matrix = 0.75;             ///< share of matrix_tflops that large products reach
  double matrix_half_size = 120;    ///< a product whose dims are all three times this long takes twice its ideal time
  double attention_products = 0.5;  ///< unfused attention's products: share of what other products reach
  double fused_attention = 0.7;     ///< fused attention: the same
  double memory = 0.8;              ///< share of memory_bandwidth that memory-bound kernels reach
  double passes_per_operator = 7;   ///< over memory, and kernels, that a norm, activation or sum is made of
  double kernel_us = 4;             ///< device time around every kernel
  double host_us_per_kernel = 24;   ///< a block takes at least this long for each kernel that the host starts
  double within_node = 0.75;        ///< share of the link's bandwidth that collectives reach
  double between_nodes = 0.6;       ///< the same, across nodes
  double update = 0.6;              ///< share of memory_bandwidth that the optimizer's update reaches
  double action_us = 200;           ///< host time around every action of a pipeline with several stages
  double overlap = 0.8;             ///< share of the compute beside it that really hides communication
  double slowdown_per_doubling = 0.01;  ///< compute slows by this share whenever the number of nodes doubles
};

/// How far predictions with the defaults were from published runs (scenarios/validation): what an uncalibrated
/// cluster's figures are worth.
struct DefaultError {
  int64_t runs = 0;
  double mean_percent = 0;
  double max_percent = 0;
};
DefaultError default_error();

/// One of them by name, with what it may be.
struct EfficiencyField {
  std::string_view name;
  double Efficiency::*value;
  NumberRange range;
};
std::span<const EfficiencyField> efficiency_fields();

/// Missing fields have their defaults; unknown ones are rejected.
Efficiency read_efficiency(Fields fields);
Json to_json(const Efficiency& efficiency);

}  // namespace weft
