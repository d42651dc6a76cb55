#include "weft/families/parts/llm_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace weft {
namespace {

constexpr IntegerRange kSizeRange{1, int64_t{1} << 31};

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
RopeNumbers read_rope(Fields& config, const TextDefaults& defaults, int64_t max_positions, int64_t head_dim,
                      std::optional<Error>& not_run) {
  const bool has_axes = defaults.has_axes;
  RopeNumbers rope{.sections = {}, .interleaves_axes = defaults.interleaves_axes};
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
    const double inner = scaling.number_or("rope_theta", rope.theta, kPositiveRange);
    if (config.has("rope_theta") && inner != rope.theta) {
      config.complain("rope_theta", fmt::format("is {}, but {}.rope_theta is {}", rope.theta, key, inner),
                      "They are the same number. Leave one out.");
    }
    rope.theta = inner;
    const char* type_key = scaling.has("rope_type") ? "rope_type" : "type";
    static const std::array<std::string, 8> types = {"default",  "mrope",  "axial",  "dynamic",
                                                     "longrope", "linear", "llama3", "yarn"};
    constexpr size_t kFirstByLength = 3, kFirstScaled = 5;
    const size_t type = scaling.choice_or(type_key, 0, types);
    if (type >= kFirstByLength && type < kFirstScaled) {
      not_run =
          Error{.field = scaling.path_of(type_key),
                .problem = fmt::format("is {}, whose frequencies depend on the length of a sequence, which can be "
                                       "planned but not run",
                                       types[type]),
                .advice = "Use default, linear, llama3 or yarn."};
    }
    if (type >= kFirstScaled) {
      rope.scaling =
          std::array{RopeScaling::kLinear, RopeScaling::kByWavelength, RopeScaling::kYarn}[type - kFirstScaled];
      rope.factor = scaling.number("factor", kPositiveRange);
      rope.original_positions =
          scaling.number_or("original_max_position_embeddings", static_cast<double>(max_positions), kPositiveRange);
    }
    if (rope.scaling == RopeScaling::kByWavelength) {
      rope.low_frequency_factor = scaling.number("low_freq_factor", kPositiveRange);
      rope.high_frequency_factor = scaling.number("high_freq_factor", kPositiveRange);
    }
    if (rope.scaling == RopeScaling::kYarn) read_yarn(scaling, rope);
    if (scaling.has("partial_rotary_factor") && scaling.number("partial_rotary_factor", kPositiveRange) != 1) {
      scaling.complain("partial_rotary_factor", "is not 1, but heads are turned as a whole here");
    }
    if (has_axes) rope.sections = scaling.integers_or_empty("mrope_section", {0, 1 << 20});
    if (rope.interleaves_axes && !scaling.flag_or("mrope_interleaved", true)) {
      scaling.complain("mrope_interleaved", "is false, but the axes of this family's positions take turns",
                       "Leave the field out, or use a model of another family.");
    }
  }
  const bool has_own_sections = !rope.sections.empty();
  if (has_axes && !has_own_sections) rope.sections.assign(defaults.sections.begin(), defaults.sections.end());
  int64_t total = 0;
  for (const int64_t section : rope.sections) total += section;
  if (has_axes && total != head_dim / 2) {
    const std::string field = std::string(key) + ".mrope_section";
    const std::string problem =
        fmt::format("adds up to {}, but heads of {} have {} frequencies", total, head_dim, head_dim / 2);
    if (has_own_sections) {
      config.complain(field, problem);
    } else {
      not_run = Error{.field = config.path_of(field),
                      .problem = fmt::format("{}; the default is {}, {} and {}", problem, defaults.sections[0],
                                             defaults.sections[1], defaults.sections[2])};
    }
  } else if (rope.interleaves_axes && rope.sections.size() != 3) {
    config.complain(std::string(key) + ".mrope_section",
                    fmt::format("has {} entries, but there are three axes", rope.sections.size()));
  }
  return rope;
}

}  // namespace

Activation read_activation(Fields& config, std::string_view key, const std::string& fallback) {
  static const std::array<std::string, 6> names = {"silu",       "gelu",  "gelu_pytorch_tanh",
                                                   "quick_gelu", "swish", "gelu_new"};
  constexpr std::array kinds = {Activation::kSilu,      Activation::kGelu, Activation::kGeluTanh,
                                Activation::kQuickGelu, Activation::kSilu, Activation::kGeluTanh};
  const auto place = static_cast<size_t>(std::find(names.begin(), names.end(), fallback) - names.begin());
  return kinds[config.choice_or(key, place, names)];
}

void check_gated_activation(Fields& config) {
  if (read_activation(config, "hidden_act", "silu") != Activation::kSilu) {
    config.complain("hidden_act", "is not silu, the one activation that gated MLPs have here",
                    "Use a model of a known family as it was published.");
  }
}

std::vector<int64_t> read_end_ids(Fields& config) {
  const Json* value = config.raw("eos_token_id");
  if (value == nullptr) return {};
  if (value->is_array()) return config.integers_or_empty("eos_token_id", kTokenIdRange);
  return {config.integer("eos_token_id", kTokenIdRange)};
}

LlmNumbers read_text_numbers(Fields& config, const TextDefaults& defaults, TextConfig& text) {
  LlmNumbers numbers;
  text.norm_epsilon = config.number_or("rms_norm_eps", defaults.norm_epsilon, {0, 1});
  numbers.max_positions = config.integer_or("max_position_embeddings", defaults.max_positions, kSizeRange);
  numbers.rope = read_rope(config, defaults, numbers.max_positions, text.heads.head_dim, numbers.not_run);
  if (numbers.rope.scaling == RopeScaling::kYarn || numbers.rope.scaling == RopeScaling::kLinear) {
    // The stretched context, which files do not always count as positions.
    const double base = numbers.rope.original_positions;
    numbers.max_positions =
        std::max(numbers.max_positions, static_cast<int64_t>(std::min(base * numbers.rope.factor, 1e12)));
  }
  numbers.normalizes_expert_weights = config.flag_or("norm_topk_prob", false);
  numbers.balance_coefficient = config.number_or("router_aux_loss_coef", 0.001, {0, 1e3});
  numbers.end_ids = read_end_ids(config);
  check_gated_activation(config);
  return numbers;
}

}  // namespace weft
