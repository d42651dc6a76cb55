#pragma once

#include <cstdint>
#include <vector>

#include "weft/data/conversations/conversation_sets.h"
#include "weft/spec/workload.h"

namespace weft {

/// What a data set is made of: a number for every sample, picture and clip that was looked at.
struct DataSurvey {
  int64_t num_records = 0;                ///< of all sets
  std::vector<double> text_tokens;        ///< of each sample, without embeddings of media
  std::vector<double> sequence_tokens;    ///< with them
  std::vector<double> learnt_tokens;      ///< that have a target
  std::vector<double> images_per_sample;  ///< videos among them
  std::vector<double> patches_per_image;
  std::vector<double> clips_per_sample;
  std::vector<double> seconds_per_clip;
  int64_t num_cut = 0;
  SkipReport skips;
};

struct SurveyRequest {
  const ConversationSets& sets;
  const ModelText& text;
  const ChatTemplate& chat;
  const MediaTokenRule& rule;
  const EncodeSettings& encode;
  MeasureMedia measure;
  /// Of more records so many are looked at: evenly spread or, where sets have weights, as training takes them.
  int64_t max_samples = 20'000;
};

DataSurvey survey_data(const SurveyRequest& request);

/// The survey as a workload. Long distributions are joined into few values, each the mean of those that it stands for;
/// patches are whole multiples of `patches_per_embedding`.
Result<Workload> workload_of(const DataSurvey& survey, int64_t global_batch_samples, int64_t patches_per_embedding,
                             std::string name, const std::string& source);

/// A distribution in at most `most` values: the mean of each part of equal number, rounded to a multiple of `unit`.
Distribution summarized(std::vector<double> values, size_t most, double unit);

}  // namespace weft
