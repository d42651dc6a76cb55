#include "weft/data/conversations/packed_survey.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/data/conversations/packed_order.h"
#include "weft/spec/sample_load.h"

namespace weft {
namespace {

constexpr size_t kMostCounts = 48;

double mean_of_values(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Media media_of_rows(std::vector<double> counts, double size, double most) {
  for (double& count : counts) count = std::min(count, std::floor(most));
  return {summarized(std::move(counts), kMostCounts, 1), Distribution::constant(size)};
}

}  // namespace

double PackedSurvey::fill_share() const {
  return mean_of_values(sequence_tokens) / static_cast<double>(row_tokens);
}

double PackedSurvey::equal_sequences() const {
  double pairs = 0, all_pairs = 0;
  for (size_t row = 0; row < squares.size(); ++row) {
    pairs += squares[row];
    all_pairs += sequence_tokens[row] * sequence_tokens[row];
  }
  return pairs > 0 ? std::max(1.0, all_pairs / pairs) : 1;
}

PackedSurvey pack_survey(const DataSurvey& survey, int64_t row_tokens) {
  PackedSurvey packed{.row_tokens = row_tokens};
  const std::vector<int64_t> lengths(survey.sequence_tokens.begin(), survey.sequence_tokens.end());
  for (const std::vector<size_t>& row : pack_shuffled(lengths, row_tokens)) {
    const auto sum = [&row](const std::vector<double>& values) {
      return std::accumulate(row.begin(), row.end(), 0.0, [&](double all, size_t i) { return all + values[i]; });
    };
    packed.sequence_tokens.push_back(sum(survey.sequence_tokens));
    packed.samples.push_back(static_cast<double>(row.size()));
    double& squares = packed.squares.emplace_back(0);
    for (const size_t sample : row) squares += survey.sequence_tokens[sample] * survey.sequence_tokens[sample];
    packed.images.push_back(sum(survey.images_per_sample));
    packed.clips.push_back(sum(survey.clips_per_sample));
  }
  return packed;
}

Workload workload_of_rows(const DataSurvey& survey, const PackedSurvey& rows, const MediaGeometry& media,
                          Workload workload) {
  const double tokens = std::round(mean_of_values(rows.sequence_tokens));
  workload.tokens = Distribution::constant(tokens);
  workload.tokens_include_media = true;
  workload.sequences_per_sample = std::round(100 * rows.equal_sequences()) / 100;
  const double unit = static_cast<double>(std::max<int64_t>({media.patches_per_embedding, media.patches_per_tile, 1}));
  const double patches = std::max(unit, std::round(mean_of_values(survey.patches_per_image) / unit) * unit);
  const double seconds = std::max(0.05, std::round(mean_of_values(survey.seconds_per_clip) * 100) / 100);
  const double image = survey.patches_per_image.empty() ? 0 : image_embeddings(media, patches);
  const double clip = survey.seconds_per_clip.empty() ? 0 : audio_length(media, seconds).embeddings;
  // What each kind may take of a row at most: together no more than the row.
  const double images = image * mean_of_values(rows.images), clips = clip * mean_of_values(rows.clips);
  const auto most = [&](double own, double each) { return each > 0 ? tokens * own / (images + clips) / each : 1e9; };
  if (images > 0) workload.images = media_of_rows(rows.images, patches, most(images, image));
  if (!survey.seconds_per_clip.empty())
    workload.audio = media_of_rows(rows.clips, seconds, clips > 0 ? most(clips, clip) : 1e9);
  return workload;
}

}  // namespace weft
