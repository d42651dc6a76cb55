#include "weft/models/numbers.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/models/layer_shape.h"

namespace weft {
namespace {

constexpr IntegerRange kTokenRange{0, int64_t{1} << 31};
constexpr IntegerRange kSizeRange{1, int64_t{1} << 31};
constexpr IntegerRange kRateRange{1, 1'000'000};
constexpr NumberRange kPositiveRange{1e-30, 1e30};

/// What Hugging Face assumes where a configuration is silent.
struct Defaults {
  double norm_epsilon = 1e-6;
  double theta = 10000;
  int64_t max_positions = 32768;
};

Activation read_activation(Fields& config, std::string_view key, std::string fallback) {
  static const std::array<std::string, 5> names = {"silu", "gelu", "gelu_pytorch_tanh", "quick_gelu", "swish"};
  constexpr std::array kinds = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu,
                                Activation::kSilu};
  const auto place = static_cast<size_t>(std::find(names.begin(), names.end(), fallback) - names.begin());
  return kinds[config.choice_or(key, place, names)];
}

void check_gated_activation(Fields& config) {
  if (read_activation(config, "hidden_act", "silu") != Activation::kSilu) {
    config.complain("hidden_act", "is not silu, the one activation that gated MLPs have here",
                    "Use a model of a known family as it was published.");
  }
}

void read_yarn(Fields& scaling, RopeNumbers& rope) {
  rope.beta_fast = scaling.number_or("beta_fast", 32, kPositiveRange);
  rope.beta_slow = scaling.number_or("beta_slow", 1, kPositiveRange);
  rope.truncates = scaling.flag_or("truncate", true);
  const auto amplitude = [&](double weight) {
    return rope.factor <= 1 ? 1.0 : 0.1 * weight * std::log(rope.factor) + 1;
  };
  const double mscale = scaling.number_or("mscale", 0, {0, 1e6});
  const double mscale_all = scaling.number_or("mscale_all_dim", 0, {0, 1e6});
  const double inferred = mscale > 0 && mscale_all > 0 ? amplitude(mscale) / amplitude(mscale_all) : amplitude(1);
  rope.amplitude = scaling.number_or("attention_factor", inferred, kPositiveRange);
}

/// New files keep everything in rope_parameters, old ones rope_theta beside an optional rope_scaling.
RopeNumbers read_rope(Fields& config, const Defaults& defaults, int64_t max_positions, int64_t head_dim,
                      bool has_axes) {
  RopeNumbers rope;
  rope.theta = config.number_or("rope_theta", defaults.theta, kPositiveRange);
  const auto is_given = [&](const char* name) {
    const Json* value = config.raw(name);
    return value != nullptr && !value->empty();
  };
  if (is_given("rope_parameters") && is_given("rope_scaling")) {
    config.complain("rope_scaling", "is given beside rope_parameters, and either could be meant",
                    "Put everything into one of the two.");
  }
  const char* key = is_given("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (is_given(key)) {
    Fields scaling = config.object(key);
    rope.theta = scaling.number_or("rope_theta", rope.theta, kPositiveRange);
    const char* type_key = scaling.has("rope_type") ? "rope_type" : "type";
    static const std::array<std::string, 6> types = {"default", "mrope", "axial", "linear", "llama3", "yarn"};
    const size_t type = scaling.choice_or(type_key, 0, types);
    if (type >= 3) {
      rope.scaling = std::array{RopeScaling::kLinear, RopeScaling::kLlama3, RopeScaling::kYarn}[type - 3];
      rope.factor = scaling.number("factor", kPositiveRange);
      rope.original_positions =
          scaling.number_or("original_max_position_embeddings", static_cast<double>(max_positions), kPositiveRange);
    }
    if (rope.scaling == RopeScaling::kLlama3) {
      rope.low_frequency_factor = scaling.number("low_freq_factor", kPositiveRange);
      rope.high_frequency_factor = scaling.number("high_freq_factor", kPositiveRange);
    }
    if (rope.scaling == RopeScaling::kYarn) read_yarn(scaling, rope);
    if (scaling.has("partial_rotary_factor") && scaling.number("partial_rotary_factor", kPositiveRange) != 1) {
      scaling.complain("partial_rotary_factor", "is not 1, but heads are turned as a whole here");
    }
    if (has_axes) rope.sections = scaling.integers_or_empty("mrope_section", {0, 1 << 20});
  }
  if (has_axes && rope.sections.empty()) rope.sections = {16, 24, 24};
  int64_t total = 0;
  for (const int64_t section : rope.sections) total += section;
  if (has_axes && total != head_dim / 2) {
    config.complain(std::string(key) + ".mrope_section",
                    fmt::format("adds up to {}, but heads of {} have {} frequencies", total, head_dim, head_dim / 2));
  }
  return rope;
}

std::vector<int64_t> read_end_ids(Fields& config) {
  const Json* value = config.raw("eos_token_id");
  if (value == nullptr) return {};
  if (value->is_array()) return config.integers_or_empty("eos_token_id", kTokenRange);
  return {config.integer("eos_token_id", kTokenRange)};
}

TextNumbers read_text(Fields& config, const Defaults& defaults, const Module& llm, bool has_axes) {
  TextNumbers text;
  text.norm_epsilon = config.number_or("rms_norm_eps", defaults.norm_epsilon, {0, 1});
  text.deviation = config.number_or("initializer_range", 0.02, {0, 1e3});
  text.padding_id = config.integer_or("pad_token_id", -1, {-1, kTokenRange.max});
  text.max_positions = config.integer_or("max_position_embeddings", defaults.max_positions, kSizeRange);
  text.rope =
      read_rope(config, defaults, text.max_positions, layer_shape(llm.layer_kinds.front()).heads.head_dim, has_axes);
  if (text.rope.scaling == RopeScaling::kYarn || text.rope.scaling == RopeScaling::kLinear) {
    // The stretched context, which files do not always count as positions.
    const double base = text.rope.original_positions;
    text.max_positions = std::max(text.max_positions, static_cast<int64_t>(std::min(base * text.rope.factor, 1e12)));
  }
  const int64_t entries = std::get<Lookup>(op_named(llm.entry, "embedding").shape).entries;
  if (text.padding_id >= entries) {
    config.complain("pad_token_id", fmt::format("is {}, but vocab_size is {}", text.padding_id, entries));
  }
  text.normalizes_expert_weights = config.flag_or("norm_topk_prob", false);
  text.balance_coefficient = config.number_or("router_aux_loss_coef", 0.001, {0, 1e3});
  text.end_ids = read_end_ids(config);
  check_gated_activation(config);
  return text;
}

VisionNumbers read_vision(Fields& config, bool is_first_generation, int64_t head_dim) {
  VisionNumbers vision;
  if (is_first_generation) {
    vision.activation = read_activation(config, "hidden_act", "quick_gelu");
  } else {
    check_gated_activation(config);
    vision.activation = Activation::kSilu;
    vision.window_size = config.integer_or("window_size", 112, kSizeRange);
  }
  if (head_dim % 4 != 0) {
    config.complain("num_heads", fmt::format("gives heads of {} elements; half of them turn by the row and half by the "
                                             "column, so a multiple of 4 is needed",
                                             head_dim));
  }
  vision.deviation = config.number_or("initializer_range", 0.02, {0, 1e3});
  const char* channels_key = config.has("in_channels") ? "in_channels" : "in_chans";
  vision.channels = config.integer_or(channels_key, 3, kSizeRange);
  vision.patch_size = config.integer_or("patch_size", 14, kSizeRange);
  vision.temporal_patch_size = config.integer_or("temporal_patch_size", 2, kSizeRange);
  vision.merge_size = config.integer_or("spatial_merge_size", 2, kSizeRange);
  if (config.has("rope_parameters")) {
    vision.rope_theta = config.object("rope_parameters").number_or("rope_theta", 10000, kPositiveRange);
  }
  return vision;
}

AudioNumbers read_audio(Fields& config) {
  AudioNumbers audio;
  audio.activation = read_activation(config, "activation_function", "gelu");
  audio.deviation = config.number_or("initializer_range", 0.02, {0, 1e3});
  audio.mel_bins = config.integer_or("num_mel_bins", 128, kSizeRange);
  audio.half_window = config.integer_or("n_window", 100, kSizeRange);
  audio.max_positions = config.integer_or("max_source_positions", 1500, kSizeRange);
  if (const int64_t width = config.integer_or("d_model", 1280, kSizeRange); width % 2 != 0 || width < 4) {
    config.complain(
        "d_model", fmt::format("is {}; positions are sines and cosines, so an even number from 4 on is needed", width));
  }
  return audio;
}

/// The thinker's configuration says "index" where the others say "id".
int64_t read_token(Fields& config, const std::string& name, int64_t fallback) {
  const std::string by_index = name + "_index";
  const std::string key = config.has(by_index) ? by_index : name + "_id";
  return config.integer_or(key, fallback, kTokenRange);
}

void read_multimodal(Fields& config, RopeFamily family, const Model& model, ModelNumbers& numbers) {
  const bool is_omni = family == RopeFamily::kQwen25Omni;
  const Defaults defaults{.norm_epsilon = is_omni ? 1e-6 : 1e-5, .theta = 1e6};
  const Module& llm = model.modules.back();
  if (config.has("text_config")) {
    Fields text = config.object("text_config");
    numbers.text = read_text(text, defaults, llm, true);
  } else {
    numbers.text = read_text(config, defaults, llm, true);
  }
  Fields vision = config.object("vision_config");
  const LayerShape vision_layer = layer_shape(model.find(ModuleKind::kVision)->layer_kinds.front());
  numbers.vision = read_vision(vision, family == RopeFamily::kQwen2Vl, vision_layer.heads.head_dim);
  numbers.vision->has_separate_qkv = is_omni;

  numbers.media.family = family;
  numbers.media.merge_size = numbers.vision->merge_size;
  numbers.media.tokens = {.image = read_token(config, "image_token", 151655),
                          .video = read_token(config, "video_token", 151656),
                          .vision_start = config.integer_or("vision_start_token_id", 151652, kTokenRange),
                          .vision_end = config.integer_or("vision_end_token_id", 151653, kTokenRange)};
  numbers.media.tokens_per_second = vision.integer_or("tokens_per_second", 4, kRateRange);
  if (!is_omni) return;
  Fields audio = config.object("audio_config");
  numbers.audio = read_audio(audio);
  numbers.media.tokens.audio = read_token(config, "audio_token", 151646);
  numbers.media.tokens.audio_start = config.integer_or("audio_start_token_id", 151647, kTokenRange);
  numbers.media.tokens.audio_end = config.integer_or("audio_end_token_id", 151648, kTokenRange);
  numbers.media.clock.positions_per_second = config.integer_or("position_id_per_seconds", 25, kRateRange);
  numbers.media.clock.seconds_per_chunk = config.number_or("seconds_per_chunk", 2, {1e-6, 86400});
  if (numbers.media.clock.positions_per_chunk() < 1) {
    config.complain("seconds_per_chunk", "is so short that no position falls into a chunk",
                    "Give at least 1 / position_id_per_seconds.");
  }
}

}  // namespace

Result<ModelNumbers> read_numbers(const Model& model) {
  const Document document{.source = "model " + model.name, .root = model.config};
  Findings findings(document.source);
  Fields config(document, findings);
  ModelNumbers numbers;
  if (model.family == "qwen2_vl") {
    read_multimodal(config, RopeFamily::kQwen2Vl, model, numbers);
  } else if (model.family == "qwen2_5_vl") {
    read_multimodal(config, RopeFamily::kQwen25Vl, model, numbers);
  } else if (model.family == "qwen2_5_omni_thinker") {
    read_multimodal(config, RopeFamily::kQwen25Omni, model, numbers);
  } else if (model.family == "qwen2_5_omni") {
    Fields thinker = config.object("thinker_config");
    read_multimodal(thinker, RopeFamily::kQwen25Omni, model, numbers);
    numbers.weight_prefix = "thinker.";
  } else if (model.family == "llama" || model.family == "qwen2" || model.family == "qwen3" ||
             model.family == "qwen3_moe") {
    numbers.text =
        read_text(config, {.max_positions = model.family == "llama" ? 2048 : 32768}, model.modules.back(), false);
  } else {
    return Error{.source = document.source,
                 .field = "model_type",
                 .problem = fmt::format("is {}, which can be planned but not run; llama, qwen2, qwen3, qwen3_moe, "
                                        "qwen2_vl, qwen2_5_vl, qwen2_5_omni and qwen2_5_omni_thinker can",
                                        model.family),
                 .advice = "Run a model of one of these families."};
  }
  if (findings.first()) return *findings.first();
  return numbers;
}

}  // namespace weft
