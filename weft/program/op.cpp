#include "weft/program/op.h"

namespace weft {
namespace {

int64_t num_parameters_of(const Matmul& m) {
  return m.is_tied ? 0 : m.experts * (m.in * m.out + m.bias_elements);
}
int64_t num_parameters_of(const Attention&) {
  return 0;
}
int64_t num_parameters_of(const Norm& n) {
  return n.has_bias ? 2 * n.width : n.width;
}
int64_t num_parameters_of(const Pointwise& p) {
  return p.scales;
}
int64_t num_parameters_of(const Lookup& l) {
  return l.entries * l.width;
}
int64_t num_parameters_of(const CrossEntropy&) {
  return 0;
}

}  // namespace

bool has_weights(const Op& op) {
  return num_parameters(op) > 0;
}

int64_t num_parameters(const Op& op) {
  return std::visit([](const auto& shape) { return num_parameters_of(shape); }, op.shape);
}

}  // namespace weft
