#include "weft/data/conversations/conversation_sets.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

constexpr size_t kMostExamples = 20;
constexpr int64_t kFewestToJudge = 20;
/// Of a set, looked at when it is opened.
constexpr int64_t kShownRecords = 16;

/// A problem without the names and numbers of its sample, so that many of a kind are counted together.
std::string kind_of_problem(const Error& error) {
  const std::string& text = error.problem;
  const auto is_in_word = [&](size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i]));
  };
  std::string kind;
  bool in_name = false;
  for (size_t i = 0; i < text.size(); ++i) {
    // An apostrophe stands behind a letter, and a name's end before none.
    if (text[i] == '\'' && !is_in_word(in_name ? i + 1 : i - 1)) {
      in_name = !in_name;
      if (in_name) kind += "'...'";
    } else if (!in_name) {
      const bool is_digit = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
      if (!is_digit || kind.empty() || kind.back() != '#') kind += is_digit ? '#' : text[i];
    }
  }
  return printable(kind, 120);
}

}  // namespace

void SkipReport::add(const Error& error) {
  ++broken_;
  if (examples_.size() < kMostExamples) examples_.push_back(error.message());
  ++kinds_[kind_of_problem(error)];
}

std::optional<Error> SkipReport::find_too_many(double max_share, const std::string& source) const {
  if (num_samples() < kFewestToJudge || share() <= max_share) return std::nullopt;
  return Error{.source = source,
               .problem = fmt::format("{} of {} samples are broken, {:.3g} % are allowed; the first: {}", num_broken(),
                                      num_samples(), 100 * max_share, examples_.front()),
               .advice = "Mend the data, or raise max_broken_share."};
}

Json SkipReport::to_json() const {
  Json kinds = Json::object();
  for (const auto& [kind, count] : kinds_) kinds[kind] = count;
  return {{"samples", num_samples()}, {"skipped", num_broken()}, {"kinds", kinds}, {"examples", examples_}};
}

Result<ConversationSets> ConversationSets::open(const DataSettings& settings) {
  ConversationSets sets;
  sets.held_out_share_ = settings.held_out_share;
  for (const DataFile& data : settings.files) {
    WEFT_TRY(RecordList records, RecordList::open(data.file));
    // The first records that can be read show the form, and which media the set has.
    std::vector<Json> first;
    for (int64_t i = 0; i < std::min(records.size(), kShownRecords); ++i) {
      if (Result<Json> record = records.read(i)) first.push_back(*std::move(record));
    }
    const std::string form = !data.form.empty() ? data.form : first.empty() ? "messages" : guess_preset(first.front());
    ColumnMap columns = data.columns ? *data.columns : column_preset(form);
    std::vector<MediaKind> placed;
    for (const Json& record : first) {
      for (const MediaKind kind : media_columns(record, columns)) placed.push_back(kind);
    }
    std::sort(placed.begin(), placed.end());
    placed.erase(std::unique(placed.begin(), placed.end()), placed.end());
    sets.files_.push_back(
        {.data = data, .columns = std::move(columns), .records = std::move(records), .placed = std::move(placed)});
  }
  return sets;
}

int64_t ConversationSets::num_records(size_t set) const {
  const OpenFile& file = files_[set];
  return file.data.max_samples > 0 ? std::min(file.data.max_samples, file.records.size()) : file.records.size();
}

SampleOrder ConversationSets::order(uint64_t seed) const {
  std::vector<SampleOrder::Set> sets;
  for (size_t k = 0; k < files_.size(); ++k) {
    const int64_t records = num_records(k);
    const auto held_out = static_cast<int64_t>(std::floor(held_out_share_ * static_cast<double>(records)));
    sets.push_back({.num_records = records, .weight = files_[k].data.weight, .num_held_out = held_out});
  }
  return {std::move(sets), seed};
}

std::string ConversationSets::name_of_sample(const SampleOrder::Place& place) const {
  return fmt::format("{}, record {}", files_[place.set].data.file.string(), place.record);
}

Result<Conversation> ConversationSets::read(const SampleOrder::Place& place) const {
  const OpenFile& file = files_[place.set];
  WEFT_TRY(const Json record, file.records.read(place.record));
  return read_conversation(record, file.columns, file.data.folder, name_of_sample(place), file.placed);
}

}  // namespace weft
