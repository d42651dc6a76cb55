#include "weft/spec/model_reader.h"

#include <array>
#include <functional>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file_kind.h"
#include "weft/base/text.h"
#include "weft/spec/encoder_readers.h"
#include "weft/spec/limits.h"
#include "weft/spec/llm_reader.h"

namespace weft {
namespace {

constexpr LlmFamily kLlama{.reads_attention_bias = true,
                           .reads_mlp_bias = true,
                           .reads_head_dim = true,
                           .heads_divide_width = true,
                           .can_slide = false};
constexpr LlmFamily kQwen2{
    .default_kv_heads = 32, .has_qkv_bias = true, .reads_head_dim = true, .slides_per_layer = true};
constexpr LlmFamily kQwen3{.default_kv_heads = 32,
                           .reads_attention_bias = true,
                           .reads_head_dim = true,
                           .default_head_dim = 128,
                           .norms_heads = true,
                           .slides_per_layer = true};
constexpr LlmFamily kQwen3Moe{
    .default_kv_heads = 4, .reads_attention_bias = true, .reads_head_dim = true, .norms_heads = true, .is_moe = true};
constexpr LlmFamily kQwenMultimodal{
    .default_kv_heads = 8, .default_window_layers = 80, .has_qkv_bias = true, .slides_per_layer = true};
constexpr LlmSizes kQwenVlSizes{.vocabulary = 152064, .width = 8192, .intermediate = 29568, .layers = 80, .heads = 64};
constexpr LlmSizes kOmniSizes{.vocabulary = 152064, .width = 3584, .intermediate = 18944, .layers = 28, .heads = 28};

void read_text_model(Fields& config, const LlmFamily& family, Model& model) {
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  model.modules.push_back(read_llm(config, family, model.has_tied_embeddings));
}

/// Old files have the language model's fields at the root, new ones under text_config.
Module read_multimodal_llm(Fields& config, Model& model) {
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  if (!config.has("text_config")) return read_llm(config, kQwenMultimodal, model.has_tied_embeddings);
  Fields text = config.object("text_config");
  // Files from before transformers 5 tie in the inner configuration.
  model.has_tied_embeddings |= text.flag_or("tie_word_embeddings", false);
  LlmFamily family = kQwenMultimodal;
  family.default_sizes = kQwenVlSizes;
  return read_llm(text, family, model.has_tied_embeddings);
}

using VisionReader = Module (*)(Fields&, int64_t, MediaGeometry&);

void read_vision_language_model(Fields& config, VisionReader read_vision, Model& model) {
  Module llm = read_multimodal_llm(config, model);
  Fields vision = config.object("vision_config");
  model.modules.push_back(read_vision(vision, llm.width, model.media));
  model.modules.push_back(std::move(llm));
}

void read_thinker(Fields& config, Model& model) {
  // Here the outer flag alone decides: the inner one defaults to true and is not used.
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  Fields text = config.object("text_config");
  Fields vision = config.object("vision_config");
  Fields audio = config.object("audio_config");
  LlmFamily family = kQwenMultimodal;
  family.default_sizes = kOmniSizes;
  family.default_kv_heads = 4;
  family.default_window_layers = 28;
  Module llm = read_llm(text, family, model.has_tied_embeddings);
  model.modules.push_back(read_qwen2_5_vision(vision, llm.width, model.media));
  model.modules.push_back(read_qwen2_5_audio(audio, llm.width, model.media));
  model.modules.push_back(std::move(llm));
}

struct Family {
  std::string model_type;
  std::function<void(Fields&, Model&)> read;
};

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"gpt2",
       [](Fields& config, Model& model) {
         model.has_tied_embeddings = config.flag_or("tie_word_embeddings", true);
         model.modules.push_back(read_gpt2(config, model.has_tied_embeddings));
       }},
      {"llama", [](Fields& config, Model& model) { read_text_model(config, kLlama, model); }},
      {"qwen2", [](Fields& config, Model& model) { read_text_model(config, kQwen2, model); }},
      {"qwen3", [](Fields& config, Model& model) { read_text_model(config, kQwen3, model); }},
      {"qwen3_moe", [](Fields& config, Model& model) { read_text_model(config, kQwen3Moe, model); }},
      {"qwen2_vl", [](Fields& config, Model& model) { read_vision_language_model(config, read_qwen2_vision, model); }},
      {"qwen2_5_vl",
       [](Fields& config, Model& model) { read_vision_language_model(config, read_qwen2_5_vision, model); }},
      {"qwen2_5_omni_thinker", read_thinker},
      // The whole of Qwen2.5-Omni: its thinker is what is trained; talker and vocoder are left out.
      {"qwen2_5_omni",
       [](Fields& config, Model& model) {
         Fields thinker = config.object("thinker_config");
         read_thinker(thinker, model);
       }},
  };
  return all;
}

/// An estimate that cannot overflow, to be sure that the exact count does not.
double estimated_parameters(const Model& model) {
  double total = 0;
  for (const Module& module : model.modules) {
    total += static_cast<double>(num_parameters(module.entry)) + static_cast<double>(num_parameters(module.exit));
    for (const size_t kind : module.layers) total += static_cast<double>(num_parameters(module.layer_kinds[kind]));
  }
  return total;
}

}  // namespace

Result<Model> read_model(const Document& config, std::string name) {
  if (auto error = find_wrong_kind(config, FileKind::kModel)) return *std::move(error);
  Findings findings(config.source);
  Fields fields(config, findings);
  const std::string type = fields.text("model_type");
  if (findings.first()) return *findings.first();

  Model model{.name = std::move(name), .family = type, .config = config.root};
  std::vector<std::string> known;
  for (const Family& family : families()) {
    known.push_back(family.model_type);
    if (family.model_type == type) {
      family.read(fields, model);
      if (findings.first()) return *findings.first();
      if (const double parameters = estimated_parameters(model); parameters > kMostParameters) {
        return Error{.source = config.source,
                     .field = "num_hidden_layers",
                     .problem = fmt::format(
                         "with these sizes the model would have {:.2g} parameters, at most {:.0g} are supported",
                         parameters, kMostParameters),
                     .advice = "Check the sizes."};
      }
      return model;
    }
  }
  return Error{.source = config.source,
               .field = "model_type",
               .problem = fmt::format("is {}, a family that Weft does not know; known are {}", in_quotes(type),
                                      joined_or(known)),
               .advice = "Use a model of a known family." + did_you_mean(type, known)};
}

Result<Model> read_model_file(const std::filesystem::path& path) {
  std::filesystem::path file = path;
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  if (is_folder) {
    file = path / "config.json";
    if (std::filesystem::status(file, ignored).type() == std::filesystem::file_type::not_found) {
      return Error{.source = path.string(),
                   .problem = "is a folder without a config.json",
                   .advice = "Give a Hugging Face model folder, or the configuration file itself."};
    }
  }
  WEFT_TRY(const Document document, read_document(file));
  const std::filesystem::path named = std::filesystem::absolute(path).lexically_normal();
  const std::string name =
      is_folder ? (named.has_filename() ? named : named.parent_path()).filename().string() : named.stem().string();
  return read_model(document, name);
}

}  // namespace weft
