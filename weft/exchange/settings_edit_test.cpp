#include "weft/exchange/settings_edit.h"

#include <gtest/gtest.h>

#include "tests/support/exchange/plans_to_export.h"
#include "tests/support/source_tree.h"
#include "weft/spec/scenario.h"

namespace weft::settings_edit_test {
namespace {

ImportRequest request_with(const std::string& tp) {
  const std::string script =
      "torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py \\\n"
      "  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \\\n"
      "  --position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear \\\n"
      "  --untie-embeddings-and-output-weights --vocab-size 128256 --seq-length 4096 \\\n"
      "  --max-position-embeddings 8192 --micro-batch-size 1 --global-batch-size 64 --bf16 --lr 3e-4 \\\n"
      "  --accumulate-allreduce-grads-in-fp32 \\\n"
      "  --train-iters 10 \\\n"
      "  --tensor-model-parallel-size " +
      tp + "\n";
  return {.system = Target::kMegatron,
          .files = {{.name = "train.sh", .text = script}},
          .arguments = "",
          .cluster = *Scenarios(source_tree() / "scenarios").cluster("dgx_h100")};
}

/// Plans that were searched for list what each chunk recomputes even where that is nothing; imported ones do not.
TEST(SettingsEdit, ChangesTheLinesOfASettingWhereThePlanHasAnEmptyListOfRecomputation) {
  const ImportRequest request = request_with("4");
  const ImportedRun run = *import_settings(request);
  Plan wanted = import_settings(request_with("2"))->plan;
  wanted.modules.back().recompute = {{Recompute{}}};
  wanted.predicted = {.step_time_ms = 1, .peak_memory_gib = {1}, .throughput_samples_per_s = 1};
  const Result<SettingsEdit> edit = edit_settings(request, run, wanted);
  ASSERT_TRUE(edit) << edit.error().message();
  ASSERT_EQ(edit->files.size(), 1u);
  EXPECT_EQ(difference_of(request.files.front(), edit->files.front()),
            "--- train.sh\n+++ train.sh\n@@ line 8 @@\n"
            "-  --tensor-model-parallel-size 4\n+  --tensor-model-parallel-size 2\n");
}

}  // namespace
}  // namespace weft::settings_edit_test
