#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/product.h"
#include "weft/base/text.h"
#include "weft/exchange/import_parts.h"
#include "weft/meaning/training_ranges.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

/// What a model's configuration calls its llm's sizes, where the text has a part of its own and where it has not.
const Json& text_part(const Json& config) {
  for (const char* key : {"text_config", "thinker_config"}) {
    if (!config.contains(key)) continue;
    const Json& part = config[key];
    return part.is_object() && part.contains("text_config") ? part["text_config"] : part;
  }
  return config;
}

std::string disagreement(const Json& given, const Json& files) {
  for (const char* key : {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
                          "num_key_value_heads", "num_experts", "n_layer", "n_embd"}) {
    if (!given.contains(key) || !files.contains(key) || !given[key].is_number() || given[key] == files[key]) continue;
    return fmt::format("{} is {} in the model, and {} in the files", key, given[key].dump(), files[key].dump());
  }
  return "";
}

}  // namespace

std::optional<Error> choose_model(Import& import) {
  const ImportRequest& request = import.request;
  if (request.model) {
    if (import.shape) {
      const std::string problem = disagreement(text_part(request.model->config), *import.shape);
      if (!problem.empty()) import.keys.complain("--model", fmt::format("does not fit the files: {}", problem));
    }
    import.plan.model = *request.model;
    return std::nullopt;
  }
  if (!import.shape) {
    return Error{.source = "--model",
                 .problem = fmt::format("is not given, and the files do not describe the model: {}", import.no_shape),
                 .advice = "Give its Hugging Face config.json, a folder holding one, or a name in scenarios/models."};
  }
  const Document document{.source = "the files' model", .root = *import.shape};
  auto model = read_model(document, "imported");
  if (!model) return model.error();
  import.plan.model = *std::move(model);
  return std::nullopt;
}

int64_t num_layers(const Plan& plan, ModuleKind kind) {
  const Module* module = plan.model.find(kind);
  return module == nullptr ? 0 : static_cast<int64_t>(module->layers.size());
}

void read_world(Import& import) {
  const ImportRequest& request = import.request;
  Cluster& cluster = import.plan.cluster;
  ImportedKeys& keys = import.keys;
  const auto count = [&](const char* key, const char* meaning, std::optional<int64_t> option, int64_t usual) {
    const ImportedKeys::Given* given = keys.find(key);
    if (option) {
      keys.ignore(key, "an option says otherwise");
      return *option;
    }
    if (given != nullptr && given->unknown.empty()) return keys.integer(key, usual, meaning);
    // Launchers are told by their surroundings, and a plan is for a cluster that is named.
    if (given != nullptr) keys.ignore(key, fmt::format("depends on {}; the cluster has {}", given->unknown, usual));
    keys.assume(given == nullptr ? key : fmt::format("{} (cluster)", key), std::to_string(usual), meaning);
    return usual;
  };
  // MindSpore's launcher counts processes: of a node, and of all.
  if (const ImportedKeys::Given* local = keys.find("local-worker-num");
      local != nullptr && !keys.has("nproc-per-node")) {
    const auto of_node = keys.integer_if("local-worker-num", "devices of a node");
    const auto all = keys.integer_if("worker-num", "devices of all nodes");
    if (of_node) keys.give({.key = "nproc-per-node", .value = *of_node, .place = local->place});
    if (of_node && all && *all % *of_node != 0) {
      keys.complain("worker-num", fmt::format("is {}, which local_worker_num {} does not divide", *all, *of_node));
    } else if (of_node && all) {
      keys.give({.key = "nnodes", .value = *all / *of_node, .place = keys.find("worker-num")->place});
    }
  }
  const int64_t nodes = count("nnodes", "nodes of the cluster", request.nodes, cluster.nodes);
  const int64_t devices =
      count("nproc-per-node", "devices of a node", request.devices_per_node, cluster.devices_per_node);
  set_world(import, {request.nodes ? "--nodes" : "nnodes", nodes},
            {request.devices_per_node ? "--devices-per-node" : "nproc-per-node", devices});
}

void set_world(Import& import, const NamedCount& nodes, const NamedCount& devices_per_node) {
  Cluster& cluster = import.plan.cluster;
  const auto complain = [&](const NamedCount& setting, int64_t most) {
    if (setting.count <= most) return false;
    import.keys.complain(setting.key, fmt::format("is {}, at most {} can be planned", setting.count, most));
    return true;
  };
  bool is_refused = complain(nodes, kMostNodes);
  is_refused |= complain(devices_per_node, kMostDevicesPerNode);
  if (!is_refused) {
    Cluster wanted = cluster;
    wanted.nodes = nodes.count;
    if (devices_per_node.count != wanted.devices_per_node) set_devices_per_node(devices_per_node.count, wanted);
    const auto problem = find_too_many_devices(wanted);
    if (problem) import.keys.complain(nodes.key, fmt::format("is {}; the cluster {}", nodes.count, *problem));
    if (!problem) cluster = std::move(wanted);
    is_refused = problem.has_value();
  }
  if (is_refused) cluster.nodes = 1;
  import.plan.world_size = cluster.num_devices();
}

void place_on_all_ranks(int64_t world_size, ModulePlan& module) {
  module.ranks.resize(static_cast<size_t>(world_size));
  std::iota(module.ranks.begin(), module.ranks.end(), 0);
  if (module.axis_order.empty()) module.axis_order = {"tp", "cp", "dp", "pp"};
}

bool has_too_many_chunks(Import& import, const std::string& key, ModulePlan& module, int64_t num_layers) {
  if (product_of({module.pp, module.vpp}) <= std::max<int64_t>(1, num_layers)) return false;
  import.keys.complain(
      key, fmt::format("is {} with {}, which is more than the {} layers of {}", module.pp,
                       module.vpp > 1 ? fmt::format("{} chunks a rank", module.vpp) : "one chunk a rank", num_layers,
                       name_of(module.kind)));
  module.pp = module.vpp = 1;
  module.layers = {{num_layers}};
  return true;
}

void spread_layers(Import& import, const std::string& key, ModulePlan& module, int64_t num_layers) {
  if (has_too_many_chunks(import, key, module, num_layers)) return;
  const int64_t chunks = module.pp * module.vpp;
  if (num_layers % chunks != 0) {
    import.keys.complain(
        key, fmt::format("is {} with {}, which do not divide the {} layers of {}", module.pp,
                         module.vpp > 1 ? fmt::format("{} chunks a rank", module.vpp) : "one chunk a rank", num_layers,
                         name_of(module.kind)));
  }
  module.layers.assign(static_cast<size_t>(module.pp), std::vector<int64_t>(static_cast<size_t>(module.vpp),
                                                                            std::max<int64_t>(0, num_layers / chunks)));
}

std::vector<std::vector<int64_t>> by_rank(const std::vector<int64_t>& stages, int64_t pp) {
  std::vector<std::vector<int64_t>> layers(static_cast<size_t>(pp));
  for (size_t i = 0; i < stages.size(); ++i) layers[i % layers.size()].push_back(stages[i]);
  return layers;
}

void recompute_first(ModulePlan& module, int64_t blocks, BlockRecompute what) {
  module.recompute.assign(module.layers.size(), {});
  for (size_t rank = 0; rank < module.layers.size(); ++rank) {
    for (const int64_t layers : module.layers[rank]) {
      Recompute chunk;
      chunk.add(what, std::min(blocks, layers));
      module.recompute[rank].push_back(chunk);
    }
  }
}

void set_workload(Import& import, int64_t batch, std::optional<int64_t> sequence_tokens,
                  const std::vector<ModuleKind>& frozen) {
  Plan& plan = import.plan;
  const bool has_encoders = plan.model.modules.size() > 1;
  if (import.request.workload) {
    plan.workload = *import.request.workload;
  } else {
    plan.workload = Workload{.name = "imported", .source = "import", .tokens_include_media = true};
    if (has_encoders) {
      for (const Workload& known : import.request.known_workloads) {
        const bool has_audio = known.audio.pieces_per_sample.max() > 0;
        if (has_audio == (plan.model.find(ModuleKind::kAudio) != nullptr)) {
          plan.workload = known;
          import.keys.assume("--workload", known.name,
                             "how many and how large images and clips are, which no setting says");
        }
      }
    }
    if (!has_encoders) {
      plan.workload.tokens = Distribution::constant(static_cast<double>(sequence_tokens.value_or(4096)));
      if (!sequence_tokens) import.keys.assume("seq-length", "4096", "tokens of a sample");
    }
  }
  plan.workload.global_batch_samples = batch;
  plan.workload.precision = plan.precision.compute;
  if (!import.request.workload || !frozen.empty()) plan.workload.frozen = frozen;
}

namespace {

/// Whether its devices are cores of a processor: no GPU has been so slow for many years, and no core so fast.
bool has_cores(const Cluster& cluster) {
  constexpr double kMostTflops = 3;
  double best = 0;
  for (const auto& [precision, tflops] : cluster.device.matrix_tflops) best = std::max(best, tflops);
  return best < kMostTflops;
}

}  // namespace

void set_config(const TrainingNumbers& numbers, Import& import) {
  const std::optional<int64_t> steps = import.request.steps ? import.request.steps : numbers.steps;
  if (!steps || *steps < 1) {
    import.no_config = "they do not say how many steps there are; give --steps N";
    return;
  }
  if (!numbers.learning_rate) {
    import.no_config = "they do not say the learning rate";
    return;
  }
  if (*steps > kStepRange.max) {
    import.keys.complain("steps",
                         fmt::format("come to {} by the files, at most {} can be trained", *steps, kStepRange.max));
    return;
  }
  const double peak = *numbers.learning_rate;
  import.config = {{"steps", *steps},
                   {"seed", numbers.seed},
                   {"device", has_cores(import.plan.cluster) ? "cpu" : "cuda"},
                   {"data", import.data},
                   {"optimizer",
                    { {"learning_rate", peak},
                      {"beta1", numbers.beta1},
                      {"beta2", numbers.beta2},
                      {"epsilon", numbers.epsilon},
                      {"weight_decay", numbers.weight_decay},
                      { "max_gradient_norm",
                        numbers.max_gradient_norm } }},
                   { "learning_rate_schedule",
                     { {"kind", numbers.schedule},
                       {"warmup_steps", std::clamp<int64_t>(numbers.warmup_steps, 0, *steps - 1)},
                       { "end_fraction",
                         peak > 0 ? std::clamp(numbers.end_rate / peak, 0.0, 1.0) : 0.0 } } }};
  if (numbers.end_layers_rate) {
    Json& rules = import.config["optimizer"]["rules"] = Json::array();
    const Module* llm = import.plan.model.find(ModuleKind::kLlm);
    for (const auto& [block, name] : {std::pair{&llm->entry, "embedding"}, {&llm->exit, "logits"}}) {
      const Op* op = find_op(*block, name);
      if (op == nullptr || op->weights == nullptr || op->weights->names.empty()) continue;
      rules.push_back(
          {{"weights", "*" + op->weights->names.front() + ".weight"}, {"learning_rate", *numbers.end_layers_rate}});
    }
  }
  if (numbers.checkpoint_steps) {
    import.config["checkpoints"] = {{"interval_steps", *numbers.checkpoint_steps},
                                    { "keep",
                                      numbers.checkpoints_kept.value_or(0) }};
  }
}

}  // namespace weft
