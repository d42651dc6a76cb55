#pragma once

#include "weft/base/document.h"

namespace weft {

/// parse_document for files that were written for another program: aliases of YAML are unfolded, within the limits, and
/// its own tags are refused by name. With `repeated`, keys that stand twice have their last values and are listed
/// there.
Result<Document> parse_foreign_document(std::string_view text, std::string source, Syntax syntax,
                                        const DocumentLimits& limits = {},
                                        std::vector<std::string>* repeated = nullptr);

}  // namespace weft
