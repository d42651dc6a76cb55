#pragma once

#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/validate/joint_fit.h"

namespace weft {

/// The published tables, predicted with what the files say, and with each model left out of every fit.
struct LibraryReport {
  RunLibrary library;
  std::vector<LibraryRun> runs;
  std::vector<PredictedRun> predicted;
  std::vector<PredictedRun> left_out;
};

std::string to_text(const LibraryReport& report);
Json to_json(const LibraryReport& report);

/// What a fit found, machine by machine and system by system, to four significant digits.
std::string to_yaml(const JointFit& fit);

}  // namespace weft
