#include "weft/base/file_kind.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

namespace weft {
namespace {

struct KnownKind {
  FileKind kind;
  const char* name;
  std::vector<const char*> marks;  ///< any of these fields tells it
  const char* use;                 ///< where such a file is given
  const char* origin;              ///< where to get one
};

// The first that fits counts: a plan carries a model, a cluster and a workload, and has fields of a search file.
const std::array<KnownKind, 9>& known_kinds() {
  static const std::array<KnownKind, 9> kinds = {{
      {FileKind::kPlan, "a plan", {"weft_plan"}, "--plan", "'weft plan ... --out plan.json' makes one."},
      {FileKind::kProfile, "a profile", {"weft_profile"}, "--profile", "docs/manual/profiles.md describes one."},
      {FileKind::kModel,
       "a model configuration",
       {"model_type", "architectures"},
       "--model",
       "Give a Hugging Face config.json, or a name in scenarios/models."},
      {FileKind::kCluster,
       "a cluster",
       {"devices_per_node"},
       "--cluster",
       "Give a file like those in scenarios/clusters, or a name there."},
      {FileKind::kWorkload,
       "a workload",
       {"global_batch_samples", "text_tokens", "sequence_tokens"},
       "--workload",
       "Give a file like those in scenarios/workloads, or a name there."},
      {FileKind::kBalanceCosts,
       "costs of blocks for 'weft balance'",
       {"chain"},
       "--costs of 'weft balance'",
       "Give a file like those in scenarios/balance."},
      {FileKind::kPipelineCosts,
       "costs of stages for 'weft schedule'",
       {"forward_ms", "backward_input_ms", "backward_weight_ms"},
       "--costs of 'weft schedule'",
       "'weft schedule --help' says what it holds."},
      {FileKind::kTraining,
       "a training configuration",
       {"steps", "checkpoints", "learning_rate_schedule"},
       "--config of 'weft train'",
       "docs/manual/train.md describes one."},
      {FileKind::kSpace,
       "a search file",
       {"llm", "encoders", "vision", "audio", "recompute"},
       "--space of 'weft plan'",
       "docs/manual/plan.md describes one."},
  }};
  return kinds;
}

const char* mark_of(const Json& root, const KnownKind& kind) {
  for (const char* mark : kind.marks) {
    if (root.contains(mark)) return mark;
  }
  return nullptr;
}

}  // namespace

std::optional<Error> find_wrong_kind(const Document& document, FileKind needed) {
  if (!document.root.is_object()) return std::nullopt;
  const auto& kinds = known_kinds();
  const KnownKind& wanted =
      *std::find_if(kinds.begin(), kinds.end(), [&](const KnownKind& kind) { return kind.kind == needed; });
  if (mark_of(document.root, wanted) != nullptr) return std::nullopt;
  for (const KnownKind& kind : kinds) {
    const char* mark = mark_of(document.root, kind);
    if (mark == nullptr) continue;
    return Error{.source = document.source,
                 .problem = fmt::format("looks like {} (it has {}), not like {}", kind.name, mark, wanted.name),
                 .advice = fmt::format("It goes with {}. {}", kind.use, wanted.origin)};
  }
  return std::nullopt;
}

}  // namespace weft
