#include "weft/models/weight_list.h"

#include <unordered_set>

#include "weft/models/network.h"

namespace weft {

Result<WeightList> list_weights(const Model& model) {
  WholeParameters maker(at::TensorOptions().device(at::kMeta));  // which have no memory
  if (model.numbers.program || has_layer_programs(model)) {
    for (const Module& module : model.modules) make_network(module, model.numbers, BlockRange{}, maker);
    return list_weights(maker.all(), model.numbers.files);
  }
  WEFT_TRY(const Network network, Network::create(model, maker));
  return list_weights(maker.all(), network.numbers().files);
}

WeightList list_weights(const std::vector<ParameterPtr>& parameters, const WeightFiles& files) {
  WeightList list{.weights = {}, .files = files};
  std::unordered_set<std::string> known;
  for (const ParameterPtr& parameter : parameters) {
    for (const WeightPiece& piece : parameter->spec.pieces) {
      if (!piece.name.empty() && known.insert(piece.name).second)
        list.weights.push_back({piece.name, piece.shape, piece.is_transposed});
    }
  }
  return list;
}

}  // namespace weft
