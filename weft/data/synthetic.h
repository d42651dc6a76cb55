#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/result.h"
#include "weft/data/sample.h"
#include "weft/data/sample_form.h"
#include "weft/data/sample_source.h"

namespace weft {

/// Samples made from a workload's distributions. Sample i is the same on every machine and on however many ranks. Its
/// text follows a rule that a model can learn, so that a loss which does not fall shows a mistake.
class SyntheticSamples : public SampleSource {
 public:
  /// Model and workload must outlive it. The error says where they do not fit.
  static Result<SyntheticSamples> create(const Model& model, const Workload& workload, const SampleForm& form,
                                         uint64_t seed);

  /// With its media's content, or as much of it as is wanted.
  Sample make(int64_t index, const SampleContent& wanted = {}) const;
  /// Only what sample `index` asks of each module.
  SampleLoad load(int64_t index) const;
  /// Only how many rows encoders make of its images, and of its clips.
  SampleRows media_rows(int64_t index) const;

  Result<SampleLengths> lengths_of(int64_t index, std::vector<SkippedSample>& skipped) const override;
  Result<Sample> read(int64_t index, const SampleContent& wanted, std::vector<SkippedSample>& skipped) const override;
  void leave_out(const std::vector<SkippedSample>& skipped) override;
  int64_t num_different() const override { return 0; }
  bool is_synthetic() const override { return true; }

 private:
  ImageGrid grid_of(const Segment& image) const;
  /// An image's rows; a clip's, 0 where it is too short to be heard.
  int64_t image_rows(const ImageGrid& grid) const;
  int64_t clip_rows(const Segment& clip) const;
  SyntheticSamples(const Model& model, const Workload& workload, const SampleForm& form, uint64_t seed);

  const Model* model_;
  const Workload* workload_;
  SampleForm form_;
  uint64_t seed_;
  std::vector<int64_t> words_;  ///< the tokens that text is made of
};

/// Rows and columns of an image with so many patches: as square as whole merge units allow.
ImageGrid grid_of_patches(int64_t patches, int64_t merge_size);

}  // namespace weft
