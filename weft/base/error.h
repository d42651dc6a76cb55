#pragma once

#include <string>

namespace weft {

/// Whose turn it is: the user's to change the input (exit 2), or nobody's, the job itself failed (exit 1).
enum class ErrorKind { kInput, kJob };

/// A failure that a user reads: where it is, what was found and what is allowed, and the next step.
struct Error {
  ErrorKind kind = ErrorKind::kInput;
  std::string source;   ///< a file or a flag; may be empty
  std::string field;    ///< a path inside the source, like "vision_config.depth"; may be empty
  std::string problem;  ///< what was found and what is allowed, without a final full stop
  std::string advice;   ///< the next step, as a sentence; may be empty
  std::string details;  ///< lines to show below the message as they are, like a grid with the failing cell marked

  /// "source: field: problem. advice", on one line.
  std::string message() const;
};

}  // namespace weft
