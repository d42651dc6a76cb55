#include "weft/loader/packed_source.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/data/join_samples.h"

namespace weft {
namespace {

/// Rows of which nothing can be used, one after the other, are no accident.
constexpr int64_t kMostRows = 100;
/// Records that a thread looks at in turn.
constexpr int64_t kRecordsAtOnce = 32;

PackedOrder::Samples samples_of_sets(const ConversationData& data, uint64_t seed, bool is_held_out) {
  const SampleOrder order = data.sets().order(seed);
  if (!is_held_out) return {.epoch = order.epoch_samples(), .record_of = [order](int64_t i) { return order.at(i); }};
  const int64_t count = order.num_held_out();
  return {.epoch = count, .record_of = [order, count](int64_t i) { return order.held_out(i % count); }};
}

}  // namespace

RecordLengths record_lengths(const ConversationData& data, const ForEach& for_each) {
  RecordLengths lengths;
  for (size_t set = 0; set < data.sets().num_sets(); ++set) {
    std::vector<int32_t>& own = lengths.emplace_back(static_cast<size_t>(data.sets().num_records(set)));
    for_each((std::ssize(own) + kRecordsAtOnce - 1) / kRecordsAtOnce, [&](int64_t part) {
      const int64_t end = std::min(std::ssize(own), (part + 1) * kRecordsAtOnce);
      for (int64_t record = part * kRecordsAtOnce; record < end; ++record) {
        const auto draft = data.read({.set = set, .record = record});
        if (draft) own[static_cast<size_t>(record)] = static_cast<int32_t>(draft->sample.ids.size());
      }
    });
  }
  return lengths;
}

PackedSource::PackedSource(std::shared_ptr<const ConversationData> data, std::shared_ptr<const RecordLengths> lengths,
                           uint64_t seed, bool is_held_out)
    : data_(std::move(data)),
      is_held_out_(is_held_out),
      order_(samples_of_sets(*data_, seed, is_held_out), std::move(lengths), data_->encode().cutoff_tokens) {}

Result<std::shared_ptr<PackedSource>> PackedSource::create(std::shared_ptr<const ConversationData> data,
                                                           std::shared_ptr<const RecordLengths> lengths, uint64_t seed,
                                                           bool is_held_out, const std::string& source) {
  WEFT_CHECK(data->encode().cutoff_tokens > 0, "nothing says how long rows are");
  std::shared_ptr<PackedSource> packed(new PackedSource(std::move(data), std::move(lengths), seed, is_held_out));
  if (packed->num_different() > 0) return packed;
  const SampleOrder::Place first = samples_of_sets(*packed->data_, seed, is_held_out).record_of(0);
  const auto draft = packed->data_->read(first);
  return Error{.source = source,
               .problem = fmt::format("has no {}record that can be used{}", is_held_out ? "held-out " : "",
                                      draft ? "" : "; the first: " + draft.error().message()),
               .advice = "weft describe --data says what is wrong with its records."};
}

SampleOrder::Place PackedSource::place_of(int64_t index, int64_t attempt) const {
  for (;; ++index) {
    const PackedOrder::Row own = row(index);
    if (attempt < std::ssize(own.records)) return own.records[static_cast<size_t>(attempt)];
    attempt -= std::ssize(own.records);
    if (attempt < std::ssize(own.broken)) return own.broken[static_cast<size_t>(attempt)];
    attempt -= std::ssize(own.broken);
  }
}

Result<PackedSource::Found> PackedSource::find(int64_t index, std::vector<SkippedSample>& skipped) const {
  Found found;
  int64_t attempt = 0;
  std::string last;
  for (int64_t next = index; next < index + kMostRows; ++next) {
    const PackedOrder::Row own = row(next);
    const auto skip = [&](std::string problem) {
      last = problem;
      if (found.stands_in) return;  // told when the turn of its own row comes
      skipped.push_back(
          {.sample = index, .attempt = attempt, .source = name_of(index, attempt), .problem = std::move(problem)});
    };
    for (const SampleOrder::Place& place : own.records) {
      if (auto problem = left_out_.find(place)) {
        skip(*std::move(problem));
      } else if (auto draft = data_->read(place); !draft) {
        skip(draft.error().message());
      } else {
        found.drafts.push_back(*std::move(draft));
        found.attempts.push_back(attempt);
      }
      ++attempt;
    }
    for (const SampleOrder::Place& place : own.broken) {
      if (const auto draft = data_->read(place); !draft) skip(draft.error().message());
      ++attempt;
    }
    if (!found.drafts.empty()) return found;
    found.stands_in = true;
  }
  return Error{
      .source = name_of(index, 0),
      .problem = fmt::format("cannot be used, and neither can the rows that were to stand in for its: {}", last),
      .advice = "Mend the data."};
}

Result<SampleLengths> PackedSource::lengths_of(int64_t index, std::vector<SkippedSample>& skipped) const {
  WEFT_TRY(const Found found, find(index, skipped));
  SampleLengths lengths;
  for (const ConversationData::Draft& draft : found.drafts) {
    const SampleLoad& load = draft.sample.load;
    lengths.load.llm.insert(lengths.load.llm.end(), load.llm.begin(), load.llm.end());
    lengths.load.vision.insert(lengths.load.vision.end(), load.vision.begin(), load.vision.end());
    lengths.load.audio.insert(lengths.load.audio.end(), load.audio.begin(), load.audio.end());
    lengths.rows.image += draft.rows.image;
    lengths.rows.video += draft.rows.video;
    lengths.rows.audio += draft.rows.audio;
  }
  return lengths;
}

Result<Sample> PackedSource::read(int64_t index, const SampleContent& wanted,
                                  std::vector<SkippedSample>& skipped) const {
  WEFT_TRY(Found found, find(index, skipped));
  std::vector<const Sample*> parts;
  for (const ConversationData::Draft& draft : found.drafts) parts.push_back(&draft.sample);
  const std::vector<SampleContent> contents = split_content(wanted, parts);
  bool has_news = false;
  std::vector<Sample> samples;
  for (size_t i = 0; i < found.drafts.size(); ++i) {
    if (const auto error = data_->add_content(found.drafts[i], contents[i])) {
      const int64_t attempt = found.attempts[i];
      skipped.push_back({.sample = index,
                         .attempt = attempt,
                         .source = name_of(index, attempt),
                         .problem = error->message(),
                         .is_new = true});
      has_news = true;
    }
    samples.push_back(std::move(found.drafts[i].sample));
  }
  if (has_news) return Sample();
  Sample joined = join_samples(std::move(samples), data_->form().mel_bins);
  joined.stands_in = found.stands_in;
  return joined;
}

void PackedSource::leave_out(const std::vector<SkippedSample>& skipped) {
  for (const SkippedSample& sample : skipped) left_out_.add(place_of(sample.sample, sample.attempt), sample.problem);
}

}  // namespace weft
