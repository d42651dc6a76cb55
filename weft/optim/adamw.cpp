#include "weft/optim/adamw.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include "weft/base/check.h"
#include "weft/layers/own_kernels.h"

namespace weft {
namespace {

/// As kernels of GPUs take it.
struct AdamWNumbers {
  float learning_rate, beta1, beta2, epsilon, weight_decay, step_size, root_correction;
};

AdamWNumbers numbers_of(const AdamWSettings& settings, const AdamWStep& step) {
  const auto number = static_cast<double>(step.number);
  const double correction1 = 1 - std::pow(settings.beta1, number), correction2 = 1 - std::pow(settings.beta2, number);
  return {.learning_rate = static_cast<float>(step.learning_rate),
          .beta1 = static_cast<float>(settings.beta1),
          .beta2 = static_cast<float>(settings.beta2),
          .epsilon = static_cast<float>(settings.epsilon),
          .weight_decay = static_cast<float>(settings.weight_decay),
          .step_size = static_cast<float>(step.learning_rate / correction1),
          .root_correction = static_cast<float>(std::sqrt(correction2))};
}

/// The same bits as the kernel of GPUs draws.
uint64_t drawn(uint64_t key, uint64_t element) {
  uint64_t x = key + element * 0x9e3779b97f4a7c15U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

at::BFloat16 rounded_by_chance(float x, uint64_t sixteen_bits) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000U) == 0x7f800000U) return at::BFloat16(x);
  return {static_cast<uint16_t>((bits + (static_cast<uint32_t>(sixteen_bits) & 0xffffU)) >> 16),
          at::BFloat16::from_bits()};
}

/// bf16 states on a processor.
void update_by_chance(const AdamWState& state, const at::Tensor& given, const AdamWSettings& settings,
                      const AdamWStep& step) {
  const at::Tensor gradient = given.to(at::kFloat);
  const AdamWNumbers a = numbers_of(settings, step);
  auto* weights = state.master.data_ptr<at::BFloat16>();
  auto* means = state.moment1.data_ptr<at::BFloat16>();
  auto* squares = state.moment2.data_ptr<at::BFloat16>();
  const auto* gradients = gradient.const_data_ptr<float>();
  for (int64_t i = 0; i < gradient.numel(); ++i) {
    const float g = gradients[i] * static_cast<float>(step.gradient_scale);
    float w = weights[i], m = means[i], v = squares[i];
    w -= a.learning_rate * a.weight_decay * w;
    m += (1 - a.beta1) * (g - m);
    v = a.beta2 * v + (1 - a.beta2) * g * g;
    w -= a.step_size * m / (std::sqrt(v) / a.root_correction + a.epsilon);
    const uint64_t bits = drawn(step.key, static_cast<uint64_t>(step.first_element + i));
    weights[i] = rounded_by_chance(w, bits);
    means[i] = rounded_by_chance(m, bits >> 16);
    squares[i] = rounded_by_chance(v, bits >> 32);
  }
}

bool is_one_of(at::ScalarType type, at::ScalarType first, at::ScalarType second) {
  return type == first || type == second;
}

/// Kernels take eights of elements, which begin at multiples of 16 bytes.
bool is_aligned(const at::Tensor& x) {
  return !x.defined() || (x.is_contiguous() && reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0);
}

bool has_own_update(const AdamWState& state, const at::Tensor& gradient, const at::Tensor& values) {
  const auto is_known = [](const at::Tensor& x) { return is_one_of(x.scalar_type(), at::kFloat, at::kBFloat16); };
  return has_own_kernels_on(state.master.device()) && is_known(state.master) && is_known(gradient) &&
         (!values.defined() || values.scalar_type() == at::kBFloat16) && is_aligned(state.master) &&
         is_aligned(state.moment1) && is_aligned(state.moment2) && is_aligned(gradient) && is_aligned(values);
}

void update_by_kernel(const AdamWState& state, const at::Tensor& gradient, const at::Tensor& values,
                      const AdamWSettings& settings, const AdamWStep& step) {
  const bool is_wide = state.master.scalar_type() == at::kFloat,
             is_wide_gradient = gradient.scalar_type() == at::kFloat;
  const char* kernel = is_wide ? (is_wide_gradient ? "adamw_fp32" : "adamw_fp32_bf16")
                               : (is_wide_gradient ? "adamw_bf16_fp32" : "adamw_bf16");
  const GpuKernels& kernels = own_kernels(state.master);
  constexpr int64_t kThreads = 256, kEight = 8;
  const int64_t count = gradient.numel(), eights = (count + kEight - 1) / kEight;
  const int64_t blocks = std::min((eights + kThreads - 1) / kThreads, kernels.num_processors() * 16);
  void* written = values.defined() ? values.data_ptr() : nullptr;
  kernels.launch("update", kernel, {.blocks = blocks, .threads = kThreads}, current_stream(gradient),
                 state.master.data_ptr(), state.moment1.data_ptr(), state.moment2.data_ptr(), gradient.data_ptr(),
                 written, count, numbers_of(settings, step), static_cast<float>(step.gradient_scale), step.key,
                 step.first_element);
}

}  // namespace

void update_adamw(const AdamWState& state, const at::Tensor& gradient, const at::Tensor& values,
                  const AdamWSettings& settings, const AdamWStep& step) {
  WEFT_CHECK(gradient.numel() == state.master.numel() && (!values.defined() || values.numel() == gradient.numel()),
             "{} gradients for {} weights", gradient.numel(), state.master.numel());
  if (gradient.numel() == 0) return;
  if (has_own_update(state, gradient, values)) return update_by_kernel(state, gradient, values, settings, step);
  if (state.master.is_cpu() && state.master.scalar_type() == at::kBFloat16) {
    update_by_chance(state, gradient, settings, step);
  } else {
    const at::Tensor same = gradient.to(state.master.scalar_type());
    if (step.gradient_scale != 1) same.mul_(step.gradient_scale);
    const at::Tensor number = at::full({}, static_cast<double>(step.number), same.options().dtype(at::kFloat));
    at::_fused_adamw_({state.master}, {same}, {state.moment1}, {state.moment2}, {}, {number}, step.learning_rate,
                      settings.beta1, settings.beta2, settings.weight_decay, settings.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
  if (values.defined()) values.copy_(state.master);
}

}  // namespace weft
