#include "weft/families/parts/multimodal_text.h"
#include "weft/families/parts/patch_encoder.h"

namespace weft {
namespace {

constexpr IntegerRange kTokenRateRange{1, 1'000'000};

void read_qwen2_5_vl(Fields& config, DeclaredModel& model) {
  const TextConfig text = read_nested_text(config, model);
  Fields vision = config.object("vision_config");
  model.modules.push_back(
      read_windowed_patch_encoder(vision, text.width, /*has_separate_qkv=*/false, "visual.", model));
  model.modules.push_back(make_text_module(text, model.has_tied_embeddings));
  model.numbers.vision->processors = {"Qwen2VL", "Qwen2_5"};
  model.numbers.media = read_media_rules(config, TimeRule::kSeconds, *model.numbers.vision);
  model.numbers.media.tokens_per_second = vision.integer_or("tokens_per_second", 4, kTokenRateRange);
  model.numbers.files = nested_weight_files();
}

}  // namespace

std::vector<Family> qwen2_5_vl_families() {
  return {{"qwen2_5_vl", read_qwen2_5_vl}};
}

}  // namespace weft
