#include "weft/data/conversations/survey.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "weft/data/sample.h"

namespace weft {
namespace {

constexpr size_t kMostOutcomes = 48;

/// The i-th of `count` records that are spread evenly over those of all sets.
SampleOrder::Place spread_place(const ConversationSets& sets, int64_t num_records, int64_t i, int64_t count) {
  SampleOrder::Place place{.record = static_cast<int64_t>(static_cast<double>(i) * static_cast<double>(num_records) /
                                                          static_cast<double>(count))};
  while (place.record >= sets.num_records(place.set)) place.record -= sets.num_records(place.set++);
  return place;
}

}  // namespace

DataSurvey survey_data(const SurveyRequest& request) {
  DataSurvey survey;
  PieceCache cache;
  for (size_t set = 0; set < request.sets.num_sets(); ++set) survey.num_records += request.sets.num_records(set);
  const int64_t looked = std::min(survey.num_records, request.max_samples);
  const std::optional<SampleOrder> order =
      request.sets.is_weighted() ? std::optional(request.sets.order(0)) : std::nullopt;
  for (int64_t i = 0; i < looked; ++i) {
    const SampleOrder::Place place = order ? order->at(i) : spread_place(request.sets, survey.num_records, i, looked);
    const Result<Conversation> conversation = request.sets.read(place);
    if (!conversation) {
      survey.skips.add(conversation.error());
      continue;
    }
    std::vector<MediaSize> sizes;
    std::optional<Error> error;
    for (const MediaReference& media : conversation->media) {
      Result<MediaSize> size = request.measure(media);
      if (!size) {
        error = size.error();
        break;
      }
      sizes.push_back(*size);
    }
    if (error) {
      // The file is named already; the record says who wants it.
      error->field = std::exchange(error->source, request.sets.name_of_sample(place)) +
                     (error->field.empty() ? "" : ": " + error->field);
      survey.skips.add(*error);
      continue;
    }
    const Result<EncodedText> encoded =
        encode_conversation(request.text, request.chat, request.rule, request.encode, *conversation, sizes, cache,
                            request.sets.name_of_sample(place));
    if (!encoded) {
      survey.skips.add(encoded.error());
      continue;
    }
    survey.skips.count_used();
    double embeddings = 0, images = 0, clips = 0;
    for (size_t k = 0; k < sizes.size(); ++k) {
      embeddings += static_cast<double>(sizes[k].tokens);
      if (conversation->media[k].kind == MediaKind::kAudio) {
        ++clips;
        survey.seconds_per_clip.push_back(sizes[k].seconds);
      } else {
        ++images;
        survey.patches_per_image.push_back(static_cast<double>(sizes[k].patches));
      }
    }
    const auto tokens = static_cast<double>(encoded->ids.size());
    survey.sequence_tokens.push_back(tokens);
    survey.text_tokens.push_back(tokens - embeddings);
    survey.images_per_sample.push_back(images);
    survey.clips_per_sample.push_back(clips);
    survey.learnt_tokens.push_back(static_cast<double>(
        std::count_if(encoded->targets.begin(), encoded->targets.end(), [](int64_t t) { return t != kNoTarget; })));
    survey.num_cut += encoded->is_cut ? 1 : 0;
  }
  return survey;
}

Distribution summarized(std::vector<double> values, size_t most, double unit) {
  if (values.empty()) return Distribution::constant(0);
  std::sort(values.begin(), values.end());
  std::vector<Distribution::Outcome> outcomes;
  const auto num_different = static_cast<size_t>(
      1 + std::count_if(values.begin() + 1, values.end(), [&](const double& v) { return v != *(&v - 1); }));
  const size_t parts = num_different <= most ? values.size() : most;
  for (size_t part = 0; part < parts; ++part) {
    const size_t begin = values.size() * part / parts, end = values.size() * (part + 1) / parts;
    if (begin == end) continue;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += values[i];
    const double mean = sum / static_cast<double>(end - begin);
    const double rounded = unit > 0 ? std::max(std::round(mean / unit), 0.0) * unit : mean;
    outcomes.push_back({rounded, static_cast<double>(end - begin)});
  }
  return Distribution::weighted(std::move(outcomes));
}

Result<Workload> workload_of(const DataSurvey& survey, int64_t global_batch_samples, int64_t patches_per_embedding,
                             std::string name, const std::string& source) {
  if (survey.sequence_tokens.empty()) {
    return Error{.source = source,
                 .problem = "has no sample that can be used",
                 .advice = survey.skips.examples().empty() ? "Give a file with conversations."
                                                           : "The first problem: " + survey.skips.examples().front()};
  }
  Workload workload{.name = std::move(name), .source = source};
  workload.global_batch_samples = global_batch_samples;
  workload.tokens = summarized(survey.text_tokens, kMostOutcomes, 1);
  if (!survey.patches_per_image.empty()) {
    workload.images = {summarized(survey.images_per_sample, kMostOutcomes, 1),
                       summarized(survey.patches_per_image, kMostOutcomes, static_cast<double>(patches_per_embedding))};
  }
  if (!survey.seconds_per_clip.empty()) {
    workload.audio = {summarized(survey.clips_per_sample, kMostOutcomes, 1),
                      summarized(survey.seconds_per_clip, kMostOutcomes, 0.01)};
  }
  return workload;
}

}  // namespace weft
