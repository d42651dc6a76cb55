#pragma once

#include "weft/base/document.h"
#include "weft/checkpoint/checkpoint.h"

namespace weft {

inline constexpr const char* kCheckpointJsonName = "checkpoint.json";

/// The text of checkpoint.json: a line a part, sealed.
std::string checkpoint_to_text(const Checkpoint& checkpoint);
/// Strict: unknown fields, another version, a plan that does not fit its hash and parts outside of their weights are
/// errors. The folder stays empty.
Result<Checkpoint> checkpoint_from(const Document& document);

/// Ends an object's text, which is complete but for this, with the CRC-32C of what is before it.
std::string sealed(std::string text);
/// Whether a text is as it was when it was sealed.
std::optional<Error> check_seal(std::string_view text, const std::string& source);

/// One file's entry, which ranks send to the one that writes them all.
std::string checkpoint_file_to_text(const CheckpointFile& file);
Result<CheckpointFile> checkpoint_file_from(const Document& document);

}  // namespace weft
