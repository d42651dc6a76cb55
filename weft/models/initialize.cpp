#include "weft/models/initialize.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace weft {
namespace {

/// FNV-1a, begun with the seed.
uint64_t seed_of(const std::string& name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325u ^ (seed * 0x9e3779b97f4a7c15u);
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

at::Tensor fresh_weight(const WeightPiece& piece, const Initialization& init, uint64_t seed) {
  at::Tensor weight = at::empty(piece.shape, at::TensorOptions().dtype(at::kFloat));
  switch (init.kind) {
    case Initialization::Kind::kZeros:
      weight.zero_();
      break;
    case Initialization::Kind::kOnes:
      weight.fill_(1);
      break;
    case Initialization::Kind::kNormal:
      weight.normal_(0, init.deviation, at::detail::createCPUGenerator(seed_of(piece.name, seed)));
      break;
  }
  if (init.zero_row >= 0) weight.select(0, init.zero_row).zero_();
  return weight;
}

}  // namespace

void initialize_weights(const std::vector<ParameterPtr>& parameters, uint64_t seed) {
  const at::NoGradGuard no_graph;
  for (const ParameterPtr& parameter : parameters) {
    const at::Tensor elements = parameter->value.detach().view({-1});
    int64_t begin = 0;
    for (const WeightPiece& piece : parameter->spec.pieces) {
      const at::Tensor part = elements.narrow(0, begin, piece.num_elements());
      begin += piece.num_elements();
      if (piece.name.empty()) {
        part.zero_();
      } else {
        part.copy_(held_part(piece, fresh_weight(piece, parameter->spec.init, seed)).reshape({-1}));
      }
    }
  }
}

}  // namespace weft
