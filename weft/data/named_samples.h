#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "weft/data/conversations/sample_order.h"
#include "weft/data/sample_source.h"
#include "weft/program/program_numbers.h"
#include "weft/weights/weight_entry.h"

namespace weft {

/// Where an input of a program comes from.
struct NamedFile {
  std::string input;
  std::filesystem::path path;  ///< a safetensors file, or a folder of them, which follow each other by their names
  std::string tensor;          ///< in each of them; its first dim is samples
};

/// Samples of a user's own program, from safetensors files by name: sample n of all of them together, in an order that
/// a seed shuffles.
class NamedSamples : public SampleSource {
 public:
  struct Settings {
    std::vector<NamedFile> files;
    double held_out_share = 0;  ///< of the samples, the last ones, that training does not see
    std::string source;         ///< of the settings, for messages
  };
  /// Fails, by name, for inputs that are missing or unknown, tensors that lack a dim or have other lengths or types,
  /// and files that differ in their samples.
  static Result<std::shared_ptr<NamedSamples>> open(const ProgramNumbers& numbers, const Settings& settings,
                                                    uint64_t seed);

  /// The samples that were held out; null where there are none.
  std::shared_ptr<NamedSamples> held_out() const;

  Result<SampleLengths> lengths_of(int64_t index, std::vector<SkippedSample>& skipped) const override;
  Result<Sample> read(int64_t index, const SampleContent& wanted, std::vector<SkippedSample>& skipped) const override;
  void leave_out(const std::vector<SkippedSample>& skipped) override;
  int64_t num_different() const override;
  bool is_synthetic() const override { return false; }

 private:
  /// A part of an input, in one file.
  struct Part {
    std::string file;
    WeightEntry tensor;
    int64_t first_sample = 0;
    int64_t num_samples = 0;
  };
  NamedSamples(const ProgramNumbers& numbers, SampleOrder order) : numbers_(numbers), order_(std::move(order)) {}

  Result<std::vector<double>> numbers_of(size_t input, int64_t record) const;

  ProgramNumbers numbers_;
  SampleOrder order_;
  bool gives_held_out_ = false;
  std::vector<std::vector<Part>> parts_;  ///< by input
};

/// Samples that are drawn: numbers of entries evenly, others with mean 0 and variance 1.
class DrawnNamedSamples : public SampleSource {
 public:
  DrawnNamedSamples(const ProgramNumbers& numbers, uint64_t seed) : numbers_(numbers), seed_(seed) {}

  Result<SampleLengths> lengths_of(int64_t index, std::vector<SkippedSample>& skipped) const override;
  Result<Sample> read(int64_t index, const SampleContent& wanted, std::vector<SkippedSample>& skipped) const override;
  void leave_out(const std::vector<SkippedSample>& /*skipped*/) override {}
  int64_t num_different() const override { return 0; }
  bool is_synthetic() const override { return true; }

 private:
  ProgramNumbers numbers_;
  uint64_t seed_;
};

}  // namespace weft
