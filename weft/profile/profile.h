#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weft/base/document.h"
#include "weft/spec/cluster.h"
#include "weft/spec/model.h"
#include "weft/spec/workload.h"

namespace weft {

/// How long one block took on one device: compute alone, at the shapes that a rank has after tensor and expert
/// parallelism.
struct BlockMeasurement {
  ModuleKind module = ModuleKind::kLlm;
  std::string block;  ///< its name: "layer", "head"
  int64_t tp = 1;
  int64_t ep = 1;
  bool sequence_parallel = false;
  AttentionKernel attention = AttentionKernel::kFused;
  double tokens = 0;           ///< of the module, at once
  double sequence_tokens = 0;  ///< of each sequence
  double forward_ms = 0;
  double backward_input_ms = 0;
  double backward_weight_ms = 0;
};

/// How long a collective took over links of one kind.
struct LinkMeasurement {
  bool is_between_nodes = false;
  std::string collective;  ///< "all_reduce", "all_gather" or "reduce_scatter"
  int64_t ranks = 0;
  int64_t ranks_per_node = 1;  ///< of those, where nodes are crossed
  double bytes = 0;            ///< of the whole tensor
  double ms = 0;
};

/// The table of measured blocks and links of one model on one kind of device.
struct Profile {
  std::string source;  ///< the file, for messages
  std::string device;  ///< as in the cluster
  std::string model;   ///< as in its file's name
  std::string model_hash;
  Precision precision = Precision::kBf16;
  std::vector<BlockMeasurement> blocks;
  std::vector<LinkMeasurement> links;
};

/// Unknown keys are rejected.
Result<Profile> read_profile(const Document& document);
Result<Profile> read_profile_file(const std::filesystem::path& path);
/// The inverse of read_profile.
Json to_json(const Profile& profile);

}  // namespace weft
