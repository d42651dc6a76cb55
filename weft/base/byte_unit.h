#pragma once

#include <string>

namespace weft {

/// A unit that a column of byte counts is shown in.
struct ByteUnit {
  const char* name;
  double bytes;

  /// "70.31": in this unit, without its name.
  std::string number(double count) const;
};

/// The largest unit in which this many bytes are at least 1: GiB for a large model, MiB or KiB for a tiny one.
ByteUnit byte_unit_for(double bytes);

/// "70.31 GiB", "358.40 MiB": two digits behind the point.
std::string format_memory(double bytes);

}  // namespace weft
