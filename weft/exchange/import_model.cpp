#include <algorithm>

#include <fmt/format.h>

#include "weft/exchange/import_parts.h"
#include "weft/exchange/megatron_keys.h"

namespace weft {
namespace {

constexpr const char* kShapeKeys[] = {"group-query-attention",
                                      "num-query-groups",
                                      "kv-channels",
                                      "max-position-embeddings",
                                      "position-embedding-type",
                                      "use-rotary-position-embeddings",
                                      "rotary-base",
                                      "rotary-percent",
                                      "normalization",
                                      "norm-epsilon",
                                      "disable-bias-linear",
                                      "add-qkv-bias",
                                      "qk-layernorm",
                                      "untie-embeddings-and-output-weights",
                                      "apply-layernorm-1p",
                                      "hidden-dropout",
                                      "attention-dropout",
                                      "moe-router-topk",
                                      "moe-ffn-hidden-size",
                                      "moe-layer-freq",
                                      "swiglu",
                                      "make-vocab-size-divisible-by",
                                      "padded-vocab-size",
                                      "vocab-size",
                                      "norm-topk-prob",
                                      "moe-router-load-balancing-type",
                                      "moe-router-score-function",
                                      "moe-router-pre-softmax",
                                      "moe-aux-loss-coeff",
                                      "use-rope-scaling",
                                      "rope-scaling-factor",
                                      "rotary-seq-len-interpolation-factor",
                                      "no-position-embedding",
                                      "attention-bias"};

/// What Megatron-LM's arguments say of the layers.
class MegatronShape {
 public:
  explicit MegatronShape(Import& import) : import_(import), keys_(import.keys) {}

  void read() {
    if (import_.request.model) return read_beside_model();
    const auto layers = keys_.integer_if("num-layers", "num_hidden_layers");
    const auto hidden = keys_.integer_if("hidden-size", "hidden_size");
    const auto heads = keys_.integer_if("num-attention-heads", "num_attention_heads");
    read_parts();
    if (!layers || !hidden || !heads) {
      import_.no_shape = "num-layers, hidden-size and num-attention-heads are not all given";
      note_unused();
      return;
    }
    const bool is_gated = keys_.flag("swiglu", "a gated MLP with SiLU");
    const int64_t usual = is_gated ? *hidden * 8 / 3 / 64 * 64 : 4 * *hidden;
    ffn_ = keys_.integer("ffn-hidden-size", usual, "intermediate_size");
    const bool is_plain = is_llama_like(is_gated);
    if (!is_plain && !is_gpt(is_gated)) return;
    Json sizes = {{"num_hidden_layers", *layers},
                  {"hidden_size", *hidden},
                  {"num_attention_heads", *heads},
                  {"num_key_value_heads", groups_.value_or(*heads)}};
    if (experts_) {
      sizes["num_experts"] = *experts_;
      sizes["moe_intermediate_size"] = expert_ffn_.value_or(ffn_);
    } else {
      sizes["intermediate_size"] = ffn_;
    }
    const auto vocabulary = read_vocabulary(sizes);
    if (!vocabulary) return;
    if (!is_plain) {
      import_.shape = gpt2(*layers, *hidden, *heads, *vocabulary);
      return;
    }
    Json config = {{"model_type", family_},
                   {"tie_word_embeddings", !is_untied_},
                   {"vocab_size", *vocabulary},
                   {"hidden_size", *hidden},
                   {"intermediate_size", ffn_},
                   {"num_hidden_layers", *layers},
                   {"num_attention_heads", *heads},
                   {"num_key_value_heads", groups_.value_or(*heads)},
                   {"head_dim", channels_.value_or(*hidden / *heads)},
                   {"hidden_act", "silu"},
                   {"max_position_embeddings", std::max<int64_t>(1, positions_)},
                   {"rms_norm_eps", epsilon_},
                   {"rope_theta", rotary_base_}};
    if (family_ == "qwen2") config.erase("head_dim");
    if (keys_.has("attention-dropout")) config["attention_dropout"] = attention_dropout_;
    if (stretch_ != 1) config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", stretch_}};
    if (scales_rope_ && stretch_ != 1)
      keys_.not_understood("use-rope-scaling",
                           "positions are scaled in one way here, and rotary-seq-len-interpolation-factor is given");
    if (scales_rope_) {
      config["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", rope_factor_},
                                {"low_freq_factor", 1},
                                {"high_freq_factor", 4},
                                {"original_max_position_embeddings", 8192}};
    }
    if (experts_) {
      config["num_experts"] = *experts_;
      config["num_experts_per_tok"] = topk_;
      config["moe_intermediate_size"] = expert_ffn_.value_or(ffn_);
      config["decoder_sparse_step"] = 1;
      config["norm_topk_prob"] = !softmax_first_;
      config["router_aux_loss_coef"] = balance_;
    }
    import_.shape = std::move(config);
  }

 private:
  /// The model that is given says it all; what the arguments say of it, too, must be the same.
  void read_beside_model() {
    Json shape = Json::object();
    for (const auto& [key, name] : {std::pair{"num-layers", "num_hidden_layers"},
                                    {"hidden-size", "hidden_size"},
                                    {"ffn-hidden-size", "intermediate_size"},
                                    {"num-attention-heads", "num_attention_heads"},
                                    {"num-experts", "num_experts"}}) {
      if (const auto value = keys_.integer_if(key, name)) shape[name] = *value;
    }
    import_.shape = std::move(shape);
    for (const char* key : kShapeKeys) keys_.ignore(key, "the model that is given says it");
  }

  void read_parts() {
    const bool is_grouped = keys_.flag("group-query-attention", "num_key_value_heads is num-query-groups");
    const auto groups = keys_.integer_if("num-query-groups", "num_key_value_heads");
    if (is_grouped) groups_ = groups.value_or(1);
    channels_ = keys_.integer_if("kv-channels", "head_dim");
    positions_ = keys_.integer_if("max-position-embeddings", "max_position_embeddings").value_or(4096);
    embedding_ = keys_.text("position-embedding-type", "learned_absolute", "how positions enter");
    if (keys_.flag("use-rotary-position-embeddings", "rotated positions")) embedding_ = "rope";
    if (keys_.flag("no-position-embedding", "no learned positions") && embedding_ == "learned_absolute")
      embedding_ = "none";
    stretch_ = keys_.number("rotary-seq-len-interpolation-factor", 1, "rope_scaling linear: positions over this");
    rotary_base_ = keys_.number("rotary-base", 10000, "rope_theta");
    if (keys_.number("rotary-percent", 1, "share of a head that is rotated; Weft rotates all") != 1)
      keys_.not_understood("rotary-percent", "only whole heads are rotated here");
    normalization_ = keys_.choice("normalization", {"LayerNorm", "RMSNorm"}, "the norm");
    epsilon_ = keys_.number("norm-epsilon", 1e-5, "rms_norm_eps");
    has_no_bias_ = keys_.flag("disable-bias-linear", "no biases");
    has_qkv_bias_ = keys_.flag("add-qkv-bias", "biases of queries, keys and values: the family qwen2");
    if (keys_.flag("attention-bias", "biases of attention; none here"))
      keys_.not_understood("attention-bias",
                           "of attention's products, queries, keys and values alone may have biases here");
    norms_heads_ = keys_.flag("qk-layernorm", "norms of queries and keys: the family qwen3");
    is_untied_ = keys_.flag("untie-embeddings-and-output-weights", "tie_word_embeddings false");
    if (keys_.flag("apply-layernorm-1p", "a norm's weight is stored less 1; the numbers are the same")) {
    }
    dropout_ = keys_.number("hidden-dropout", 0.1, "dropout of what layers add");
    attention_dropout_ = keys_.number("attention-dropout", 0.1, "dropout in attention");
    scales_rope_ = keys_.flag("use-rope-scaling", "rope_scaling as Llama 3.1 has it");
    rope_factor_ = keys_.number("rope-scaling-factor", 8, "its factor");
    experts_ = keys_.integer_if("num-experts", "num_experts: the family qwen3_moe");
    if (experts_) read_router();
    expert_ffn_ = keys_.integer_if("moe-ffn-hidden-size", "moe_intermediate_size");
    if (const Json* frequency = keys_.raw("moe-layer-freq", "which layers have experts")) {
      if (*frequency != 1 && *frequency != "1")
        keys_.not_understood("moe-layer-freq", "all layers of the family qwen3_moe have experts here");
    }
  }

  void read_router() {
    topk_ = keys_.integer("moe-router-topk", 2, "num_experts_per_tok");
    // MindSpeed's word for the same.
    softmax_first_ = !keys_.flag("norm-topk-prob", "norm_topk_prob", /*usual=*/true);
    softmax_first_ |= keys_.flag("moe-router-pre-softmax", "norm_topk_prob false: weights are those among all experts");
    const std::string kind = keys_.text("moe-router-load-balancing-type", "aux_loss", "the routers' loss");
    const double coefficient = keys_.number("moe-aux-loss-coeff", 0, "router_aux_loss_coef");
    if (kind == "aux_loss") {
      balance_ = coefficient;
    } else if (kind != "none") {
      keys_.not_understood("moe-router-load-balancing-type",
                           "routers are kept even by a loss over a batch (aux_loss) here");
    }
    if (keys_.text("moe-router-score-function", "softmax", "how experts are weighed") != "softmax")
      keys_.not_understood("moe-router-score-function", "experts are weighed by a softmax here");
    if (!keys_.has("moe-expert-capacity-factor"))
      keys_.ignore("moe-token-drop-policy", "no capacity is given: no row is dropped");
  }

  /// RMS norms, rotated positions, no biases but the listed ones.
  bool is_llama_like(bool is_gated) {
    if (!is_gated || normalization_ != "RMSNorm" || embedding_ != "rope" || !has_no_bias_) return false;
    family_ = norms_heads_ ? "qwen3" : has_qkv_bias_ ? "qwen2" : "llama";
    if (experts_) family_ = "qwen3_moe";
    if (experts_ && !norms_heads_)
      keys_.not_understood("num-experts",
                           "of the families here only qwen3_moe has experts, and it norms queries and keys: about "
                           "0.01 % more work than this model has");
    if (keys_.has("hidden-dropout") && dropout_ > 0)
      keys_.not_understood("hidden-dropout", "of the families here only gpt2 drops what layers add");
    if (!keys_.has("hidden-dropout") || !keys_.has("attention-dropout"))
      keys_.note(
          "hidden-dropout and attention-dropout are 0.1 there unless they are given; of a model with RMSNorm, rope and "
          "swiglu nothing is dropped here that the files do not name");
    return true;
  }

  bool is_gpt(bool is_gated) {
    if (!is_gated && normalization_ == "LayerNorm" && embedding_ == "learned_absolute" && !has_no_bias_ && !groups_ &&
        !experts_)
      return true;
    import_.no_shape = fmt::format(
        "{}, {}, positions {}{}{} are layers of no family that Weft knows (llama, qwen2, qwen3: swiglu, RMSNorm, rope, "
        "disable-bias-linear; gpt2: none of these)",
        is_gated ? "a gated MLP" : "a plain MLP", normalization_, embedding_, has_no_bias_ ? ", no biases" : "",
        experts_ ? ", experts" : "");
    note_unused();
    return false;
  }

  /// A text model that is known and has all of these sizes.
  const Model* model_of_these_sizes(const Json& sizes) const {
    for (const Model& known : import_.request.known_models) {
      const bool fits = std::all_of(sizes.items().begin(), sizes.items().end(), [&](const auto& size) {
        return known.config.contains(size.key()) && known.config[size.key()] == size.value();
      });
      if (fits && known.config.contains("vocab_size") && known.config["vocab_size"].is_number_integer()) return &known;
    }
    return nullptr;
  }

  std::optional<int64_t> read_vocabulary(const Json& sizes) {
    const int64_t multiple = keys_.integer("make-vocab-size-divisible-by", 128, "pads the vocabulary, times tp");
    if (const auto padded = keys_.integer_if("padded-vocab-size", "vocab_size")) return padded;
    auto vocabulary = keys_.integer_if("vocab-size", "vocab_size, padded");
    const ImportedKeys::Given* tokenizer = keys_.find("tokenizer-type");
    const bool is_gpt2 = tokenizer != nullptr ? tokenizer->value == "GPT2BPETokenizer" : keys_.has("merge-file");
    if (!vocabulary && is_gpt2) {
      constexpr int64_t kGpt2 = 50257;
      vocabulary = kGpt2;
      keys_.assume("vocab-size", "50257", "GPT2BPETokenizer's, padded");
    }
    if (const Model* known = vocabulary ? nullptr : model_of_these_sizes(sizes)) {
      vocabulary = known->config["vocab_size"].get<int64_t>();
      keys_.assume(
          "vocab-size", std::to_string(*vocabulary),
          fmt::format("that of {} in scenarios/models, which has the other sizes, padded; the files leave it to "
                      "the tokenizer",
                      known->name));
    }
    if (!vocabulary) {
      import_.no_shape = "the size of the vocabulary is the tokenizer's (it can be given as --args \"--vocab-size N\")";
      return std::nullopt;
    }
    const ImportedKeys::Given* tp = keys_.find(megatron_key::kTp);
    int64_t ranks = 1;
    if (tp != nullptr) ranks = keys_.integer_if(megatron_key::kTp, "tp").value_or(1);
    const int64_t step = std::min<int64_t>(multiple, 1 << 20) * std::min<int64_t>(ranks, 1 << 20);
    return (*vocabulary + step - 1) / step * step;
  }

  Json gpt2(int64_t layers, int64_t hidden, int64_t heads, int64_t vocabulary) {
    return {{"model_type", "gpt2"},
            {"vocab_size", vocabulary},
            {"n_positions", positions_},
            {"n_embd", hidden},
            {"n_layer", layers},
            {"n_head", heads},
            {"n_inner", ffn_},
            {"embd_pdrop", dropout_},
            {"resid_pdrop", dropout_},
            {"attn_pdrop", attention_dropout_},
            {"layer_norm_epsilon", epsilon_},
            {"tie_word_embeddings", !is_untied_}};
  }

  /// Sizes that are given beside a model that is given, too.
  void note_unused() {
    for (const char* key :
         {"swiglu", "ffn-hidden-size", "vocab-size", "padded-vocab-size", "make-vocab-size-divisible-by"})
      keys_.ignore(key, "the model says it");
  }

  Import& import_;
  ImportedKeys& keys_;
  std::string family_, embedding_, normalization_;
  std::optional<int64_t> groups_, channels_, experts_, expert_ffn_;
  int64_t positions_ = 0, ffn_ = 0, topk_ = 2;
  double rotary_base_ = 0, epsilon_ = 0, dropout_ = 0, attention_dropout_ = 0;
  double rope_factor_ = 8;
  double balance_ = 0, stretch_ = 1;
  bool scales_rope_ = false, softmax_first_ = false;
  bool has_no_bias_ = false, has_qkv_bias_ = false, norms_heads_ = false, is_untied_ = false;
};

}  // namespace

void read_megatron_shape(Import& import) {
  MegatronShape(import).read();
}

}  // namespace weft
