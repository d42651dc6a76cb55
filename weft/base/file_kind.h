#pragma once

#include <optional>
#include <string>

#include "weft/base/document.h"

namespace weft {

/// What a document is for. Each kind is known by fields that no other has.
enum class FileKind { kPlan, kModel, kCluster, kWorkload, kSpace, kBalanceCosts, kPipelineCosts, kProfile, kTraining };

/// A document that is not of the kind that is needed but plainly of another one: without this, an error would name the
/// first field that is missing, and a reader of it would add that to the wrong file.
std::optional<Error> find_wrong_kind(const Document& document, FileKind needed);

}  // namespace weft
