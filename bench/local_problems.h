#pragma once

#include <string>
#include <vector>

namespace weft {

/// A problem of the plan search, by names and files.
struct LocalProblem {
  std::string name;
  std::string model, cluster;
  int nodes = 1;
  std::string workload;  ///< a name in scenarios/workloads, or a file of bench/workloads
  int samples = 0;       ///< of a step
};

/// Five of shipped models, clusters and workloads, and five whose samples have heavy tails.
inline const std::vector<LocalProblem>& local_problems() {
  static const std::vector<LocalProblem> kProblems = {
      {"vl-72b", "qwen2-vl-72b", "ascend_910b_16", 8, "vl_sft", 1024},
      {"omni", "qwen2.5-omni-7b", "hgx_h200", 1, "omni_short", 256},
      {"experts", "qwen3-30b-a3b", "dgx_h100", 2, "text_4k", 512},
      {"video", "qwen2.5-vl-7b", "hgx_h200", 2, "vl_long", 128},
      {"frozen", "qwen2.5-vl-32b", "dgx_h100", 4, "vl_frozen", 256},
      {"heavy-images", "qwen2.5-vl-7b", "dgx_h100", 4, "bench/workloads/heavy_images.yaml", 256},
      {"heavy-video", "qwen2.5-vl-72b", "hgx_h200", 8, "bench/workloads/heavy_video.yaml", 128},
      {"heavy-audio", "qwen2.5-omni-7b", "ascend_910b_8", 2, "bench/workloads/heavy_audio.yaml", 128},
      {"heavy-text", "qwen3-8b", "dgx_a100_80g", 2, "bench/workloads/heavy_text.yaml", 256},
      {"heavy-experts", "qwen3-30b-a3b", "hgx_h200", 4, "bench/workloads/heavy_text.yaml", 512}};
  return kProblems;
}

}  // namespace weft
