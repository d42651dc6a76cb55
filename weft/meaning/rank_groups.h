#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/mesh/mesh.h"
#include "weft/plan/plan.h"

namespace weft {

/// Ranks that talk to each other, seen from one of them, by the name that training gives them.
struct RankGroup {
  std::string name;
  std::vector<int64_t> ranks;
  int64_t rank = 0;  ///< its place among them

  int64_t size() const { return static_cast<int64_t>(ranks.size()); }
};

/// Along joined axes of a module's mesh.
RankGroup group_along(const Mesh& mesh, int64_t rank, std::initializer_list<std::string_view> axes);

/// Of context parallelism, rank i of cp is number i % u of Ulysses group i / u, and a ring goes through the same place
/// of all Ulysses groups.
struct ContextRanks {
  RankGroup all;
  RankGroup ulysses;
  RankGroup ring;
};
ContextRanks context_ranks(const Mesh& mesh, int64_t rank, int64_t ulysses);

/// Neighbours along the joined cp and dp axes share out the experts.
struct ExpertRanks {
  RankGroup sharers;  ///< of all experts
  RankGroup copies;   ///< those that have the same
};
ExpertRanks expert_ranks(const Mesh& mesh, int64_t rank, int64_t ep);

/// The tensor-parallel ranks that have the same key heads of the llm; nothing where this one has its own alone.
std::optional<RankGroup> same_keys(const Plan& plan, const RankGroup& tensor);

/// The ranks of the stages with the two copies of a tied table that is trained; nothing where these are not two ranks,
/// or this is neither.
std::optional<RankGroup> table_ranks(const Plan& plan, const Mesh& mesh, int64_t rank);

/// The ranks between which the rows of an encoder beside the pipeline go, and their gradients come back: its last stage
/// and the llm's first.
struct BridgeEnd {
  int64_t rank = 0;
  std::optional<int64_t> makes;  ///< the encoder's data-parallel rank, where it makes rows
  bool takes = false;
};
std::vector<BridgeEnd> bridge_ends(const Plan& plan, size_t encoder);

}  // namespace weft
