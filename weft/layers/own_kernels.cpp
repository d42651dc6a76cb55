#include "weft/layers/own_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "weft/base/check.h"

namespace weft {
namespace {

constexpr int64_t kEight = 8;

std::string libtorch_folder() {
  Dl_info libtorch{};
  if (dladdr(reinterpret_cast<const void*>(&at::globalContext), &libtorch) == 0 || libtorch.dli_fname == nullptr)
    return {};
  return std::filesystem::path(libtorch.dli_fname).parent_path().string();
}

bool are_wanted() {
  static const bool wanted = [] {
    const char* setting = std::getenv("WEFT_OWN_KERNELS");
    return setting == nullptr || std::string_view(setting) != "0";
  }();
  return wanted;
}

Result<const GpuKernels*> kernels_on(at::Device device) {
  static const std::string folder = libtorch_folder();
  return GpuKernels::on(device.index(), folder);
}

void* at_first(const at::Tensor& x) {
  return x.defined() ? x.data_ptr() : nullptr;
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

at::Tensor empty_fp32(const at::Tensor& like, at::IntArrayRef shape) {
  return at::empty(shape, like.options().dtype(at::kFloat));
}

struct NormLaunch {
  const char* kernel = nullptr;
  LaunchShape shape;
};

/// How a norm goes through rows going forward: a warp has a narrow row, a block a wide one.
NormLaunch forward_norm(bool is_layer, int64_t width, int64_t rows) {
  constexpr int64_t kWarp = 32, kRowsOfBlock = 4, kNarrow = 8;
  const int64_t eights = width / kEight, vectors = ceil_div(eights, kWarp);
  if (vectors > kNarrow) {
    static constexpr const char* kWide[2][2] = {{"rms_norm_wide_2", "rms_norm_wide_4"},
                                                {"layer_norm_wide_2", "layer_norm_wide_4"}};
    const int64_t of_thread = eights <= 512 ? 2 : 4;
    return {kWide[is_layer ? 1 : 0][of_thread == 2 ? 0 : 1],
            {.blocks = rows, .threads = ceil_div(ceil_div(eights, of_thread), kWarp) * kWarp}};
  }
  static constexpr const char* kNarrowNames[2][4] = {
      {"rms_norm_narrow_2", "rms_norm_narrow_4", "rms_norm_narrow_6", "rms_norm_narrow_8"},
      {"layer_norm_narrow_2", "layer_norm_narrow_4", "layer_norm_narrow_6", "layer_norm_narrow_8"}};
  return {kNarrowNames[is_layer ? 1 : 0][(vectors - 1) / 2],
          {.blocks = ceil_div(rows, kRowsOfBlock), .threads = kWarp, .threads_y = kRowsOfBlock}};
}

/// How it goes through them going back: groups of threads with a row each, as many as a multiprocessor's registers
/// and the shared memory of a block have room for.
NormLaunch backward_norm(bool is_layer, int64_t width, int64_t rows, const GpuKernels& kernels) {
  // What norm_source.cpp counts on.
  constexpr int64_t kMostGroups = 15, kDeclaredBytes = 2048;
  const int64_t eights = width / kEight, vectors = eights <= 96 ? 1 : eights <= 512 ? 2 : 4;
  const int64_t most_threads = vectors == 1 ? 1024 : vectors == 2 ? 512 : 256;
  const int64_t rows_ahead = vectors == 4 ? 2 : 3;

  const int64_t threads = ceil_div(ceil_div(eights, vectors), 32) * 32;
  const int64_t bytes_of_group = rows_ahead * 3 * vectors * threads * 16;
  const int64_t fits = (kernels.shared_bytes_of_block() - kDeclaredBytes) / bytes_of_group;
  const int64_t groups = std::clamp<int64_t>(std::min(most_threads / threads, fits), 1, kMostGroups);
  const int64_t blocks = kernels.num_processors() * std::max<int64_t>(1, most_threads / (threads * groups));
  static constexpr const char* kNames[2][3] = {
      {"rms_norm_backward_1", "rms_norm_backward_2", "rms_norm_backward_4"},
      {"layer_norm_backward_1", "layer_norm_backward_2", "layer_norm_backward_4"}};
  return {kNames[is_layer ? 1 : 0][vectors / 2],
          {.blocks = std::min(ceil_div(rows, groups), blocks),
           .threads = threads,
           .threads_y = groups,
           .shared_bytes = groups * bytes_of_group}};
}

/// Adds up `count` rows of each of several tables [tables, count, width].
at::Tensor summed_partials(const at::Tensor& partials) {
  const int64_t tables = partials.size(0), count = partials.size(1), width = partials.size(2);
  const at::Tensor sums = at::empty({tables, width}, partials.options());
  own_kernels(partials).launch(
      "column", "sum_partials", {.blocks = ceil_div(width, 32), .blocks_y = tables, .threads = 32, .threads_y = 32},
      current_stream(partials), at_first(sums), at_first(partials), static_cast<int>(width), static_cast<int>(count));
  return sums;
}

}  // namespace

bool has_own_kernels(const at::Tensor& rows) {
  return rows.is_cuda() && rows.scalar_type() == at::kBFloat16 && rows.dim() > 0 && rows.size(-1) % kEight == 0 &&
         has_own_kernels_on(rows.device());
}

bool has_own_kernels_on(at::Device device) {
  return device.is_cuda() && are_wanted() && kernels_on(device);
}

std::optional<Error> missing_kernels(at::Device device) {
  if (!device.is_cuda() || !are_wanted()) return {};
  const Result<const GpuKernels*> kernels = kernels_on(device);
  return kernels ? std::nullopt : std::optional(kernels.error());
}

const GpuKernels& own_kernels(const at::Tensor& x) {
  const Result<const GpuKernels*> kernels = kernels_on(x.device());
  WEFT_CHECK(kernels.ok(), "{}", kernels.error().message());
  return **kernels;
}

CudaStreamHandle current_stream(const at::Tensor& x) {
  return c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()).native_handle();
}

at::Tensor sum_of_rows(const at::Tensor& given) {
  const at::Tensor x = given.contiguous();
  const int64_t rows = x.size(0), width = x.size(1);
  const GpuKernels& kernels = own_kernels(x);
  const int64_t across = ceil_div(width, 32 * kEight);
  // Enough blocks to keep the memory busy, each with rows enough that its sums are few beside them.
  const int64_t parts = std::clamp<int64_t>(ceil_div(kernels.num_processors() * 6, across), 1, ceil_div(rows, 32));
  const at::Tensor partials = empty_fp32(x, {1, parts, width});
  kernels.launch("column", "sum_columns", {.blocks = across, .blocks_y = parts, .threads = 32, .threads_y = 8},
                 current_stream(x), at_first(partials), at_first(x), static_cast<int>(width), rows);
  return summed_partials(partials).view({width});
}

NormedRows norm_rows(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon) {
  const at::Tensor in = x.contiguous(), more = added.defined() ? added.contiguous() : at::Tensor();
  const int64_t width = in.size(-1), rows = in.numel() / std::max<int64_t>(1, width);
  NormedRows result{.sum = more.defined() ? at::empty_like(in) : in,
                    .y = at::empty_like(in),
                    .mean = bias.defined() ? empty_fp32(in, {rows}) : at::Tensor(),
                    .scale = empty_fp32(in, {rows})};
  if (rows == 0) return result;
  const NormLaunch norm = forward_norm(bias.defined(), width, rows);
  own_kernels(in).launch("norm", norm.kernel, norm.shape, current_stream(in), at_first(result.y), at_first(result.sum),
                         at_first(result.mean), at_first(result.scale), at_first(in), at_first(more), at_first(weight),
                         at_first(bias), static_cast<int>(width), static_cast<float>(epsilon), rows);
  return result;
}

NormGradients norm_rows_backward(const at::Tensor& dy_in, const at::Tensor& passed_in, const NormedRows& kept,
                                 const at::Tensor& weight, bool needs_weights) {
  const at::Tensor dy = dy_in.contiguous(), passed = passed_in.defined() ? passed_in.contiguous() : at::Tensor();
  const at::Tensor& x = kept.sum;
  const bool is_layer = kept.mean.defined();
  const int64_t width = x.size(-1), rows = x.numel() / std::max<int64_t>(1, width);
  NormGradients result{.dx = at::empty_like(x), .dweight = {}, .dbias = {}};
  const GpuKernels& kernels = own_kernels(x);
  const NormLaunch norm = backward_norm(is_layer, width, rows, kernels);
  const at::Tensor partials =
      needs_weights ? empty_fp32(x, {is_layer ? 2 : 1, norm.shape.blocks, width}) : at::Tensor();
  if (rows > 0) {
    kernels.launch("norm", norm.kernel, norm.shape, current_stream(x), at_first(result.dx), at_first(partials),
                   at_first(dy), at_first(passed), at_first(x), at_first(kept.mean), at_first(kept.scale),
                   at_first(weight), static_cast<int>(width), rows);
  }
  if (!needs_weights) return result;
  const at::Tensor sums = rows > 0 ? summed_partials(partials) : partials.sum(1);
  result.dweight = sums.select(0, 0);
  if (is_layer) result.dbias = sums.select(0, 1);
  return result;
}

at::Tensor swiglu_rows(const at::Tensor& given) {
  const at::Tensor gate_up = given.contiguous();
  const int64_t rows = gate_up.size(0), inner = gate_up.size(1) / 2;
  at::Tensor y = at::empty({rows, inner}, gate_up.options());
  if (rows == 0) return y;
  own_kernels(y).launch("activation", "swiglu_forward",
                        {.blocks = rows, .blocks_y = ceil_div(inner, 128 * kEight), .threads = 128}, current_stream(y),
                        at_first(y), at_first(gate_up), static_cast<int>(inner));
  return y;
}

at::Tensor swiglu_rows_backward(const at::Tensor& dy_in, const at::Tensor& given, const at::Tensor& again) {
  WEFT_CHECK(!again.defined() || again.is_contiguous(), "memory that is not contiguous");
  const at::Tensor gate_up = given.contiguous(), dy = dy_in.contiguous();
  const int64_t rows = gate_up.size(0), inner = gate_up.size(1) / 2;
  at::Tensor result = at::empty_like(gate_up);
  if (rows == 0) return result;
  own_kernels(dy).launch(
      "activation", "swiglu_backward", {.blocks = rows, .blocks_y = ceil_div(inner, 128 * kEight), .threads = 128},
      current_stream(dy), at_first(result), at_first(again), at_first(dy), at_first(gate_up), static_cast<int>(inner));
  return result;
}

at::Tensor quick_gelu_rows(const at::Tensor& given) {
  const at::Tensor x = given.contiguous();
  at::Tensor y = at::empty_like(x);
  const int64_t eights = x.numel() / kEight;
  if (eights == 0) return y;
  own_kernels(x).launch("activation", "quick_gelu_forward", {.blocks = ceil_div(eights, 256), .threads = 256},
                        current_stream(x), at_first(y), at_first(x), eights);
  return y;
}

at::Tensor quick_gelu_rows_backward(const at::Tensor& dy_in, const at::Tensor& given, const at::Tensor& again) {
  WEFT_CHECK(!again.defined() || again.is_contiguous(), "memory that is not contiguous");
  const at::Tensor x = given.contiguous(), dy = dy_in.contiguous();
  at::Tensor dx = at::empty_like(x);
  const int64_t eights = x.numel() / kEight;
  if (eights == 0) return dx;
  own_kernels(x).launch("activation", "quick_gelu_backward", {.blocks = ceil_div(eights, 256), .threads = 256},
                        current_stream(x), at_first(dx), at_first(again), at_first(dy), at_first(x), eights);
  return dx;
}

namespace {

/// How many neighbours in half a head a thread takes at a time.
int64_t part_of_head(int64_t head_dim) {
  return head_dim % (2 * kEight) == 0 ? kEight : kEight / 2;
}

/// Threads x go through half a head, y through heads.
LaunchShape head_threads(int64_t rows, int64_t heads, int64_t head_dim) {
  const int64_t across = head_dim / 2 / part_of_head(head_dim);
  return {.blocks = rows, .threads = across, .threads_y = std::clamp<int64_t>(heads, 1, 512 / across)};
}

}  // namespace

void turn_heads_(const at::Tensor& heads, const at::Tensor& cosines, const at::Tensor& sines, bool back) {
  if (heads.numel() == 0) return;
  const int64_t rows = heads.size(0), num_heads = heads.size(1), head_dim = heads.size(2);
  WEFT_CHECK(heads.stride(2) == 1 && heads.stride(1) == head_dim && head_dim % kEight == 0,
             "heads of {} with strides {} and {}", head_dim, heads.stride(1), heads.stride(2));
  const at::Tensor cos = cosines.contiguous(), sin = sines.contiguous();
  const char* kernel = part_of_head(head_dim) == kEight ? "turn_heads_8" : "turn_heads_4";
  own_kernels(heads).launch("rotary", kernel, head_threads(rows, num_heads, head_dim), current_stream(heads),
                            at_first(heads), heads.stride(0), static_cast<int>(head_dim), static_cast<int>(num_heads),
                            at_first(cos), at_first(sin), back ? -1.0F : 1.0F);
}

at::Tensor packed_gradients(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& cosines,
                            const at::Tensor& sines) {
  const int64_t rows = dq.size(0), heads = dq.size(1), keys = dk.size(1), head_dim = dq.size(2);
  WEFT_CHECK(dq.stride(2) == 1 && dk.stride(2) == 1 && dv.stride(2) == 1, "gradients whose heads are not whole");
  at::Tensor result = at::empty({rows, (heads + 2 * keys) * head_dim}, dq.options());
  if (result.numel() == 0) return result;
  const at::Tensor cos = cosines.defined() ? cosines.contiguous() : at::Tensor();
  const at::Tensor sin = sines.defined() ? sines.contiguous() : at::Tensor();
  const char* kernel = part_of_head(head_dim) == kEight ? "pack_gradients_8" : "pack_gradients_4";
  own_kernels(dq).launch("rotary", kernel, head_threads(rows, heads + 2 * keys, head_dim), current_stream(dq),
                         at_first(result), at_first(dq), dq.stride(0), dq.stride(1), at_first(dk), dk.stride(0),
                         dk.stride(1), at_first(dv), dv.stride(0), dv.stride(1), static_cast<int>(head_dim),
                         static_cast<int>(heads), static_cast<int>(keys), at_first(cos), at_first(sin));
  return result;
}

RowLosses row_losses(const at::Tensor& logits, const at::Tensor& targets) {
  const int64_t rows = logits.size(0);
  RowLosses result{.sums = empty_fp32(logits, {rows}), .chosen = empty_fp32(logits, {rows})};
  if (rows == 0) return result;
  WEFT_CHECK(logits.is_contiguous() && targets.is_contiguous(), "a loss of rows that are not contiguous");
  own_kernels(logits).launch("loss", "log_sums", {.blocks = rows, .threads = 512}, current_stream(logits),
                             at_first(result.sums), at_first(result.chosen), at_first(logits), at_first(targets),
                             logits.size(1));
  return result;
}

void turn_into_gradient_(const at::Tensor& logits, const at::Tensor& sums, const at::Tensor& targets,
                         const at::Tensor& scale) {
  const int64_t rows = logits.size(0);
  if (rows == 0) return;
  const at::Tensor one = scale.to(at::kFloat);
  own_kernels(logits).launch("loss", "loss_gradient", {.blocks = rows, .threads = 512}, current_stream(logits),
                             at_first(logits), at_first(sums), at_first(targets), at_first(one), logits.size(1));
}

}  // namespace weft
