#include "weft/data/conversations/data_settings.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file.h"
#include "weft/base/text.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

/// Of a file, which say what it is.
constexpr size_t kBeginningBytes = 1 << 20;
constexpr IntegerRange kPixelRange{1, int64_t{1} << 40};
constexpr IntegerRange kTokenCounts{1, 100'000'000};
constexpr IntegerRange kFrameCounts{1, 1'000'000};
constexpr IntegerRange kSampleCounts{1, int64_t{1} << 50};

std::filesystem::path below(const std::filesystem::path& folder, const std::string& given) {
  const std::filesystem::path path(given);
  return path.is_absolute() ? path : folder / path;
}

/// Never empty, so that paths can be compared with it.
std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

void check_path(Fields& fields, const char* key, const std::string& path, bool may_be_empty = false) {
  if (path.empty() && !may_be_empty) fields.complain(key, "is empty, a path is needed", "Give a path.");
  if (path.find('\0') != std::string::npos) fields.complain(key, "has a zero byte in its path", "Give a path.");
}

/// One of the two, in a set's own words.
void check_files(Fields& fields, const char* key, const std::vector<DataFile>& files) {
  if (files.empty()) fields.complain(key, "is empty", "Give at least one file of conversations.");
}

DataFile read_set(Fields& set, const std::filesystem::path& folder) {
  DataFile data;
  const std::string file = set.text("file"), media = set.text_or("folder", "");
  check_path(set, "file", file);
  check_path(set, "folder", media, true);
  data.file = below(folder, file);
  data.folder = set.has("folder") ? below(folder, media) : folder_of(data.file);
  data.weight = set.number_or("weight", 0, {1e-9, 1e9});
  if (set.has("form")) data.form = column_presets()[set.choice("form", column_presets())];
  if (set.has("columns")) {
    data.columns = column_preset(data.form.empty() ? "messages" : data.form);
    Fields columns = set.object("columns");
    read_columns(columns, *data.columns);
  }
  data.max_samples = set.integer_or("max_samples", 0, kSampleCounts);
  set.raw("form");
  set.reject_unknown();
  return data;
}

void read_limits(Fields& fields, DataMediaLimits& limits) {
  limits.image_max_pixels = fields.integer_or("image_max_pixels", 0, kPixelRange);
  limits.image_min_pixels = fields.integer_or("image_min_pixels", 0, kPixelRange);
  limits.video_max_pixels = fields.integer_or("video_max_pixels", 0, kPixelRange);
  limits.video_min_pixels = fields.integer_or("video_min_pixels", 0, kPixelRange);
  const auto check_order = [&](const char* min_key, int64_t min, const char* max_key, int64_t max) {
    if (max > 0 && min > max)
      fields.complain(min_key, fmt::format("is {}, above {}, which is {}", min, max_key, max), "Give a lower one.");
  };
  check_order("image_min_pixels", limits.image_min_pixels, "image_max_pixels", limits.image_max_pixels);
  check_order("video_min_pixels", limits.video_min_pixels, "video_max_pixels", limits.video_max_pixels);
  limits.video_fps = fields.number_or("video_fps", 0, {1e-3, 1000});
}

/// Rows are as long as the longest sample may be.
void find_endless_rows(Fields& fields, const char* pack, const char* cutoff, const DataSettings& settings) {
  if (settings.packs && settings.encode.cutoff_tokens == 0) {
    fields.complain(pack, fmt::format("is true, but {} does not say how long packed rows are", cutoff),
                    fmt::format("Give {}, like 4096.", cutoff));
  }
}

DataSettings read_own(Fields& fields, const std::filesystem::path& folder) {
  DataSettings settings;
  for (Fields& set : fields.objects("sets")) settings.files.push_back(read_set(set, folder));
  check_files(fields, "sets", settings.files);
  const auto has_weight = [](const DataFile& file) { return file.weight > 0; };
  const auto num_weights = std::count_if(settings.files.begin(), settings.files.end(), has_weight);
  if (num_weights != 0 && num_weights != std::ssize(settings.files))
    fields.complain("sets", "have weights, but not all of them", "Give every set a weight, or none.");
  settings.encode.loss = static_cast<LossOn>(fields.choice_or("loss", 0, loss_names()));
  settings.encode.cutoff_tokens = fields.integer_or("cutoff_tokens", 0, kTokenCounts);
  read_limits(fields, settings.limits);
  settings.limits.video_max_frames = fields.integer_or("video_max_frames", 0, kFrameCounts);
  settings.limits.audio_max_seconds = fields.number_or("audio_max_seconds", 0, {0.01, 36'000});
  settings.held_out_share = fields.number_or("held_out_share", 0, {0, 0.9});
  settings.packs = fields.flag_or("pack", false);
  find_endless_rows(fields, "pack", "cutoff_tokens", settings);
  settings.max_broken_share = fields.number_or("max_broken_share", settings.max_broken_share, {0, 1});
  fields.reject_unknown();
  return settings;
}

/// MindSpeed-MM's data.json, whose keys are LLaMA-Factory's.
DataSettings read_mindspeed(Fields& fields, const std::filesystem::path& folder) {
  DataSettings settings;
  Fields dataset = fields.object("dataset_param");
  DataFile data{.form = "mindspeed_mm", .columns = column_preset("mindspeed_mm")};
  if (dataset.has("attr")) {
    Fields attributes = dataset.object("attr");
    read_attributes(attributes, *data.columns);
  }
  if (dataset.has("preprocess_parameters")) {
    Fields media = dataset.object("preprocess_parameters");
    read_limits(media, settings.limits);
    settings.limits.video_max_frames = media.integer_or("video_maxlen", 0, kFrameCounts);
  }
  Fields basic = dataset.object("basic_parameters");
  bool trains_on_prompt = false, masks_history = false;
  std::vector<std::string> files;
  if (const Json* given = basic.raw("dataset"); given != nullptr && given->is_array()) {
    files = basic.texts_or_empty("dataset");
  } else {
    // Several files stand in one text, with commas.
    const std::string text = basic.text("dataset");
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      files.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  // MindSpeed-MM runs where its paths lead from, and looks for media in dataset_dir.
  const std::string media_folder = basic.text_or("dataset_dir", "");
  check_path(basic, "dataset_dir", media_folder, true);
  trains_on_prompt = basic.flag_or("train_on_prompt", false);
  masks_history = basic.flag_or("mask_history", false);
  settings.encode.cutoff_tokens = basic.integer_or("cutoff_len", 0, kTokenCounts);
  data.max_samples = basic.integer_or("max_samples", 0, kSampleCounts);
  settings.packs = basic.flag_or("packing", false);
  find_endless_rows(basic, "packing", "cutoff_len", settings);
  settings.held_out_share = basic.number_or("val_rate", 0, {0, 0.9});
  if (trains_on_prompt && masks_history) {
    basic.complain("mask_history", "and train_on_prompt are both true, which exclude each other", "Choose one.");
  }
  settings.encode.loss = trains_on_prompt ? LossOn::kEverything
                         : masks_history  ? LossOn::kLastTurn
                                          : LossOn::kAssistant;
  for (const std::string& file : files) {
    check_path(basic, "dataset", file);
    data.file = below(folder, file);
    data.folder = media_folder.empty() ? folder_of(data.file) : below(folder, media_folder);
    settings.files.push_back(data);
  }
  check_files(basic, "dataset", settings.files);
  return settings;
}

/// Whether a file that is no document, perhaps for its size, holds records: a list, or a record a line. A first line
/// that is an object by itself is a record; one that only begins an object is of settings with a mistake.
bool begins_with_records(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kBeginningBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  const bool is_all = file.eof();
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // a byte order mark
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || text[begin] != '{') return begin != std::string::npos && text[begin] == '[';
  const size_t end = text.find('\n', begin);
  if (end == std::string::npos && !is_all) return true;  // no settings have so long a line
  const Result<Document> line =
      parse_document(with_replacements(text.substr(begin, end - begin)), path.string(), Syntax::kJson);
  return line && line->root.is_object();
}

}  // namespace

Result<DataSettings> read_data_settings(const Document& document, const std::filesystem::path& folder) {
  Findings findings(document.source);
  Fields fields(document, findings);
  DataSettings settings = fields.has("dataset_param") ? read_mindspeed(fields, folder) : read_own(fields, folder);
  settings.source = document.source;
  if (findings.first()) return *findings.first();
  return settings;
}

Json to_json(const DataSettings& settings) {
  Json json = {{"sets", Json::array()},
               {"loss", loss_names()[static_cast<size_t>(settings.encode.loss)]},
               {"held_out_share", settings.held_out_share},
               {"pack", settings.packs},
               {"max_broken_share", settings.max_broken_share}};
  for (const DataFile& data : settings.files) {
    Json set = {{"file", data.file.string()}, {"folder", data.folder.string()}};
    if (data.weight > 0) set["weight"] = data.weight;
    if (!data.form.empty()) set["form"] = data.form;
    if (data.columns) set["columns"] = to_json(*data.columns);
    if (data.max_samples > 0) set["max_samples"] = data.max_samples;
    json["sets"].push_back(std::move(set));
  }
  const auto add = [&json](const char* key, auto value) {
    if (value > 0) json[key] = value;
  };
  const DataMediaLimits& limits = settings.limits;
  add("cutoff_tokens", settings.encode.cutoff_tokens);
  add("image_max_pixels", limits.image_max_pixels);
  add("image_min_pixels", limits.image_min_pixels);
  add("video_max_pixels", limits.video_max_pixels);
  add("video_min_pixels", limits.video_min_pixels);
  add("video_fps", limits.video_fps);
  add("video_max_frames", limits.video_max_frames);
  add("audio_max_seconds", limits.audio_max_seconds);
  return json;
}

Result<DataSettings> read_data_settings_file(const std::filesystem::path& path) {
  // A file of conversations may be larger than any document, so its beginning decides.
  std::string extension = path.extension().string();
  const bool is_lines = extension == ".jsonl";
  Result<Document> document = is_lines ? Result<Document>(Error{}) : read_document(path);
  const bool is_yaml = extension == ".yaml" || extension == ".yml";
  if (document && (is_yaml || !document->root.is_array())) {
    const Json& root = document->root;
    const bool is_record = root.contains("messages") || root.contains("conversations") || root.contains("instruction");
    if (is_record && !root.contains("sets")) {
      return Error{.source = path.string(),
                   .problem = "is one record, a list of them is needed",
                   .advice = "Put it into brackets, or write a record a line into a file whose name ends in .jsonl."};
    }
    return read_data_settings(*document, path.parent_path());
  }
  if (!document && !is_lines && (extension != ".json" || !begins_with_records(path))) return document.error();
  DataSettings settings;
  settings.source = path.string();
  settings.files.push_back({.file = path, .folder = folder_of(path)});
  return settings;
}

}  // namespace weft
