#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/stored_file.h"
#include "weft/checkpoint/weight_route.h"

namespace weft {

/// The weights of a checkpoint by name, put together from the parts that its files keep. A file is opened when
/// something of it is first needed, and its chunks are checked when they are. The checkpoint must outlive it.
class StoredWeights {
 public:
  explicit StoredWeights(const Checkpoint& checkpoint);

  /// All parts, in the order of the files.
  const PartIndex& index() const { return index_; }

  /// The tensors of one of these parts, of which the elements have been checked, as views of its file.
  Result<AdamWState> read(size_t part, const ElementRange& elements, bool has_moments);

  /// Leaves its bytes to the file, until they are read again.
  void done_with_part(size_t part) const;

  /// Fills those of the flat tensors that are defined with these elements of a piece. Moments are zero for weights that
  /// were frozen. Names what is missing or does not fit.
  std::optional<Error> fill(const WeightPiece& piece, const ElementRange& elements, const AdamWState& to);

  /// Of all files so far.
  int64_t num_read_bytes() const;

 private:
  struct Place {
    size_t file = 0;
    const StoredPart* part = nullptr;
  };

  Result<StoredFile*> open(size_t file);

  const Checkpoint* checkpoint_;
  std::vector<Place> places_;  ///< of the index's parts
  PartIndex index_;
  std::vector<std::unique_ptr<StoredFile>> files_;  ///< those opened so far
};

}  // namespace weft
