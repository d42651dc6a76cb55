#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/plan/plan.h"

namespace weft {

/// What `weft convert` asks of the runtime half.
struct ConvertRequest {
  std::filesystem::path from;     ///< a run's folder, a checkpoint, or a Hugging Face folder: seen from what is in it
  std::filesystem::path to;       ///< a folder that is still to be made
  std::optional<Plan> plan;       ///< a legal one: what comes out is a checkpoint of it; else a Hugging Face folder
  std::optional<Precision> type;  ///< of what is written
  std::optional<double> max_file_gib;            ///< of a Hugging Face folder's files
  bool adapter_only = false;                     ///< writes adapters as PEFT has them; else they are merged
  bool verify = false;                           ///< checks every byte of a checkpoint first, used or not
  bool weights_only = false;                     ///< leaves the optimizer's states out of a checkpoint
  std::function<void(const std::string&)> say;   ///< a line
  std::function<void(const std::string&)> show;  ///< what is under way
};

struct ConvertReport {
  std::string from;  ///< what the source is: "a checkpoint of step 20, of 4 ranks"
  std::string to;    ///< and what was made of it
  std::filesystem::path folder;
  int64_t num_weights = 0;
  int64_t num_bytes = 0;            ///< of all files
  std::vector<std::string> copied;  ///< files that go with the weights
};

/// What a folder holds: lines for people, and the same as a document.
struct FolderDescription {
  std::string text;
  Json json;
};

}  // namespace weft
