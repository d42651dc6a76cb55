#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/meaning/batch_assignment.h"
#include "weft/mesh/box.h"

namespace weft {

/// Rows that encoders make of one sample's media.
struct MediaRowCounts {
  int64_t image = 0;
  int64_t video = 0;
  int64_t audio = 0;

  int64_t of(ModuleKind kind) const { return kind == ModuleKind::kVision ? image + video : audio; }
};

/// Numbers for the rows that one encoder makes of a batch, the same on all ranks: macro batch after macro batch, in
/// each the data-parallel ranks in turn, and a rank's as it packs its samples: images of all, then videos of all.
class RowNumbers {
 public:
  RowNumbers() = default;
  RowNumbers(ModuleKind encoder, const BatchAssignment::Shares& shares, std::span<const MediaRowCounts> samples);

  int64_t num_macro_batches() const { return static_cast<int64_t>(macro_begins_.size()) - 1; }
  /// The rows of a macro batch, and those that a data-parallel rank makes of it.
  Range rows(int64_t macro) const;
  Range rows(int64_t macro, int64_t data_parallel_rank) const;
  int64_t macro_of(int64_t row) const;
  /// The data-parallel rank that makes a row of a macro batch.
  int64_t maker_of(int64_t macro, int64_t row) const;
  /// Of samples that are packed elsewhere, in the same way.
  std::vector<int64_t> rows_of(std::span<const int64_t> samples) const;
  /// The same as runs: a sample's images, or its videos. Runs that meet are not joined, and none is empty.
  struct Run {
    Range rows;
    int64_t macro = 0;
    int64_t maker = 0;  ///< data-parallel rank of the encoder
  };
  void add_runs_of(std::span<const int64_t> samples, std::vector<Run>& runs) const;

 private:
  struct SampleRows {
    Range image;
    Range video;
    int64_t macro = 0;
    int64_t maker = 0;
  };

  std::vector<SampleRows> samples_;              ///< numbers; those of clips are under image
  std::vector<int64_t> macro_begins_;            ///< and the number of all rows
  std::vector<std::vector<Range>> rank_ranges_;  ///< [macro batch][data-parallel rank]
};

}  // namespace weft
