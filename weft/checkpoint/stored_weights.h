#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/stored_file.h"

namespace weft {

/// The weights of a checkpoint by name, put together from the parts that its files keep. A file is opened, and all of
/// its bytes checked, when something of it is first needed. The checkpoint must outlive it.
class StoredWeights {
 public:
  explicit StoredWeights(const Checkpoint& checkpoint);

  std::vector<std::string> names() const;

  /// Fills flat tensors with these elements of a piece: the weight's and, where `to` has them, the moments'. Of
  /// several copies that of the rank's file is taken, if it has one. Names what is missing or does not fit.
  std::optional<Error> fill(const WeightPiece& piece, const ElementRange& elements, const AdamWState& to, int64_t rank);

 private:
  struct Place {
    size_t file = 0;
    const StoredPart* part = nullptr;
  };

  Result<const StoredFile*> open(size_t file);
  Error refuse(std::string_view weight, std::string problem, std::string advice) const;

  const Checkpoint* checkpoint_;
  std::map<std::string, std::vector<Place>, std::less<>> places_;
  std::vector<std::unique_ptr<StoredFile>> files_;  ///< those opened so far
};

}  // namespace weft
