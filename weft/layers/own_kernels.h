#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "weft/base/error.h"
#include "weft/kernels/gpu_kernels.h"

namespace weft {

// Weft's own kernels on tensors. All take bf16 rows of a GPU; who calls asks first whether they are for his tensors,
// and otherwise composes the same of LibTorch's operators, which is also what their results are tested against.

/// Whether rows of this tensor's device, type and width go through own kernels: bf16 on a GPU that has them, rows of
/// eights. WEFT_OWN_KERNELS=0 turns them off.
bool has_own_kernels(const at::Tensor& rows);
/// The same for flat memory of any type.
bool has_own_kernels_on(at::Device device);
/// Why a GPU has none, if it is one.
std::optional<Error> missing_kernels(at::Device device);
/// Those of a tensor's GPU, which must have them.
const GpuKernels& own_kernels(const at::Tensor& x);
/// What is being put on the GPU of a tensor now goes there.
CudaStreamHandle current_stream(const at::Tensor& x);

/// The sums of all rows, in fp32.
at::Tensor sum_of_rows(const at::Tensor& x);

struct NormedRows {
  at::Tensor sum;  ///< x + added, or x itself
  at::Tensor y;
  at::Tensor mean;   ///< of every row, fp32; with a bias alone
  at::Tensor scale;  ///< of every row, fp32
};
/// Root-mean-square norm of x + added, or layer norm where there is a bias; `added` and `bias` may be undefined. Widths
/// up to kWidestNorm.
NormedRows norm_rows(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon);
constexpr int64_t kWidestNorm = 8192;

struct NormGradients {
  at::Tensor dx;
  at::Tensor dweight;  ///< fp32
  at::Tensor dbias;    ///< fp32
};
/// `passed` is the gradient of the sum itself, or undefined.
NormGradients norm_rows_backward(const at::Tensor& dy, const at::Tensor& passed, const NormedRows& kept,
                                 const at::Tensor& weight, bool needs_weights);

at::Tensor swiglu_rows(const at::Tensor& gate_up);
at::Tensor quick_gelu_rows(const at::Tensor& x);
/// `again`, where it is defined, becomes what the forward gave; it may be dy itself.
at::Tensor swiglu_rows_backward(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& again = {});
at::Tensor quick_gelu_rows_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& again = {});

/// Heads [rows, heads, head_dim], whose rows may lie apart, turned in place. head_dim in eights, angles in fp32.
void turn_heads_(const at::Tensor& heads, const at::Tensor& cosines, const at::Tensor& sines, bool back);
/// Gradients [rows, heads, head_dim] of any strides between rows and heads, as packed rows; those of queries and keys
/// turned back where there are angles.
at::Tensor packed_gradients(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& cosines,
                            const at::Tensor& sines);

/// The logarithm of every row's sum of exponentials, and the logit of its target, 0 where the target is no class of the
/// row; fp32 [rows].
struct RowLosses {
  at::Tensor sums;
  at::Tensor chosen;
};
RowLosses row_losses(const at::Tensor& logits, const at::Tensor& targets);
/// Turns logits into their gradient in place; `scale` is one number.
void turn_into_gradient_(const at::Tensor& logits, const at::Tensor& sums, const at::Tensor& targets,
                         const at::Tensor& scale);

}  // namespace weft
