#include "weft/families/parts/multimodal_text.h"
#include "weft/families/parts/patch_encoder.h"
#include "weft/families/qwen2_5_omni/audio.h"

namespace weft {
namespace {

constexpr IntegerRange kClockRateRange{1, 1'000'000};
constexpr TextSizes kOmniSizes{.vocabulary = 152064, .width = 3584, .intermediate = 18944, .layers = 28, .heads = 28};
constexpr TextDefaults kOmniDefaults{.theta = 1e6, .has_axes = true};

void read_thinker(Fields& config, DeclaredModel& model, const std::string& prefix) {
  // Here the outer flag alone decides: the inner one defaults to true and is not used.
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  Fields text = config.object("text_config");
  Fields vision = config.object("vision_config");
  Fields audio = config.object("audio_config");
  const TextConfig llm = read_multimodal_text(text, kOmniSizes, 4, 28, kOmniDefaults, model.numbers);
  model.modules.push_back(
      read_windowed_patch_encoder(vision, llm.width, /*has_separate_qkv=*/true, prefix + "visual.", model));
  model.modules.push_back(read_omni_audio(audio, llm.width, prefix, model));
  model.modules.push_back(make_text_module(llm, model.has_tied_embeddings, prefix));

  model.numbers.vision->processors = {"Qwen2VL", "Qwen2_5"};
  RopeRules& media = model.numbers.media;
  media = read_media_rules(config, TimeRule::kClock, *model.numbers.vision);
  media.tokens.audio = read_token(config, "audio_token", 151646);
  media.tokens.audio_start = config.integer_or("audio_start_token_id", 151647, kTokenIdRange);
  media.tokens.audio_end = config.integer_or("audio_end_token_id", 151648, kTokenIdRange);
  media.clock.positions_per_second = config.integer_or("position_id_per_seconds", 25, kClockRateRange);
  media.clock.seconds_per_chunk = config.number_or("seconds_per_chunk", 2, {1e-6, 86400});
  if (media.clock.positions_per_chunk() < 1) {
    config.complain("seconds_per_chunk", "is so short that no position falls into a chunk",
                    "Give at least 1 / position_id_per_seconds.");
  }
  // What is said of the thinker as a whole goes before what is said of its language model.
  if (std::vector<int64_t> ids = read_end_ids(config); !ids.empty()) model.numbers.llm.end_ids = std::move(ids);
  model.numbers.files = nested_weight_files();
  model.numbers.files.renamed.emplace_back("model.audio_tower.", "audio_tower.");
  model.numbers.files.unused_endings.emplace_back("positional_embedding.positional_embedding");
}

/// The whole model: its thinker is what is trained; talker and vocoder are left out.
void read_omni(Fields& config, DeclaredModel& model) {
  Fields thinker = config.object("thinker_config");
  read_thinker(thinker, model, "thinker.");
  model.numbers.files.unused_beginnings = {"talker.", "token2wav."};
}

}  // namespace

std::vector<Family> qwen2_5_omni_families() {
  return {{"qwen2_5_omni_thinker", [](Fields& config, DeclaredModel& model) { read_thinker(config, model, ""); }},
          {"qwen2_5_omni", read_omni}};
}

}  // namespace weft
