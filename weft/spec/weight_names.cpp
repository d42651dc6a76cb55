#include "weft/spec/weight_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "weft/base/check.h"

namespace weft {
namespace {

/// What files call an operator's weight and bias, below the name of its block; several lie together.
struct OpNames {
  std::string_view op;
  std::vector<std::string> weights;
  std::vector<std::string> biases = {};  ///< where they are not the weights' own
};

const std::vector<OpNames>& llm_names() {
  static const std::vector<OpNames> names = {
      {"embedding", {"model.embed_tokens"}},
      {"attention.norm", {"input_layernorm"}},
      {"attention.qkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
      {"attention.q_norm", {"self_attn.q_norm"}},
      {"attention.k_norm", {"self_attn.k_norm"}},
      {"attention.out", {"self_attn.o_proj"}},
      {"mlp.norm", {"post_attention_layernorm"}},
      {"moe.router", {"mlp.gate"}},
      {"mlp.gate_up", {"mlp.gate_proj", "mlp.up_proj"}},
      {"mlp.down", {"mlp.down_proj"}},
      {"norm", {"model.norm"}},
      {"logits", {"lm_head"}},
  };
  return names;
}

const std::vector<OpNames>& vision_names() {
  static const std::vector<OpNames> names = {
      {"patch_embedding", {"patch_embed.proj"}},
      {"attention.norm", {"norm1"}},
      {"attention.qkv", {"attn.qkv"}},
      {"attention.out", {"attn.proj"}},
      {"mlp.norm", {"norm2"}},
      {"mlp.up", {"mlp.fc1"}},
      {"mlp.gate_up", {"mlp.gate_proj", "mlp.up_proj"}},
      {"mlp.down", {"mlp.down_proj"}},
      {"norm", {"merger.ln_q"}},
      {"merger.up", {"merger.mlp.0"}},
      {"merger.down", {"merger.mlp.2"}},
  };
  return names;
}

const std::vector<OpNames>& audio_names() {
  static const std::vector<OpNames> names = {
      {"convolution.mel", {"conv1"}},
      {"convolution.stride", {"conv2"}},
      {"attention.norm", {"self_attn_layer_norm"}},
      {"attention.qkv",
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
       {"self_attn.q_proj", "self_attn.v_proj"}},  // keys have no bias
      {"attention.out", {"self_attn.out_proj"}},
      {"mlp.norm", {"final_layer_norm"}},
      {"mlp.up", {"fc1"}},
      {"mlp.down", {"fc2"}},
      {"norm", {"ln_post"}},
      {"projection", {"proj"}},
      {"clip_marks", {"audio_bos_eos_token"}},
  };
  return names;
}

bool is_omni(const Model& model) {
  return model.family == "qwen2_5_omni" || model.family == "qwen2_5_omni_thinker";
}

bool has_op(const Block& block, std::string_view name) {
  return std::any_of(block.ops.begin(), block.ops.end(), [&](const Op& op) { return op.name == name; });
}

OpNames names_of(const Model& model, const Module& module, const Block& block, const Op& op) {
  const auto& all = module.kind == ModuleKind::kVision  ? vision_names()
                    : module.kind == ModuleKind::kAudio ? audio_names()
                                                        : llm_names();
  const auto found = std::find_if(all.begin(), all.end(), [&](const OpNames& names) { return names.op == op.name; });
  WEFT_CHECK(found != all.end(), "the weights of {} in {} have no names", op.name,
             module.kind == ModuleKind::kLlm ? "the llm" : "an encoder");
  OpNames names = *found;
  if (module.kind == ModuleKind::kVision && is_omni(model) && op.name == "attention.qkv")
    names.weights = {"attn.q", "attn.k", "attn.v"};
  // The first generation's MLP has no gate.
  if (module.kind == ModuleKind::kVision && op.name == "mlp.down" && has_op(block, "mlp.up"))
    names.weights = {"mlp.fc2"};
  return names;
}

/// Before the names of a block's operators.
std::string path_of(const Model& model, const Module& module, int64_t place) {
  std::string path = model.family == "qwen2_5_omni" ? "thinker." : "";
  const bool is_layer = place > 0 && place + 1 < num_blocks(module);
  if (module.kind == ModuleKind::kVision) path += "visual.";
  if (module.kind == ModuleKind::kAudio) path += "audio_tower.";
  if (!is_layer) return path;
  constexpr std::array<std::string_view, 3> kLayers = {"blocks", "layers", "model.layers"};
  return path + fmt::format("{}.{}.", kLayers[static_cast<size_t>(module.kind)], place - 1);
}

/// Lists the names of one operator's weights.
class OpLister {
 public:
  OpLister(OpNames names, std::string path, std::vector<std::vector<std::string>>& listed)
      : names_(std::move(names)), path_(std::move(path)), listed_(listed) {}

  void operator()(const Matmul& m) {
    if (m.is_tied) return;
    add_matrix(m.copies);
    if (m.bias_elements > 0) add(names_.biases.empty() ? names_.weights : names_.biases, "bias");
  }
  void operator()(const Lookup&) { add(names_.weights, "weight"); }
  void operator()(const Norm& n) {
    add(names_.weights, "weight");
    if (n.has_bias) add(names_.weights, "bias");
  }
  void operator()(const auto&) {}

 private:
  /// Of several experts, "mlp.down_proj" is "mlp.experts.0.down_proj" and so on.
  void add_matrix(int64_t copies) {
    if (copies == 1) return add(names_.weights, "weight");
    constexpr std::string_view kMlp = "mlp.";
    auto& own = listed_.emplace_back();
    for (int64_t expert = 0; expert < copies; ++expert) {
      for (const std::string& name : names_.weights)
        own.push_back(fmt::format("{}{}experts.{}.{}.weight", path_, kMlp, expert, name.substr(kMlp.size())));
    }
  }

  void add(const std::vector<std::string>& names, const char* what) {
    auto& own = listed_.emplace_back();
    for (const std::string& name : names) own.push_back(fmt::format("{}{}.{}", path_, name, what));
  }

  OpNames names_;
  std::string path_;
  std::vector<std::vector<std::string>>& listed_;
};

}  // namespace

int64_t num_blocks(const Module& module) {
  return static_cast<int64_t>(module.layers.size()) + 2;
}

const Block& block_at(const Module& module, int64_t place) {
  if (place == 0) return module.entry;
  if (place + 1 == num_blocks(module)) return module.exit;
  return module.layer_kinds[module.layers[static_cast<size_t>(place) - 1]];
}

bool has_weight_names(const Model& model) {
  constexpr std::array<std::string_view, 8> kFamilies = {
      "llama", "qwen2", "qwen3", "qwen3_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_5_omni", "qwen2_5_omni_thinker"};
  return std::find(kFamilies.begin(), kFamilies.end(), model.family) != kFamilies.end();
}

std::vector<std::vector<std::string>> weight_names(const Model& model, const Module& module, int64_t place) {
  std::vector<std::vector<std::string>> listed;
  const Block& block = block_at(module, place);
  for (const Op& op : block.ops) {
    const bool has_weights = std::holds_alternative<Matmul>(op.shape) || std::holds_alternative<Norm>(op.shape) ||
                             std::holds_alternative<Lookup>(op.shape);
    if (!has_weights) continue;
    std::visit(OpLister(names_of(model, module, block, op), path_of(model, module, place), listed), op.shape);
  }
  return listed;
}

}  // namespace weft
