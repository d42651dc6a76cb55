#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/document.h"
#include "weft/data/conversations/column_map.h"
#include "weft/data/conversations/encode_conversation.h"

namespace weft {

/// One file of conversations.
struct DataFile {
  std::filesystem::path file;
  std::filesystem::path folder;  ///< that media are relative to
  double weight = 0;             ///< 0: not given
  std::string form;              ///< a preset's name; empty: guessed from the first record
  std::optional<ColumnMap> columns;
  int64_t max_samples = 0;  ///< 0: all
};

/// Limits of media that a data set sets over the model's own; 0 where it does not.
struct DataMediaLimits {
  int64_t image_max_pixels = 0;
  int64_t image_min_pixels = 0;
  int64_t video_max_pixels = 0;
  int64_t video_min_pixels = 0;
  double video_fps = 0;
  int64_t video_max_frames = 0;
  double audio_max_seconds = 0;

  bool operator==(const DataMediaLimits&) const = default;
};

/// What to train on and how: sets and their mixture, what is learnt, how long samples may be.
struct DataSettings {
  std::string source;
  std::vector<DataFile> files;
  EncodeSettings encode;
  DataMediaLimits limits;
  double held_out_share = 0;
  bool packs = false;
  double max_broken_share = 0.1;
  std::vector<std::string> notes;  ///< keys of other systems that have no meaning here
};

/// Our own form (docs/manual/data.md), or MindSpeed-MM's data.json. Files are relative to `folder`.
Result<DataSettings> read_data_settings(const Document& document, const std::filesystem::path& folder);
/// Our own form of them, for who reads it where files are relative to the working directory.
Json to_json(const DataSettings& settings);
/// A settings file; or a file of conversations itself, which is one set with all defaults.
Result<DataSettings> read_data_settings_file(const std::filesystem::path& path);

}  // namespace weft
