#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/data/conversations/data_settings.h"
#include "weft/data/conversations/record_list.h"
#include "weft/data/conversations/sample_order.h"

namespace weft {

/// Samples that could not be used, and why.
class SkipReport {
 public:
  void count_used() { ++used_; }
  void add(const Error& error);
  int64_t num_broken() const { return broken_; }
  int64_t num_samples() const { return used_ + broken_; }
  double share() const {
    return num_samples() > 0 ? static_cast<double>(broken_) / static_cast<double>(num_samples()) : 0;
  }
  /// Messages of the first few, and how often each kind of problem was met.
  const std::vector<std::string>& examples() const { return examples_; }
  const std::map<std::string, int64_t>& kinds() const { return kinds_; }
  /// An error once more than this share of at least twenty samples is broken.
  std::optional<Error> find_too_many(double max_share, const std::string& source) const;
  Json to_json() const;

 private:
  int64_t used_ = 0;
  int64_t broken_ = 0;
  std::vector<std::string> examples_;
  std::map<std::string, int64_t> kinds_;
};

/// The opened files of data settings.
class ConversationSets {
 public:
  /// Opens and indexes every file. The error is about the set: a file that is not there, no records.
  static Result<ConversationSets> open(const DataSettings& settings);

  size_t num_sets() const { return files_.size(); }
  int64_t num_records(size_t set) const;
  /// Whether sets are mixed by weights.
  bool is_weighted() const { return !files_.empty() && files_.front().data.weight > 0; }
  /// The order of samples, with the settings' weights and held-out share.
  SampleOrder order(uint64_t seed) const;
  /// The conversation of a record; the error is about this sample alone.
  Result<Conversation> read(const SampleOrder::Place& place) const;
  /// "FILE, record 3".
  std::string name_of_sample(const SampleOrder::Place& place) const;

 private:
  struct OpenFile {
    DataFile data;
    ColumnMap columns;
    RecordList records;
    std::vector<MediaKind> placed;  ///< media whose marks in texts are places for files, in every record
  };
  std::vector<OpenFile> files_;
  double held_out_share_ = 0;
};

}  // namespace weft
