#include "weft/checkpoint/stored_weights.h"

#include <algorithm>

#include "weft/checkpoint/checkpoint_json.h"

namespace weft {
namespace {

std::vector<RoutedPart> parts_of(const Checkpoint& checkpoint) {
  std::vector<RoutedPart> parts;
  for (const CheckpointFile& file : checkpoint.files) {
    for (const StoredPart& part : file.parts) {
      parts.push_back({.rank = file.rank,
                       .piece = part.piece,
                       .elements = part.elements,
                       .is_trained = part.is_trained,
                       .updates = part.updates >= 0 ? part.updates : checkpoint.updates,
                       .kin = {}});
    }
  }
  return parts;
}

}  // namespace

StoredWeights::StoredWeights(const Checkpoint& checkpoint)
    : checkpoint_(&checkpoint),
      index_(parts_of(checkpoint), (checkpoint.folder / kCheckpointJsonName).string()),
      files_(checkpoint.files.size()) {
  for (size_t file = 0; file < checkpoint.files.size(); ++file) {
    for (const StoredPart& part : checkpoint.files[file].parts) places_.push_back({file, &part});
  }
}

Result<StoredFile*> StoredWeights::open(size_t file) {
  if (!files_[file]) {
    WEFT_TRY(StoredFile opened, StoredFile::open(checkpoint_->folder, checkpoint_->files[file]));
    files_[file] = std::make_unique<StoredFile>(std::move(opened));
  }
  return files_[file].get();
}

Result<AdamWState> StoredWeights::read(size_t part, const ElementRange& elements, bool has_moments) {
  const Place& place = places_[part];
  WEFT_TRY(StoredFile * file, open(place.file));
  AdamWState state;
  WEFT_TRY(state.master, file->tensor(place.part->tensor + kValueName, elements));
  if (!has_moments) return state;
  WEFT_TRY(state.moment1, file->tensor(place.part->tensor + kMoment1Name, elements));
  WEFT_TRY(state.moment2, file->tensor(place.part->tensor + kMoment2Name, elements));
  return state;
}

std::optional<Error> StoredWeights::fill(const WeightPiece& piece, const ElementRange& elements, const AdamWState& to) {
  const bool is_trained = to.moment1.defined() || to.moment2.defined();
  const auto copies = index_.take({.piece = piece, .elements = elements, .is_trained = is_trained, .kin = {}});
  if (!copies) return copies.error();
  for (const RoutedCopy& copy : *copies) {
    const bool has_moments = is_trained && index_.parts()[copy.held].is_trained;
    const BoxCopy& box = copy.box;
    for (const at::Tensor* moment : {&to.moment1, &to.moment2})
      if (moment->defined() && !has_moments) zero_box(box, *moment);
    const auto state =
        read(copy.held, {box.from, box.from + (box.num_rows - 1) * box.from_stride + box.num_columns}, has_moments);
    if (!state) return state.error();
    if (to.master.defined()) copy_box(box, to.master, state->master);
    if (to.moment1.defined() && has_moments) copy_box(box, to.moment1, state->moment1);
    if (to.moment2.defined() && has_moments) copy_box(box, to.moment2, state->moment2);
    done_with_part(copy.held);
  }
  return std::nullopt;
}

void StoredWeights::done_with_part(size_t part) const {
  const Place& place = places_[part];
  if (!files_[place.file]) return;
  for (const char* name : {kValueName, kMoment1Name, kMoment2Name}) {
    if (name == kValueName || place.part->is_trained) files_[place.file]->done_with_tensor(place.part->tensor + name);
  }
}

int64_t StoredWeights::num_read_bytes() const {
  int64_t bytes = 0;
  for (const auto& file : files_) bytes += file ? file->num_read_bytes() : 0;
  return bytes;
}

}  // namespace weft
