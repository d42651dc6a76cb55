#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/data/sample.h"
#include "weft/mesh/box.h"

namespace weft {

/// Rows that encoders make of a sample's media.
struct SampleRows {
  int64_t image = 0;
  int64_t video = 0;
  int64_t audio = 0;

  bool operator==(const SampleRows&) const = default;
};

/// What is known of a sample before its media are decoded.
struct SampleLengths {
  SampleLoad load;
  SampleRows rows;
};

/// A record that was to be a sample and cannot be.
struct SkippedSample {
  int64_t sample = 0;
  /// Which of the records that were to be it: of one record 0 is its own, and others were to stand in for that. Of
  /// several records, its own come first.
  int64_t attempt = 0;
  std::string source;  ///< the record
  std::string problem;
  bool is_new = false;  ///< found while its media were decoded: ranks that do not decode them do not know of it
};

/// Parts of a sample's media: of each image and video a range of its patches, of each clip one of its mel frames.
struct MediaRanges {
  std::vector<Range> images;
  std::vector<Range> videos;
  std::vector<Range> clips;
};

/// Which media's content a reader of a sample needs. Of the others sizes are enough.
struct SampleContent {
  bool pixels = true;
  bool features = true;
  /// Only these parts, one after the other: other rows are not prepared, media without any are not decoded.
  std::optional<MediaRanges> ranges = std::nullopt;
};

/// Samples by number: drawn from a workload, or read from files. Sample n is the same on every rank, in every order
/// and with any number of threads, which may all ask at once. A record that cannot be used is replaced by another one,
/// the same on all ranks, and appended to `skipped`.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// Without decoding any media.
  virtual Result<SampleLengths> lengths_of(int64_t index, std::vector<SkippedSample>& skipped) const = 0;
  /// Where media that are wanted cannot be decoded, the last of `skipped` is new and the sample is empty: all ranks
  /// must leave the record out before any of them takes another one.
  virtual Result<Sample> read(int64_t index, const SampleContent& wanted,
                              std::vector<SkippedSample>& skipped) const = 0;
  /// From now on their records are known not to be usable. Ranks of a process may share a source, and each says so.
  virtual void leave_out(const std::vector<SkippedSample>& skipped) = 0;
  /// Samples after which they repeat; 0: they do not.
  virtual int64_t num_different() const = 0;
  /// Samples after which those that repeat were seen so many times.
  virtual int64_t samples_of(double epochs) const {
    return static_cast<int64_t>(std::ceil(epochs * static_cast<double>(num_different())));
  }
  /// Whether they are drawn and not read.
  virtual bool is_synthetic() const = 0;
};

}  // namespace weft
