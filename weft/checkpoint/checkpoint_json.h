#pragma once

#include "weft/base/document.h"
#include "weft/checkpoint/checkpoint.h"

namespace weft {

inline constexpr const char* kCheckpointJsonName = "checkpoint.json";

/// The text of checkpoint.json: a line a part.
std::string checkpoint_to_text(const Checkpoint& checkpoint);
/// Strict: unknown fields, another version, a plan that does not fit its hash and parts outside of their weights are
/// errors. The folder stays empty.
Result<Checkpoint> checkpoint_from(const Document& document);

/// One file's entry, which ranks send to the one that writes them all.
std::string checkpoint_file_to_text(const CheckpointFile& file);
Result<CheckpointFile> checkpoint_file_from(const Document& document);

}  // namespace weft
