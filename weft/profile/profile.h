#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weft/base/document.h"
#include "weft/program/operator_part.h"
#include "weft/spec/cluster.h"
#include "weft/spec/model.h"
#include "weft/spec/workload.h"

namespace weft {

/// What one rank runs of a block: the shapes that are left after all parallelism.
struct BlockShape {
  ModuleKind module = ModuleKind::kLlm;
  std::string block;          ///< its name: "layer", "head"
  std::string strategy = {};  ///< of a layer that has one: BlockProgram::words
  int64_t tp = 1;
  int64_t cp = 1;
  int64_t cp_ulysses = 1;
  int64_t ep = 1;
  bool sequence_parallel = false;
  bool experts_over_tp = false;
  AttentionKernel attention = AttentionKernel::kFused;
  int64_t busy_ranks = 1;      ///< of the machine that computed at the same time, this one with them
  double tokens = 0;           ///< of the module, at once, before context parallelism divides them
  double sequence_tokens = 0;  ///< of each sequence

  bool operator==(const BlockShape&) const = default;
};

/// How well a time is known.
struct Sureness {
  int64_t runs = 0;           ///< whose median it is; 0 where it is not known
  double spread_percent = 0;  ///< the half width of the median's 95 % interval, of the median

  bool operator==(const Sureness&) const = default;
};

/// How long one block took on one device, without communication, and what it held.
struct BlockMeasurement {
  BlockShape shape;
  double forward_ms = 0;
  double backward_input_ms = 0;
  double backward_weight_ms = 0;
  double attention_ms = 0;  ///< of the forward, what recomputation of attention repeats; 0 where it was not measured
  // Bytes of tensors; 0 where they were not measured.
  double kept_bytes = 0;           ///< from the forward to the backward
  double forward_peak_bytes = 0;   ///< while the forward runs, on top of weights; its input counts
  double backward_peak_bytes = 0;  ///< while the backward runs, the same with what is kept
  Sureness sureness;               ///< of the sum of its passes
};

/// How long the optimizer's step over so many elements took on one device: norm, update, weights written out.
struct UpdateMeasurement {
  int64_t busy_ranks = 1;
  double elements = 0;
  double ms = 0;
  Sureness sureness;
};

/// How long a collective took over links of one kind.
struct LinkMeasurement {
  bool is_between_nodes = false;
  std::string collective;  ///< "all_reduce", "all_gather", "reduce_scatter", "all_to_all" or "send"
  int64_t ranks = 0;
  int64_t ranks_per_node = 1;  ///< of those, where nodes are crossed
  double bytes = 0;            ///< of the whole tensor
  double ms = 0;
  Sureness sureness;
};

/// How long a part of an operator of a user's own program took on one rank: what it communicates inside counts, what
/// brings its operands does not.
struct OperatorMeasurement {
  OperatorPart part;
  int64_t busy_ranks = 1;
  double forward_ms = 0;
  double backward_input_ms = 0;
  double backward_weight_ms = 0;
  Sureness sureness;  ///< of the sum of its passes
};

/// The table of measured blocks and links of one model on one kind of device.
struct Profile {
  std::string source;    ///< the file, for messages
  std::string device;    ///< as in the cluster
  std::string software;  ///< what ran: "weft 0.9, LibTorch 2.11.0"; nothing where it is not known
  std::string date;      ///< of the last measurement, "2026-05-04"
  std::string model;     ///< as in its file's name
  std::string model_hash;
  Precision precision = Precision::kBf16;
  double action_ms = 0;         ///< of the executor around a forward or a backward; 0 where it was not measured
  double step_ms = 0;           ///< of a step besides its actions and updates; the same
  double reserved_bytes = 0;    ///< of the device before anything is made: its context; the same
  double clock_mhz = 0;         ///< of the device while blocks ran, the median; 0 where it is not known
  double lowest_clock_mhz = 0;  ///< the same, the lowest
  std::vector<BlockMeasurement> blocks;
  std::vector<OperatorMeasurement> operators;  ///< of a user's own program, in place of blocks
  std::vector<UpdateMeasurement> updates;
  std::vector<LinkMeasurement> links;
};

/// Unknown keys are rejected.
Result<Profile> read_profile(const Document& document);
Result<Profile> read_profile_file(const std::filesystem::path& path);
/// The inverse of read_profile.
Json to_json(const Profile& profile);
/// Writes a file that read_profile_file reads: a profile that is too large for it is refused.
std::optional<Error> write_profile_file(const std::filesystem::path& path, const Profile& profile);
/// Brings times, and how sure they are, into the ranges that read_profile allows: what follows from a run can be
/// anything.
void keep_in_range(Profile& profile);

}  // namespace weft
