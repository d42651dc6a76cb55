#pragma once

#include <cstdint>
#include <span>

namespace weft {

/// What encoders beside a pipeline hold on its ranks at least, in GiB.
struct BesideGib {
  double all = 0;          ///< on every rank, while the pipeline runs
  double last = 0;         ///< more of it on the last rank
  double moment = 0;       ///< more while they run themselves, when only what ranks always hold is there besides
  double last_moment = 0;  ///< the same on the last rank

  double least() const { return all + last + last_moment; }
  auto operator<=>(const BesideGib&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Layers of one kind that lie on pipeline ranks in whole numbers but in any order, and other work that may be divided
/// at will and weighs nothing: a relaxation of every placement, whose bottleneck no placement undercuts.
struct FluidChain {
  int64_t pp = 1;
  int64_t microbatches = 1;
  double layers = 0;
  double layer_ms = 0;    ///< forward and backward of one microbatch
  double forward_ms = 0;  ///< what recomputing a layer adds, at least for what it saves
  double static_bytes = 0;
  double activation_bytes = 0;
  double recompute_saves_bytes = 0;
  double other_ms = 0;  ///< inline encoders, and what differs between layers
  double first_ms = 0;  ///< what only the first rank can do: the embedding
  double last_ms = 0;   ///< the same of the last: the head
  double memory_bytes = 0;
  double stage_bytes = 0;        ///< what every stage has on its way, however few its layers
  double passing_bytes = 0;      ///< what every rank has in passing while it runs a stage
  double workspace_bytes = 0;    ///< of a layer's action, which memory_bytes is without
  double first_rank_bytes = 0;   ///< what the first rank holds besides layers
  double last_rank_bytes = 0;    ///< the same of the last
  double first_state_bytes = 0;  ///< of these, what is there all the time
  double last_state_bytes = 0;
  double moment_bytes = 0;       ///< what encoders need while they run, and the pipeline does not
  double last_moment_bytes = 0;  ///< the same on the last rank
  /// The last stage lies where the first does: some layers of every rank are held as little as the last stage's.
  bool comes_back = false;

  void take(const BesideGib& beside);
  /// All of it, spread evenly over the ranks.
  double even_ms() const { return (layers * layer_ms + other_ms + first_ms + last_ms) / static_cast<double>(pp); }
  /// What the first rank, or the last, holds with its even share of the layers, all of them recomputed.
  double least_held_bytes() const;
};

/// What the ranks of a chain can take. Rank r holds at least in_flight[r] microbatches of each of its layers at once;
/// where that is not given, min(pp − r, microbatches), as every schedule does whose chunks do not come back, and one
/// where they do. What is handed in must outlive this.
class FluidRanks {
 public:
  explicit FluidRanks(const FluidChain& chain, std::span<const double> in_flight = {})
      : chain_(chain), in_flight_(in_flight) {}

  /// How many layers a rank can take without working longer than so long for one microbatch.
  double most_layers(int64_t rank, double bottleneck_ms) const;
  /// How many of them without recomputation.
  double plain_layers(int64_t rank) const;
  /// What recomputation one more layer costs a rank that has its plain ones; infinite where there is none.
  double recompute_ms(int64_t rank) const;
  /// Whether everything finds room.
  bool is_enough(double bottleneck_ms) const;

 private:
  double held_by(int64_t rank) const;
  double memory_of(int64_t rank) const;
  /// For what is there all the time, while encoders run.
  double state_memory_of(int64_t rank) const;
  double plain_bytes(int64_t rank) const;

  const FluidChain& chain_;
  std::span<const double> in_flight_;
};

/// The least time that the busiest rank needs for one microbatch; infinite where the layers fit in no way. `in_flight`
/// is as for FluidRanks.
double least_bottleneck_ms(const FluidChain& chain, std::span<const double> in_flight = {});

}  // namespace weft
