#include <cmath>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/spec/model_reader.h"
#include "weft/spec/sample_load.h"
#include "weft/spec/work.h"

using namespace weft;

namespace {

const Workload& workload() {
  static const Workload small = *read_workload(
      *parse_document("{global_batch_samples: 2, text_tokens: [1, 50], images_per_sample: [0, 3],"
                      " patches_per_image: 144, audio_clips_per_sample: 1, audio_seconds_per_clip: [0.05, 7]}",
                      "w", Syntax::kYaml),
      "w");
  return small;
}

}  // namespace

/// A model that is read can be counted, and its work under a workload is finite or refused.
int weft::fuzz_model(const uint8_t* data, size_t size) {
  const Result<Document> document = document_of(data, size);
  if (!document) return 0;
  const Result<Model> model = read_model(*document, "input");
  if (!model) {
    claim_good_message(model);
    return 0;
  }
  int64_t total = 0;
  for (const Module& module : model->modules) {
    claim(num_parameters(module) > 0 && !module.layers.empty());
    claim(saved_bytes_per_token(module, Precision::kBf16) > 0);
    total += num_parameters(module);
  }
  claim(total == num_parameters(*model) && total <= static_cast<int64_t>(1e17));
  const Result<SampleLoad> load = average_sample(*model, workload());
  if (!load) {
    claim_good_message(load);
    return 0;
  }
  const Result<double> flops = training_step_flops(*model, workload(), *load);
  if (!flops) {
    claim_good_message(flops);
  } else {
    claim(std::isfinite(*flops) && *flops > 0);
  }
  return 0;
}
