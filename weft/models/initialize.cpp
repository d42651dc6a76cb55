#include "weft/models/initialize.h"

#include <algorithm>
#include <span>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include "weft/weights/fresh_elements.h"

namespace weft {
namespace {

/// What a thread draws at a time.
constexpr int64_t kDrawnElements = int64_t{32} << 10;

/// Where a piece's element lies in its weight, and how many follow it there one by one.
struct WeightPlace {
  int64_t index = 0;
  int64_t run = 0;
};

WeightPlace place_of(const WeightPiece& piece, int64_t element) {
  const int64_t row = piece.row_elements(), held = piece.held_row_elements();
  if (row == held) return {piece.first_row * row + element, piece.num_elements() - element};
  const int64_t skipped = piece.first_column * (row / piece.shape[1]);
  const int64_t column = element % held;
  return {(piece.first_row + element / held) * row + skipped + column, held - column};
}

void draw_part(const WeightPiece& piece, uint64_t key, float deviation, int64_t first, std::span<float> to) {
  for (int64_t at = 0; at < std::ssize(to);) {
    const WeightPlace place = place_of(piece, first + at);
    const int64_t count = std::min(place.run, std::ssize(to) - at);
    draw_fresh_elements(key, place.index, deviation, to.subspan(static_cast<size_t>(at), static_cast<size_t>(count)));
    at += count;
  }
}

void draw_elements(const WeightPiece& piece, uint64_t key, float deviation, int64_t first, const at::Tensor& to) {
  const bool is_direct = to.device().is_cpu() && to.scalar_type() == at::kFloat && to.is_contiguous();
  float* elements = is_direct ? to.data_ptr<float>() : nullptr;
  const int64_t size = to.numel();
  const auto draw = [&](int64_t begin, int64_t end) {
    std::vector<float> drawn(is_direct ? 0 : static_cast<size_t>(std::min(kDrawnElements, end - begin)));
    for (int64_t at = begin; at < end; at += kDrawnElements) {
      const int64_t count = std::min(kDrawnElements, end - at);
      float* here = is_direct ? elements + at : drawn.data();
      draw_part(piece, key, deviation, first + at, {here, static_cast<size_t>(count)});
      if (!is_direct)
        to.narrow(0, at, count).copy_(at::from_blob(here, {count}, at::TensorOptions().dtype(at::kFloat)));
    }
  };
  if (to.device().is_cpu())
    at::parallel_for(0, size, kDrawnElements, draw);
  else
    draw(0, size);
}

/// The elements of a piece's row `row` of its weight, if it has that row.
void clear_row(const WeightPiece& piece, int64_t row, int64_t first, const at::Tensor& to) {
  const int64_t held = piece.held_row_elements();
  const int64_t begin = std::max((row - piece.first_row) * held, first);
  const int64_t end = std::min((row - piece.first_row + 1) * held, first + to.numel());
  if (begin < end) to.narrow(0, begin - first, end - begin).zero_();
}

}  // namespace

void initialize_elements(const WeightPiece& piece, const Initialization& init, uint64_t seed, int64_t first,
                         const at::Tensor& to) {
  const at::NoGradGuard no_graph;
  if (piece.name.empty()) {
    to.zero_();
    return;
  }
  switch (init.kind) {
    case Initialization::Kind::kZeros:
      to.zero_();
      break;
    case Initialization::Kind::kConstant:
      to.fill_(init.value);
      break;
    case Initialization::Kind::kNormal:
      draw_elements(piece, fresh_weight_key(piece.name, seed), static_cast<float>(init.deviation), first, to);
      break;
  }
  if (init.zero_row >= 0) clear_row(piece, init.zero_row, first, to);
}

void initialize_weights(const std::vector<ParameterPtr>& parameters, uint64_t seed) {
  for (const ParameterPtr& parameter : parameters) {
    const at::Tensor elements = parameter->value.detach().view({-1});
    int64_t begin = 0;
    for (const WeightPiece& piece : parameter->spec.pieces) {
      const int64_t count = piece.num_elements();
      initialize_elements(piece, parameter->spec.init, seed, 0, elements.narrow(0, begin, count));
      begin += count;
    }
  }
}

}  // namespace weft
