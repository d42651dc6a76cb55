#pragma once

#include <functional>
#include <memory>

#include "weft/data/conversations/packed_order.h"
#include "weft/loader/conversation_source.h"

namespace weft {

/// Calls work for 0 to count - 1, several at once.
using ForEach = std::function<void(int64_t count, const std::function<void(int64_t)>& work)>;

/// Tokens of all records of the data, from their texts and the headers of their media.
RecordLengths record_lengths(const ConversationData& data, const ForEach& for_each);

/// Conversations of which several are one sample, as many as fit into `cutoff_tokens` of the data's settings. They do
/// not see each other. A record that cannot be used leaves its place empty; a sample of which nothing can be used is
/// replaced by the next one.
class PackedSource : public SampleSource {
 public:
  /// The error says that no record can be used. `source` is what messages name.
  static Result<std::shared_ptr<PackedSource>> create(std::shared_ptr<const ConversationData> data,
                                                      std::shared_ptr<const RecordLengths> lengths, uint64_t seed,
                                                      bool is_held_out, const std::string& source);

  Result<SampleLengths> lengths_of(int64_t index, std::vector<SkippedSample>& skipped) const override;
  Result<Sample> read(int64_t index, const SampleContent& wanted, std::vector<SkippedSample>& skipped) const override;
  void leave_out(const std::vector<SkippedSample>& skipped) override;
  int64_t num_different() const override { return order_.epoch_rows(); }
  int64_t samples_of(double epochs) const override { return order_.rows_of(epochs); }
  bool is_synthetic() const override { return false; }

  const PackedOrder& order() const { return order_; }
  int64_t capacity() const { return data_->encode().cutoff_tokens; }

 private:
  PackedSource(std::shared_ptr<const ConversationData> data, std::shared_ptr<const RecordLengths> lengths,
               uint64_t seed, bool is_held_out);

  /// The records that can be used, with their numbers among those that were to be the sample.
  struct Found {
    std::vector<ConversationData::Draft> drafts;
    std::vector<int64_t> attempts;
    bool stands_in = false;
  };
  PackedOrder::Row row(int64_t index) const { return order_.row(is_held_out_ ? index % order_.epoch_rows() : index); }
  Result<Found> find(int64_t index, std::vector<SkippedSample>& skipped) const;
  SampleOrder::Place place_of(int64_t index, int64_t attempt) const;
  std::string name_of(int64_t index, int64_t attempt) const {
    return data_->sets().name_of_sample(place_of(index, attempt));
  }

  std::shared_ptr<const ConversationData> data_;
  bool is_held_out_;
  PackedOrder order_;
  LeftOutRecords left_out_;
};

}  // namespace weft
