#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "weft/data/conversations/column_map.h"

namespace weft {

enum class MediaKind : uint8_t { kImage, kVideo, kAudio };

/// "image", "video" or "audio".
const std::string& name_of(MediaKind kind);

/// A picture or a clip that a conversation refers to: its file, or the files of a video's frames.
struct MediaReference {
  MediaKind kind = MediaKind::kImage;
  std::vector<std::filesystem::path> files;

  bool operator==(const MediaReference&) const = default;
};

/// A conversation as templates take it: messages of "role" and "content", whose content is a text or, where it has
/// media, a list of parts ({"type": "image"}, {"type": "text", "text": ...}).
struct Conversation {
  Json messages;
  Json tools;                         ///< null where there are none
  std::vector<MediaReference> media;  ///< in the order of their parts
};

/// Reads a record. Files are relative to `folder` and must lie in it. Texts have "<image>", "<video>" and "<audio>"
/// where media stand; there are as many of each as media. In a record without a column for such media these are words,
/// unless `placed` has their kind. The error is about this sample alone.
Result<Conversation> read_conversation(const Json& record, const ColumnMap& columns,
                                       const std::filesystem::path& folder, const std::string& source,
                                       std::span<const MediaKind> placed = {});
/// The kinds of media that a record has a column for.
std::vector<MediaKind> media_columns(const Json& record, const ColumnMap& columns);

}  // namespace weft
