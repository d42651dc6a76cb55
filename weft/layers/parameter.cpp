#include "weft/layers/parameter.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "weft/base/check.h"
#include "weft/base/text.h"
#include "weft/tensor/flat_memory.h"

namespace weft {

at::Tensor held_part(const WeightPiece& piece, const at::Tensor& whole) {
  const at::Tensor rows = whole.narrow(0, piece.first_row, piece.num_rows);
  return piece.num_columns < 0 ? rows : rows.narrow(1, piece.first_column, piece.num_columns);
}

WeightPiece whole_weight(std::string name, std::vector<int64_t> shape, WeightCut cut) {
  const int64_t rows = shape.front();
  return {.name = std::move(name), .shape = std::move(shape), .num_rows = rows, .cut = cut};
}

WeightPiece zero_rows(int64_t count) {
  return {.shape = {count}, .num_rows = count};
}

int64_t WeightPiece::row_elements() const {
  int64_t elements = 1;
  for (size_t dim = 1; dim < shape.size(); ++dim) elements *= shape[dim];
  return elements;
}

int64_t WeightPiece::held_row_elements() const {
  if (num_columns < 0 || shape.size() < 2) return row_elements();
  // Without a division: a row may have no columns.
  int64_t elements = num_columns;
  for (size_t dim = 2; dim < shape.size(); ++dim) elements *= shape[dim];
  return elements;
}

std::string Parameter::name() const {
  std::string text;
  for (const WeightPiece& piece : spec.pieces) {
    if (piece.name.empty() || text.ends_with(piece.name)) continue;
    if (!text.empty()) text += " + ";
    text += piece.name;
    if (text.size() > 200) return text + " …";
  }
  return text;
}

void Parameter::add_gradient(const at::Tensor& part) {
  const at::NoGradGuard no_graph;
  if (gradient.defined()) {
    gradient.add_(part.view(gradient.sizes()));
  } else {
    gradient = part.view(value.sizes()).to(gradient_type);
  }
  clear_unnamed_rows();
}

void Parameter::clear_unnamed_rows() {
  int64_t row = 0;
  for (const WeightPiece& piece : spec.pieces) {
    if (piece.name.empty()) gradient.narrow(0, row, piece.num_rows).zero_();
    row += piece.num_rows;
  }
}

void Parameter::add_product(const at::Tensor& left, const at::Tensor& right) {
  const at::NoGradGuard no_graph;
  const bool is_there = gradient.defined() && gradient.dim() == 2;
  if (is_there && left.scalar_type() == gradient_type) {
    gradient.addmm_(left, right);
    clear_unnamed_rows();
  } else if (is_there && gradient.is_cuda() && gradient_type == at::kFloat && left.scalar_type() == at::kBFloat16) {
    // The product is added before anything rounds it.
    at::addmm_out(gradient, gradient, left, right, at::kFloat, 1, 1);
    clear_unnamed_rows();
  } else {
    add_gradient(at::mm(left, right));
  }
}

ParameterPtr WholeParameters::make(ParameterSpec spec) {
  int64_t elements = 1;
  for (const int64_t size : spec.shape) elements *= size;
  int64_t in_pieces = 0;
  for (const WeightPiece& piece : spec.pieces) in_pieces += piece.num_elements();
  WEFT_CHECK(elements == in_pieces, "a parameter of {} elements is made of pieces with {}", elements, in_pieces);

  auto parameter = c10::make_intrusive<Parameter>();
  parameter->value = at::empty(spec.shape, options_).set_requires_grad(true);
  // Nothing has touched it, so on a CPU it was never more than addresses.
  if (memory_ == ValueMemory::kLater) free_memory(parameter->value);
  parameter->gradient_type = parameter->value.scalar_type();
  parameter->spec = std::move(spec);
  all_.push_back(parameter);
  return parameter;
}

}  // namespace weft
