#include "weft/checkpoint/initial_weights.h"

#include <ATen/core/grad_mode.h>

#include "weft/base/check.h"
#include "weft/checkpoint/agreement.h"
#include "weft/checkpoint/stored_part.h"
#include "weft/models/adapter_files.h"
#include "weft/models/initialize.h"
#include "weft/models/load_weights.h"
#include "weft/models/tensor_type.h"
#include "weft/models/weight_copies.h"
#include "weft/optim/owned_pieces.h"
#include "weft/program/adapter_ops.h"
#include "weft/weights/mapped_file.h"

namespace weft {
namespace {

/// What is copied before the files' memory is given back.
constexpr int64_t kStretchBytes = int64_t{64} << 20;

/// Stored bytes from a copy's first element to its last.
std::span<const std::byte> source_of(const WeightCopy& copy) {
  return {copy.from, static_cast<size_t>(copy.stored_elements()) * c10::elementSize(copy.type)};
}

/// Makes copies in their order, some at a time. The index of the first with an element that is not finite, if any.
std::optional<size_t> copy_in_stretches(const std::vector<WeightCopy>& copies) {
  for (size_t begin = 0; begin < copies.size();) {
    std::vector<WeightCopy> here;
    for (int64_t bytes = 0; begin + here.size() < copies.size() && bytes < kStretchBytes;) {
      here.push_back(copies[begin + here.size()]);
      bytes += std::ssize(source_of(here.back()));
    }
    if (const auto bad = copy_weights(here)) return begin + *bad;
    for (const WeightCopy& copy : here) done_with(source_of(copy));
    begin += here.size();
  }
  return std::nullopt;
}

/// What there is to copy of a weight, each a stretch of the owned elements.
void add_copies(const OwnedPiece& owned, const FoundWeight& entry, std::vector<WeightCopy>& copies) {
  const at::ScalarType type = *tensor_type(entry.info.type);
  for (const PartBox& box : boxes_of(*owned.piece, owned.elements)) {
    const StoredPlace file = stored_place(*owned.piece, entry, box.rows.begin, box.columns.begin);
    copies.push_back({.to = owned.state.master.narrow(0, box.first, box.rows.size() * box.columns.size()),
                      .from = entry.bytes.data() + file.first * static_cast<int64_t>(c10::elementSize(type)),
                      .type = type,
                      .row_elements = box.columns.size(),
                      .row_stride = file.row_stride,
                      .column_stride = file.column_stride});
  }
}

/// Weights of adapters that this rank owns: of a folder, or drawn.
std::optional<Error> fill_adapter(const OwnedPiece& owned, const std::optional<AdapterFolder>& folder, uint64_t seed) {
  if (!folder) {
    initialize_elements(*owned.piece, owned.parameter->spec.init, seed, owned.elements.begin, owned.state.master);
    return std::nullopt;
  }
  const auto whole = folder->value(owned.piece->name);
  if (!whole) return whole.error();
  const at::Tensor held = held_part(*owned.piece, *whole).contiguous().view({-1});
  owned.state.master.copy_(held.narrow(0, owned.elements.begin, owned.elements.size()));
  return std::nullopt;
}

Result<std::optional<AdapterFolder>> open_adapters(const std::filesystem::path& folder, const Model& model) {
  if (folder.empty()) return std::optional<AdapterFolder>();
  WEFT_TRY(AdapterFolder opened, AdapterFolder::open(folder, model));
  if (auto error = opened.check(model)) return *std::move(error);
  return std::optional(std::move(opened));
}

std::optional<Error> fill_owned(const WeightFolder& folder, const Model& model,
                                std::span<StageOptimizer* const> optimizers, const InitialAdapters& initial) {
  auto list = list_weights(model);
  if (!list) return list.error();
  std::erase_if(list->weights, [](const NamedShape& weight) { return is_adapter_weight(weight.name); });
  const auto adapters = open_adapters(initial.folder, model);
  if (!adapters) return adapters.error();
  const auto entries = find_weights(folder, *list);
  if (!entries) return entries.error();
  std::vector<WeightCopy> copies;
  std::vector<std::string> names;
  for (const StageOptimizer* optimizer : optimizers) {
    for (const OwnedPiece& owned : owned_pieces(*optimizer)) {
      for (const at::Tensor* moment : {&owned.state.moment1, &owned.state.moment2})
        if (moment->defined()) moment->zero_();
      if (owned.piece->name.empty()) {
        owned.state.master.zero_();
        continue;
      }
      if (is_adapter_weight(owned.piece->name)) {
        if (auto error = fill_adapter(owned, *adapters, initial.seed)) return error;
        continue;
      }
      const auto found = entries->find(owned.piece->name);
      WEFT_CHECK(found != entries->end(), "{} is no weight of the model", owned.piece->name);
      add_copies(owned, found->second, copies);
      names.resize(copies.size(), owned.piece->name);
    }
  }
  if (const auto bad = copy_in_stretches(copies)) {
    return Error{.source = folder.path().string(),
                 .field = names[*bad],
                 .problem = "holds a value that is not a finite number",
                 .advice = "The file is damaged, or the training that wrote it diverged."};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> load_initial_weights(const WeightFolder& folder, const Model& model, Group& everyone,
                                          std::span<StageOptimizer* const> optimizers,
                                          const InitialAdapters& adapters) {
  const at::NoGradGuard no_graph;
  const UnlimitedWaits patience(everyone);
  if (auto error = first_error(everyone, fill_owned(folder, model, optimizers, adapters))) return error;
  for (StageOptimizer* optimizer : optimizers) optimizer->restore(0);
  return std::nullopt;
}

std::optional<Error> load_initial_adapters(const std::filesystem::path& folder, const Model& model, Group& everyone,
                                           std::span<StageOptimizer* const> optimizers) {
  const at::NoGradGuard no_graph;
  const UnlimitedWaits patience(everyone);
  const auto fill = [&]() -> std::optional<Error> {
    const auto adapters = open_adapters(folder, model);
    if (!adapters) return adapters.error();
    for (const StageOptimizer* optimizer : optimizers) {
      for (const OwnedPiece& owned : owned_pieces(*optimizer)) {
        if (!is_adapter_weight(owned.piece->name)) continue;
        if (auto error = fill_adapter(owned, *adapters, 0)) return error;
      }
    }
    return std::nullopt;
  };
  if (auto error = first_error(everyone, fill())) return error;
  for (StageOptimizer* optimizer : optimizers) optimizer->restore(0);
  return std::nullopt;
}

}  // namespace weft
