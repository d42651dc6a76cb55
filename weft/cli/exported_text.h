#pragma once

#include <string>
#include <vector>

#include "weft/exchange/export.h"

namespace weft {

/// One file as it is; of several, each below a line with its name.
std::string shown(const std::vector<ExportedFile>& files);

}  // namespace weft
