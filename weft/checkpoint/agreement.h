#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/comm/group.h"

namespace weft {

/// What the first of the ranks that have an error says, on all of them; nothing where none has one. All call it.
std::optional<Error> first_error(Group& group, const std::optional<Error>& mine);

/// Every rank's text, in rank order, on the group's first rank; nothing on the others. All call it.
std::vector<std::string> gather_texts(Group& group, const std::string& mine);

/// The first rank's text, on all of them. All call it.
std::string broadcast_text(Group& group, std::string text);

}  // namespace weft
