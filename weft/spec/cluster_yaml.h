#pragma once

#include <string>

#include "weft/spec/cluster.h"

namespace weft {

/// A cluster's file as a person would write it, with a comment on top. read_cluster reads it back.
std::string to_yaml(const Cluster& cluster, const std::string& comment);

/// The same to four significant digits: no fit knows more.
Efficiency rounded(Efficiency efficiency);

}  // namespace weft
