#include "weft/checkpoint/stored_weights.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/checkpoint/checkpoint_json.h"

namespace weft {

StoredWeights::StoredWeights(const Checkpoint& checkpoint) : checkpoint_(&checkpoint), files_(checkpoint.files.size()) {
  for (size_t file = 0; file < checkpoint.files.size(); ++file) {
    for (const StoredPart& part : checkpoint.files[file].parts) places_[part.piece.name].push_back({file, &part});
  }
}

std::vector<std::string> StoredWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, places] : places_) names.push_back(name);
  return names;
}

Error StoredWeights::refuse(std::string_view weight, std::string problem, std::string advice) const {
  return {.source = (checkpoint_->folder / kCheckpointJsonName).string(),
          .field = std::string(weight),
          .problem = std::move(problem),
          .advice = std::move(advice)};
}

Result<const StoredFile*> StoredWeights::open(size_t file) {
  if (!files_[file]) {
    WEFT_TRY(StoredFile opened, StoredFile::open(checkpoint_->folder, checkpoint_->files[file]));
    files_[file] = std::make_unique<StoredFile>(std::move(opened));
  }
  return files_[file].get();
}

std::optional<Error> StoredWeights::fill(const WeightPiece& piece, const ElementRange& elements, const AdamWState& to,
                                         int64_t rank) {
  const auto found = places_.find(piece.name);
  if (found == places_.end()) {
    return refuse(piece.name, "is a weight of the model, but the checkpoint does not have it",
                  "Is this the checkpoint of another model?" + did_you_mean(piece.name, names()));
  }
  std::vector<Place> places = found->second;
  std::stable_partition(places.begin(), places.end(),
                        [&](const Place& place) { return checkpoint_->files[place.file].rank == rank; });
  std::vector<PartBox> missing = boxes_of(piece, elements);
  for (const Place& place : places) {
    if (missing.empty()) break;
    const StoredPart& part = *place.part;
    if (part.piece.shape != piece.shape) {
      return refuse(piece.name,
                    fmt::format("has the shape [{}] in the checkpoint, but [{}] in the model",
                                fmt::join(part.piece.shape, ", "), fmt::join(piece.shape, ", ")),
                    "Is this the checkpoint of another model?");
    }
    const std::vector<BoxCopy> copies = take_common(missing, boxes_of(part.piece, part.elements));
    if (copies.empty()) continue;
    if (to.moment1.defined() && !part.is_trained) {
      return refuse(piece.name, "is trained now, but was frozen when the checkpoint was saved, so it has no moments",
                    "Freeze it, or start a new run from the checkpoint's exported weights.");
    }
    auto file = open(place.file);
    if (!file) return std::move(file).error();
    const auto copy_all = [&](const at::Tensor& tensor, const char* name) {
      if (!tensor.defined()) return;
      const at::Tensor from = (*file)->tensor(part.tensor + name);
      for (const BoxCopy& copy : copies) copy_box(copy, tensor, from);
      (*file)->done_with_tensor(part.tensor + name);
    };
    copy_all(to.master, kValueName);
    copy_all(to.moment1, kMoment1Name);
    copy_all(to.moment2, kMoment2Name);
  }
  if (missing.empty()) return std::nullopt;
  int64_t count = 0;
  for (const PartBox& box : missing) count += box.rows.size() * box.columns.size();
  return refuse(piece.name,
                fmt::format("is not complete: {} of its elements, from row {} on, are in none of the files",
                            with_commas(count), missing.front().rows.begin),
                "The checkpoint is damaged: use another one.");
}

}  // namespace weft
