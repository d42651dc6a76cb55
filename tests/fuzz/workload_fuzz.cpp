#include <cmath>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/spec/model_reader.h"
#include "weft/spec/sample_load.h"

using namespace weft;

namespace {

const Model& omni_model() {
  static const Model model = *read_model(*parse_document(R"({"model_type": "qwen2_5_omni_thinker",
        "text_config": {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4},
        "vision_config": {"depth": 2, "hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 24, "num_heads": 2, "fullatt_block_indexes": [1]},
        "audio_config": {"num_mel_bins": 8, "d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16, "output_dim": 32}})",
                                                         "m", Syntax::kJson),
                                         "m");
  return model;
}

void claim_distribution(const Distribution& d) {
  double total = 0;
  double last = -HUGE_VAL;
  for (const auto& [value, probability] : d.outcomes()) {
    claim(std::isfinite(value) && value > last && probability > 0);
    last = value;
    total += probability;
  }
  claim(std::abs(total - 1) < 1e-6);
}

}  // namespace

/// A workload that is read has sound distributions, and fits a small omni model or is refused.
int weft::fuzz_workload(const uint8_t* data, size_t size) {
  const Result<Document> document = document_of(data, size);
  if (!document) return 0;
  const Result<Workload> workload = read_workload(*document, "input");
  if (!workload) {
    claim_good_message(workload);
    return 0;
  }
  for (const Distribution* d : {&workload->tokens, &workload->images.pieces_per_sample, &workload->images.size,
                                &workload->audio.pieces_per_sample, &workload->audio.size}) {
    claim_distribution(*d);
  }
  if (workload->images.pieces_per_sample.max() > 64) return 0;  // slow, and no different
  const Result<SampleLoad> load = average_sample(omni_model(), *workload);
  if (!load) {
    claim_good_message(load);
    return 0;
  }
  const Result<double> flops = training_step_flops(omni_model(), *workload, *load);
  if (!flops) {
    claim_good_message(flops);
  } else {
    claim(std::isfinite(*flops) && *flops > 0);
  }
  return 0;
}
