#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/document.h"
#include "weft/spec/distribution.h"
#include "weft/spec/model.h"
#include "weft/spec/precision.h"

namespace weft {

enum class Optimizer { kAdamW };

const std::string& name_of(Optimizer optimizer);

/// How attention is computed: in one kernel that never writes the scores out, or as two products with a softmax
/// between.
enum class AttentionKernel { kFused, kUnfused };

const std::string& name_of(AttentionKernel kernel);

/// Media of one kind in a sample: how many pieces, and how large each is. Pieces are independent of each other.
struct Media {
  Distribution pieces_per_sample = Distribution::constant(0);
  Distribution size = Distribution::constant(0);  ///< patches of an image, seconds of a clip
};

/// What a training step is made of.
struct Workload {
  std::string name;
  std::string source;  ///< the file, for messages
  int64_t global_batch_samples = 0;
  /// Length of a sample's sequence in the llm. Either the text alone is given and media embeddings come on top, or
  /// the whole sequence is given and text fills what the media leave.
  Distribution tokens = Distribution::constant(0);
  bool tokens_include_media = false;
  /// A sample's tokens are so many sequences of equal length that do not see each other: of a packed row, what
  /// attention takes as long for as for its own.
  double sequences_per_sample = 1;
  Media images;
  Media audio;
  std::vector<ModuleKind> frozen;
  Precision precision = Precision::kBf16;
  Optimizer optimizer = Optimizer::kAdamW;
  AttentionKernel attention = AttentionKernel::kFused;

  bool is_frozen(ModuleKind kind) const;
};

/// Unknown keys are rejected.
Result<Workload> read_workload(const Document& document, std::string default_name);
/// The inverse of read_workload.
Json to_json(const Workload& workload);
Result<Workload> read_workload_file(const std::filesystem::path& path);

}  // namespace weft
