#include "weft/cli/data_description.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/file_name.h"
#include "weft/base/output_path.h"
#include "weft/base/text.h"
#include "weft/cli/installation.h"
#include "weft/cli/json_output.h"
#include "weft/cli/table.h"
#include "weft/data/conversations/media_rules.h"
#include "weft/data/conversations/packed_survey.h"
#include "weft/data/conversations/survey.h"
#include "weft/spec/scenario.h"

namespace weft {
namespace {

constexpr int64_t kDefaultBatch = 64;

struct NamedNumbers {
  const char* name;
  const char* key;
  const std::vector<double>* values;
};

std::vector<NamedNumbers> quantities(const DataSurvey& survey) {
  std::vector<NamedNumbers> all = {{"tokens a sample", "sequence_tokens", &survey.sequence_tokens},
                                   {"of them text", "text_tokens", &survey.text_tokens},
                                   {"of them learnt", "learnt_tokens", &survey.learnt_tokens}};
  if (!survey.patches_per_image.empty()) {
    all.push_back({"images a sample", "images_per_sample", &survey.images_per_sample});
    all.push_back({"patches an image", "patches_per_image", &survey.patches_per_image});
  }
  if (!survey.seconds_per_clip.empty()) {
    all.push_back({"clips a sample", "audio_clips_per_sample", &survey.clips_per_sample});
    all.push_back({"seconds a clip", "audio_seconds_per_clip", &survey.seconds_per_clip});
  }
  return all;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The value that a share of all lies at or below.
double quantile(const std::vector<double>& sorted, double share) {
  const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(at, 1, sorted.size()) - 1];
}

/// Eight parts between the least and the most, as bars of eighths.
std::string small_histogram(const std::vector<double>& sorted) {
  constexpr size_t kBars = 8;
  static const std::array<const char*, 9> bars = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const double least = sorted.front(), width = sorted.back() - sorted.front();
  std::array<size_t, kBars> counts{};
  for (const double value : sorted) {
    const double place = width > 0 ? (value - least) / width * kBars : 0;
    ++counts[std::min(static_cast<size_t>(place), kBars - 1)];
  }
  const size_t most = *std::max_element(counts.begin(), counts.end());
  std::string text;
  for (const size_t count : counts) {
    const auto height = static_cast<size_t>(std::ceil(8.0 * static_cast<double>(count) / static_cast<double>(most)));
    text += bars[height];
  }
  return text;
}

std::string to_text(const PackedSurvey& rows) {
  return fmt::format("\npacked into rows of {} tokens: {:.1f} samples a row, {:.1f} % full\n",
                     with_commas(rows.row_tokens), mean_of(rows.samples), 100 * rows.fill_share());
}

std::string to_text(const DataSurvey& survey, const DataRequest& request) {
  std::string text = fmt::format("{}: {} records, {} looked at, {} skipped, {} cut\n\n", request.data,
                                 with_commas(survey.num_records), with_commas(survey.skips.num_samples()),
                                 with_commas(survey.skips.num_broken()), with_commas(survey.num_cut));
  Table table;
  table.add({"", "mean", "least", "half", "90 %", "99 %", "most", "least to most"});
  table.add_rule();
  for (const auto& [name, key, values] : quantities(survey)) {
    std::vector<double> sorted = *values;
    std::sort(sorted.begin(), sorted.end());
    const auto shown = [](double value) { return fmt::format("{:.4g}", value); };
    table.add({name, shown(mean_of(sorted)), shown(sorted.front()), shown(quantile(sorted, 0.5)),
               shown(quantile(sorted, 0.9)), shown(quantile(sorted, 0.99)), shown(sorted.back()),
               small_histogram(sorted)});
  }
  text += table.text();
  if (survey.skips.num_broken() == 0) return text;
  text += "\nskipped:\n";
  for (const auto& [kind, count] : survey.skips.kinds()) text += fmt::format("  {} × {}\n", count, kind);
  text += "for example " + survey.skips.examples().front() + "\n";
  return text;
}

Json to_json(const DataSurvey& survey, const std::optional<PackedSurvey>& rows, const Workload& workload) {
  Json json = {{"records", survey.num_records}, {"skips", survey.skips.to_json()}, {"cut", survey.num_cut}};
  for (const auto& [name, key, values] : quantities(survey)) {
    std::vector<double> sorted = *values;
    std::sort(sorted.begin(), sorted.end());
    json["distributions"][key] = {{"mean", mean_of(sorted)},       {"min", sorted.front()},
                                  {"p50", quantile(sorted, 0.5)},  {"p90", quantile(sorted, 0.9)},
                                  {"p99", quantile(sorted, 0.99)}, {"max", sorted.back()}};
  }
  if (rows)
    json["packed"] = {{"row_tokens", rows->row_tokens},
                      {"samples_per_row", mean_of(rows->samples)},
                      {"fill_share", rows->fill_share()}};
  json["workload"] = to_json(workload);
  return json;
}

}  // namespace

Result<std::string> describe_data(const DataRequest& request) {
  if (auto error = find_bad_output({{"--out", request.out}})) return *std::move(error);
  const std::filesystem::path folder = request.model;
  WEFT_TRY(const Model model, find_scenarios().model(request.model));
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return Error{.source = "--model",
                 .problem = fmt::format("is {}; a data set needs a model's folder, with its tokenizer",
                                        in_quotes(request.model)),
                 .advice = "Give the folder that holds config.json and tokenizer.json."};
  }
  WEFT_TRY(const DataSettings settings, read_data_settings_file(request.data));
  WEFT_TRY(const ConversationSets sets, ConversationSets::open(settings));
  WEFT_TRY(const ModelText text, read_model_text(folder));
  WEFT_TRY(const ChatTemplate* chat, text.chat_template(folder));
  const std::string tokenizer_file = (folder / "tokenizer.json").string();
  if (auto error = find_foreign_tokenizer(model, text.tokenizer, tokenizer_file)) return *std::move(error);
  WEFT_TRY(const MediaTokenRule rule, media_token_rule(model, text.tokenizer, tokenizer_file));
  WEFT_TRY(const MediaRules media, read_media_rules(model, folder, settings.limits));
  const MeasureMedia measure = [&media](const MediaReference& reference) -> Result<MediaSize> {
    WEFT_TRY(const MediaShape shape, measure_media(media, reference));
    return shape.size;
  };
  EncodeSettings encode = settings.encode;
  encode.max_tokens = model.numbers.llm.max_positions;
  const DataSurvey survey =
      survey_data({.sets = sets, .text = text, .chat = *chat, .rule = rule, .encode = encode, .measure = measure});
  const int64_t batch = request.global_batch > 0 ? request.global_batch : kDefaultBatch;
  const int64_t unit = std::max<int64_t>({model.media.patches_per_embedding, model.media.patches_per_tile, 1});
  WEFT_TRY(Workload workload, workload_of(survey, batch, unit, name_of_file(request.data), request.data));
  std::optional<PackedSurvey> rows;
  if (settings.packs) {
    rows = pack_survey(survey, settings.encode.cutoff_tokens);
    workload = workload_of_rows(survey, *rows, model.media, std::move(workload));
  }
  if (request.out) {
    if (auto error = write_file(*request.out, json_output(to_json(workload)))) return *std::move(error);
  }
  if (request.json) return json_output(to_json(survey, rows, workload));
  std::string shown = to_text(survey, request);
  if (rows) shown += to_text(*rows);
  if (request.out) {
    shown += fmt::format(
        "\n{} holds it as a workload of {} {} a step. Next: weft plan --model {} --workload {} --cluster C\n",
        *request.out, batch, rows ? "packed rows" : "samples", request.model, *request.out);
  }
  return shown;
}

}  // namespace weft
