#pragma once

#include "weft/data/conversations/survey.h"
#include "weft/spec/model.h"

namespace weft {

/// The looked-at samples in packed rows: a number for every row.
struct PackedSurvey {
  int64_t row_tokens = 0;  ///< that a row has room for
  std::vector<double> sequence_tokens;
  std::vector<double> samples;
  std::vector<double> squares;  ///< the sum of its samples' squared lengths, as attention takes time
  std::vector<double> images;
  std::vector<double> clips;

  double fill_share() const;
  /// How many sequences of equal length attention of a row takes as long for.
  double equal_sequences() const;
};

/// Packs as training does, in an order of its own. `row_tokens` is above 0 and samples are no longer.
PackedSurvey pack_survey(const DataSurvey& survey, int64_t row_tokens);

/// A workload whose samples are such rows: all of the mean length, with the mean of each kind of media in varying
/// numbers. A row with many of them has small ones, so that drawing both would give rows that cannot be.
Workload workload_of_rows(const DataSurvey& survey, const PackedSurvey& rows, const MediaGeometry& media,
                          Workload workload);

}  // namespace weft
