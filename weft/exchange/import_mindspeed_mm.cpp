#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/text.h"
#include "weft/exchange/import_parts.h"
#include "weft/exchange/key_lines.h"
#include "weft/exchange/megatron_keys.h"
#include "weft/exchange/mindspeed_entries.h"
#include "weft/meaning/weight_copies.h"
#include "weft/plan/mbs_scale.h"

namespace weft {
namespace {

/// Lists of numbers, one for each pipeline rank; lists of such lists have one for each chunk.
std::optional<std::vector<std::vector<int64_t>>> stage_lists(const Json& value) {
  const auto is_count = [](const Json& count) {
    return count.is_number_integer() && count.get<int64_t>() >= 0 && count.get<int64_t>() < 100'000;
  };
  const auto is_list = [&](const Json& list) {
    return list.is_array() && !list.empty() && std::all_of(list.begin(), list.end(), is_count);
  };
  if (is_list(value)) {
    std::vector<std::vector<int64_t>> layers;
    for (const Json& count : value) layers.push_back({count.get<int64_t>()});
    return layers;
  }
  if (!value.is_array() || value.empty() || !std::all_of(value.begin(), value.end(), is_list)) return std::nullopt;
  std::vector<std::vector<int64_t>> layers(value.front().size());
  for (const Json& chunk : value) {
    if (chunk.size() != layers.size()) return std::nullopt;
    for (size_t rank = 0; rank < layers.size(); ++rank) layers[rank].push_back(chunk[rank].get<int64_t>());
  }
  return layers;
}

int64_t sum_of(const std::vector<std::vector<int64_t>>& layers) {
  int64_t sum = 0;
  for (const auto& row : layers) sum = std::accumulate(row.begin(), row.end(), sum);
  return sum;
}

/// Keys of model.json that would change what runs, if they were set.
bool is_suspicious(const std::string& key) {
  const std::string name = key.substr(key.rfind('.') + 1);
  for (const char* prefix :
       {"recompute", "swap", "lora", "offload", "moe_", "num_experts", "noop", "fsdp", "dist_train"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

class MindspeedMm {
 public:
  explicit MindspeedMm(Import& import) : import_(import), keys_(import.keys), plan_(import.plan) {}

  std::optional<Error> run() {
    auto others = read_arguments(import_.request, keys_);
    if (!others) return others.error();
    for (const size_t i : *others) {
      if (auto error = read_document_of(i)) return error;
    }
    if (auto error = find_model()) return error;
    is_hetero_ = keys_.flag(megatron_key::kHetero, "encoders colocated, each module with degrees of its own");
    const bool asks_for_search = keys_.flag("auto-parallel-mm", "weft searches the plan");
    keys_.ignore("auto-parallel-profile", "is how that system measures; weft profile does here");
    import_.searches = asks_for_search && result_.is_null();
    read_cluster_of(asks_for_search);
    if (!result_.is_null()) use_result();
    read_frozen();
    read_layers();
    if (is_hetero_) use_module_degrees();
    read_megatron_plan(import_);
    if (!result_.is_null()) use_recompute_lists();
    add_encoders();
    compare_conversion();
    read_rest();
    if (import_.searches) plan_.modules.clear();
    return std::nullopt;
  }

 private:
  std::optional<Error> read_document_of(size_t i) {
    const SettingsFile& file = import_.request.files[i];
    auto document = foreign_document(file, keys_);
    if (!document) return document.error();
    Json& root = document->root;
    if (root.is_object() && root.contains("parallel_config") && root.contains("layer_placement")) {
      result_ = root;
      give_values(root, "", static_cast<uint32_t>(i), file.text, keys_);
    } else if (root.is_object() &&
               (root.contains("text_decoder") || root.contains("image_encoder") || root.contains("audio_encoder"))) {
      model_ = root;
      give_values(root, "", static_cast<uint32_t>(i), file.text, keys_);
    } else if (root.is_object() && root.contains("dataset_param")) {
      read_data(i, root["dataset_param"]);
    } else {
      keys_.note(
          fmt::format("{} is neither a model.json nor a data.json nor a search result; it is not read", file.name));
    }
    return std::nullopt;
  }

  /// data.json is read by weft train as it is; it names the folder of tokenizer and processor.
  void read_data(size_t i, const Json& parameters) {
    const SettingsFile& file = import_.request.files[i];
    const auto file_number = static_cast<uint32_t>(i);
    const KeyLines lines(file.text);
    keys_.give({.key = "dataset_param", .value = file.name, .place = {file_number, lines.line_of({"dataset_param"})}});
    import_.data = {{"settings", *keys_.text_if("dataset_param", "data.settings: the file, which weft train reads")}};
    const Json::json_pointer model("/preprocess_parameters/model_name_or_path");
    if (!parameters.contains(model) || !parameters[model].is_string()) return;
    const std::string key = "dataset_param.preprocess_parameters.model_name_or_path";
    keys_.give(
        {.key = key,
         .value = parameters[model],
         .place = {file_number, lines.line_of({"dataset_param", "preprocess_parameters", "model_name_or_path"})}});
    import_.data["model"] = *keys_.text_if(key, "data.model: tokenizer, template and processor");
  }

  const Json* member(std::initializer_list<const char*> path) const {
    const Json* json = &model_;
    for (const char* name : path) {
      if (!json->is_object() || !json->contains(name)) return nullptr;
      json = &(*json)[name];
    }
    return json;
  }

  /// model.json describes the layers; among the models that are known, the one of these sizes.
  std::optional<Error> find_model() {
    Json shape = Json::object();
    for (const auto& [from, to] : {std::pair{"num_layers", "num_hidden_layers"},
                                   {"hidden_size", "hidden_size"},
                                   {"ffn_hidden_size", "intermediate_size"},
                                   {"num_attention_heads", "num_attention_heads"}}) {
      const Json* value = member({"text_decoder", from});
      if (value == nullptr || value->is_null()) continue;
      if (value->is_number()) {
        shape[to] = *value;
      } else {
        keys_.complain(fmt::format("text_decoder.{}", from),
                       fmt::format("is {}, a number is needed", describe_value(*value)));
      }
    }
    if (import_.request.model) {
      import_.shape = shape;
      return choose_model(import_);
    }
    const Json* vision_layers = member({"image_encoder", "vision_encoder", "num_layers"});
    const Json* vision_width = member({"image_encoder", "vision_encoder", "hidden_size"});
    const Json* audio = member({"audio_encoder", "audio_encoder"});
    for (const Model& known : import_.request.known_models) {
      const bool has_vision = known.find(ModuleKind::kVision) != nullptr;
      const bool has_audio = known.find(ModuleKind::kAudio) != nullptr;
      if (has_vision != (vision_layers != nullptr) || has_audio != (audio != nullptr)) continue;
      if (has_vision && static_cast<int64_t>(known.find(ModuleKind::kVision)->layers.size()) != *vision_layers)
        continue;
      if (has_vision && vision_width != nullptr && !has_vision_width(known, *vision_width)) continue;
      if (shape.empty() || !has_shape(known, shape)) continue;
      keys_.assume("--model", known.name, "the model of scenarios/models with the sizes of model.json");
      plan_.model = known;
      return std::nullopt;
    }
    return Error{.source = "--model",
                 .problem = model_.is_null()
                                ? "is not given, and neither is a model.json"
                                : "is not given, and no model of scenarios/models has the sizes of model.json",
                 .advice = "Give its Hugging Face config.json, or a folder holding one."};
  }

  static bool has_vision_width(const Model& known, const Json& width) {
    for (const char* key : {"embed_dim", "hidden_size"}) {
      const Json* part = find_part(known.config, "vision_config");
      if (part != nullptr && part->contains(key) && (*part)[key] == width) return true;
    }
    return false;
  }

  static const Json* find_part(const Json& config, const char* name) {
    if (config.contains(name)) return &config[name];
    if (config.contains("thinker_config") && config["thinker_config"].contains(name))
      return &config["thinker_config"][name];
    return nullptr;
  }

  static bool has_shape(const Model& known, const Json& shape) {
    const Json* text = find_part(known.config, "text_config");
    const Json& config = text == nullptr ? known.config : *text;
    return std::all_of(shape.items().begin(), shape.items().end(), [&](const auto& item) {
      return config.contains(item.key()) && config[item.key()] == item.value();
    });
  }

  void read_cluster_of(bool asks_for_search) {
    if (!asks_for_search) {
      read_world(import_);
      return;
    }
    // The launcher's nodes are those that samples are measured on.
    const auto nodes = keys_.integer_if("simulated-nnodes", "nodes of the cluster that is planned for");
    const auto devices = keys_.integer_if("simulated-nproc-per-node", "devices of its nodes");
    keys_.ignore("nnodes", "is where samples are measured");
    keys_.ignore("nproc-per-node", "is where samples are measured");
    const Cluster& cluster = plan_.cluster;
    const ImportRequest& request = import_.request;
    set_world(import_,
              {request.nodes ? "--nodes" : "simulated-nnodes", request.nodes.value_or(nodes.value_or(cluster.nodes))},
              {request.devices_per_node ? "--devices-per-node" : "simulated-nproc-per-node",
               request.devices_per_node.value_or(devices.value_or(cluster.devices_per_node))});
  }

  /// A degree under one of these names.
  std::optional<int64_t> number(const std::vector<std::string>& names, const char* meaning) {
    std::optional<int64_t> value;
    for (const std::string& name : names) {
      const auto here = keys_.integer_if(name, meaning, ImportedKeys::kDegrees);
      if (here && !value) value = here;
    }
    return value;
  }

  /// The search's file instead of the script's degrees.
  void use_result() {
    const auto take = [&](const char* name, const char* key, const char* meaning) {
      const auto value = keys_.integer_if(fmt::format("parallel_config.{}", name), meaning, ImportedKeys::kDegrees);
      if (value && key != nullptr) {
        if (keys_.has(key)) keys_.note(fmt::format("the search's result takes the place of {}", key));
        keys_.give({.key = key, .value = *value});
      }
      return value.value_or(1);
    };
    const int64_t pp = take("PP", megatron_key::kPp, "pp"), tp = take("TP", megatron_key::kTp, "tp");
    const int64_t dp = take("DP", nullptr, "dp");
    take("MBS", megatron_key::kMbs, "mbs");
    keys_.give({.key = megatron_key::kCp, .value = 1});
    keys_.ignore("e2e_time", "is what that system predicts; weft predicts its own");
    keys_.ignore("throughput", "is what that system predicts; weft predicts its own");
    const int64_t world = pp * tp * dp;
    Cluster& cluster = plan_.cluster;
    if (world > kMostDevices) {
      keys_.complain("parallel_config.DP",
                     fmt::format("PP x TP x DP is {}, at most {} devices can be planned", world, kMostDevices));
    } else if (world != plan_.world_size) {
      if (world % cluster.devices_per_node == 0) {
        cluster.nodes = world / cluster.devices_per_node;
      } else if (world < cluster.devices_per_node) {
        cluster.nodes = 1;
        set_devices_per_node(world, cluster);
      } else {
        keys_.complain("parallel_config.DP", fmt::format("PP x TP x DP is {}, which nodes of {} devices do not give",
                                                         world, cluster.devices_per_node));
      }
      keys_.note(fmt::format("the search's result is for {} devices (PP {} x TP {} x DP {}), where the cluster has {}",
                             world, pp, tp, dp, plan_.world_size));
      plan_.world_size = cluster.num_devices();
    }
    if (!keys_.has(megatron_key::kBatch) && import_.request.workload) {
      keys_.give({.key = megatron_key::kBatch, .value = import_.request.workload->global_batch_samples});
    }
  }

  std::optional<std::vector<std::vector<int64_t>>> list(const std::string& key, const char* meaning, ModuleKind kind) {
    const Json* value = keys_.raw(key, meaning);
    if (value == nullptr) return std::nullopt;
    auto layers = stage_lists(*value);
    if (!layers) {
      keys_.complain(key, "has to be a list of layers for each pipeline rank");
      return std::nullopt;
    }
    if (sum_of(*layers) != num_layers(plan_, kind)) {
      keys_.complain(key, fmt::format("has {} layers, but {} of the model has {}", sum_of(*layers), name_of(kind),
                                      num_layers(plan_, kind)));
      return std::nullopt;
    }
    return layers;
  }

  void read_layers() {
    const std::string llm_key =
        result_.is_null() ? "text_decoder.pipeline_num_layers" : "layer_placement.llm_layer_placement";
    auto llm = list(llm_key, "layers of the llm", ModuleKind::kLlm);
    const std::vector<std::string> degree =
        is_hetero_ ? std::vector<std::string>{"text_decoder.pp"} : std::vector<std::string>{megatron_key::kPp};
    const int64_t pp = number(degree, "pp").value_or(1);
    if (llm && static_cast<int64_t>(llm->size()) != pp) {
      if (!import_.searches) keys_.complain(llm_key, fmt::format("has {} stages, but pp is {}", llm->size(), pp));
      llm.reset();
    }
    import_.stages = llm;
    if (import_.searches) {
      // Where the search places layers is not what samples are measured with.
      import_.stages = std::vector<std::vector<int64_t>>(static_cast<size_t>(std::clamp<int64_t>(pp, 1, 1024)), {0});
    }
  }

  /// --hetero-parallel: text_decoder has the degrees, and the command line's are all 1.
  void use_module_degrees() {
    for (const auto& [key, name] :
         {std::pair{megatron_key::kTp, "tp"}, {megatron_key::kPp, "pp"}, {megatron_key::kCp, "cp"}}) {
      const int64_t given = keys_.integer(key, 1, "has to be 1 with hetero-parallel");
      if (given != 1) keys_.complain(key, fmt::format("is {}, but with hetero-parallel the system wants 1", given));
      const int64_t degree = number({fmt::format("text_decoder.{}", name)}, name).value_or(1);
      keys_.give({.key = key, .value = degree});
      replica_ *= degree;
    }
    // The command line's batch is meant for dp = world_size; the system divides it by the ranks of one replica.
    const int64_t whole = keys_.integer(megatron_key::kBatch, plan_.world_size,
                                        "global_batch_samples, times the ranks of one "
                                        "replica of the llm");
    if (whole % replica_ != 0) {
      keys_.note(
          fmt::format("global-batch-size {} is divided by the {} ranks of one replica of the llm, and rounded down",
                      whole, replica_));
    }
    keys_.give({.key = megatron_key::kBatch, .value = std::max<int64_t>(1, whole / replica_)});
  }

  void read_frozen() {
    const auto flag = [&](const char* key) { return keys_.flag(key, "frozen"); };
    const bool vision = flag("image_encoder.vision_encoder.freeze");
    const bool projector =
        keys_.has("image_encoder.vision_projector.freeze") ? flag("image_encoder.vision_projector.freeze") : vision;
    if (vision) frozen_.push_back(ModuleKind::kVision);
    if (plan_.model.find(ModuleKind::kVision) != nullptr && vision != projector)
      plan_.trainable.push_back({.weights = "*visual.merger.*", .train = vision});
    if (flag("audio_encoder.audio_encoder.freeze")) frozen_.push_back(ModuleKind::kAudio);
    if (flag("text_decoder.freeze")) frozen_.push_back(ModuleKind::kLlm);
  }

  void use_recompute_lists() {
    const auto fill = [&](const char* key, ModulePlan& module) {
      const Json* value = keys_.raw(key, "blocks that are recomputed, by stage");
      if (value == nullptr) return;
      const auto counts = stage_lists(*value);
      const auto pp = static_cast<size_t>(module.pp);
      if (!counts || counts->front().size() != 1 || counts->size() > pp) {
        keys_.complain(key, fmt::format("has to be a list of {} numbers", pp));
        return;
      }
      if (counts->size() < pp) {
        keys_.note(fmt::format("{} has {} entries for {} stages; the last {} recompute nothing", key, counts->size(),
                               pp, pp - counts->size() == 1 ? "stage is taken to" : "stages are taken to"));
      }
      module.recompute.assign(pp, {Recompute()});
      for (size_t rank = 0; rank < counts->size(); ++rank) {
        Recompute chunk;
        chunk.add(BlockRecompute::kFull, (*counts)[rank].front());
        module.recompute[rank] = {chunk};
        if ((*counts)[rank].front() > module.layers[rank].front())
          keys_.complain(key, fmt::format("has {} blocks for a stage of {} layers", (*counts)[rank].front(),
                                          module.layers[rank].front()));
      }
    };
    fill("layer_recompute.llm_layer_recompute", plan_.modules.back());
    recompute_vision_ = fill;
  }

  void add_encoders() {
    ModulePlan llm = std::move(plan_.modules.back());
    plan_.modules.clear();
    if (result_.is_null()) read_module_recompute(llm, "text_decoder");
    const auto scale =
        keys_.integer_if(megatron_key::kHeteroScale, "mbs_scale: microbatches that one pass of the encoders covers");
    for (const Module& module : plan_.model.modules) {
      if (module.kind == ModuleKind::kLlm) continue;
      plan_.modules.push_back(is_hetero_ ? colocated(module.kind, llm, scale.value_or(1)) : inlined(module.kind, llm));
    }
    plan_.modules.push_back(std::move(llm));
  }

  /// Weights that were cut for other stages than those that load them: the system fails late, or loads some of them.
  void compare_conversion() {
    const auto compare = [&](const char* name, const ModulePlan* module, const std::string& other) {
      const std::string key = fmt::format("convert.{}", name);
      const Json* value = keys_.raw(key, "stages that the weights are cut for");
      if (value == nullptr || module == nullptr || import_.searches) return;
      const auto layers = stage_lists(*value);
      if (!layers) {
        keys_.complain(key, "has to be a list of layers for each pipeline rank");
      } else if (*layers != module->layers) {
        keys_.complain(key, fmt::format("cuts the weights into {}, but {} is {}", stages_text(*layers), other,
                                        stages_text(module->layers)));
      }
    };
    compare("llm_pp_layers", &plan_.modules.back(),
            result_.is_null() ? "text_decoder.pipeline_num_layers" : "llm_layer_placement");
    const ModulePlan* vision = plan_.find(ModuleKind::kVision);
    const bool is_inline = vision != nullptr && vision->placement == ModulePlacement::kInline;
    compare("vit_pp_layers", is_inline ? vision : nullptr,
            result_.is_null() ? "image_encoder.vision_encoder.pipeline_num_layers" : "vit_layer_placement");
    compare_converted_degrees(import_);
  }

  static std::string stages_text(const std::vector<std::vector<int64_t>>& layers) {
    Json json = Json::array();
    for (size_t chunk = 0; chunk < layers.front().size(); ++chunk) {
      Json row = Json::array();
      for (const auto& rank : layers) row.push_back(rank[chunk]);
      json.push_back(std::move(row));
    }
    return json.size() == 1 ? json.front().dump() : json.dump();
  }

  bool is_frozen(ModuleKind kind) const {
    if (std::find(frozen_.begin(), frozen_.end(), kind) != frozen_.end()) return true;
    return frozen_.empty() && import_.request.workload && import_.request.workload->is_frozen(kind);
  }

  ModulePlan inlined(ModuleKind kind, const ModulePlan& llm) {
    ModulePlan encoder = llm;
    encoder.kind = kind;
    encoder.placement = ModulePlacement::kInline;
    encoder.vpp = encoder.ep = 1;
    encoder.experts_over_tp = false;
    encoder.recompute.clear();
    if (is_frozen(kind)) encoder.zero = 0;
    const std::string network = fmt::format("{}.{}", mindspeed_key(kind), mindspeed_network_key(kind));
    const std::string key =
        result_.is_null() ? network + ".pipeline_num_layers" : "layer_placement.vit_layer_placement";
    const auto layers = list(key, "layers of the encoder", kind);
    encoder.layers.assign(static_cast<size_t>(llm.pp), {0});
    encoder.layers.front() = {num_layers(plan_, kind)};
    if (layers && static_cast<int64_t>(layers->size()) != llm.pp) {
      if (!import_.searches) keys_.complain(key, fmt::format("has {} stages, but pp is {}", layers->size(), llm.pp));
    } else if (layers) {
      for (size_t rank = 0; rank < layers->size(); ++rank) {
        if (sum_of({(*layers)[rank]}) != (*layers)[rank].front())
          keys_.complain(key, "has layers of an encoder in a later chunk of a rank, which no plan has");
        encoder.layers[rank] = {(*layers)[rank].front()};
      }
    }
    if (!result_.is_null() && kind == ModuleKind::kVision)
      recompute_vision_("layer_recompute.vit_layer_recompute", encoder);
    if (result_.is_null()) read_module_recompute(encoder, network);
    for (const char* name : {"tp", "pp", "cp", "mbs"}) {
      keys_.ignore(fmt::format("{}.{}", mindspeed_key(kind), name), "is for hetero-parallel, which is off");
      keys_.ignore(fmt::format("{}.{}", network, name), "is for hetero-parallel, which is off");
      keys_.ignore(fmt::format("text_decoder.{}", name), "is for hetero-parallel, which is off");
    }
    return encoder;
  }

  ModulePlan colocated(ModuleKind kind, const ModulePlan& llm, int64_t scale) {
    ModulePlan encoder;
    encoder.kind = kind;
    encoder.placement = ModulePlacement::kColocated;
    const std::string outer = mindspeed_key(kind), network = fmt::format("{}.{}", outer, mindspeed_network_key(kind));
    const auto degree = [&](const char* name) -> int64_t {
      return number({fmt::format("{}.{}", outer, name), fmt::format("{}.{}", network, name)}, name).value_or(1);
    };
    encoder.tp = degree("tp"), encoder.pp = degree("pp"), encoder.cp = degree("cp");
    const int64_t replica = encoder.tp * encoder.pp * encoder.cp;
    if (plan_.world_size % replica != 0) {
      keys_.complain(outer + ".tp",
                     fmt::format("x pp x cp is {}, which does not divide {} devices", replica, plan_.world_size));
    }
    encoder.dp = std::max<int64_t>(1, plan_.world_size / replica);
    encoder.axis_order = {"tp", "cp", "dp"};
    if (encoder.pp > 1) encoder.axis_order.push_back("pp");
    encoder.cp_ulysses = encoder.cp == 1                         ? 1
                         : llm.cp > 1 && llm.cp_ulysses < llm.cp ? llm.cp_ulysses
                                                                 : ulysses_of(encoder.cp);
    encoder.sequence_parallel = encoder.tp > 1 && wants_sequence_parallel();
    encoder.zero = is_frozen(kind) || !distributed() ? 0 : effective_zero(1, num_weight_copies(encoder));
    const auto layers = list(network + ".pipeline_num_layers", "layers of the encoder", kind);
    encoder.layers.assign(static_cast<size_t>(std::min<int64_t>(encoder.pp, 1024)), {0});
    encoder.layers.front() = {num_layers(plan_, kind)};
    // With one pipeline rank the list that an inline encoder would have is left in model.json, and not looked at.
    if (encoder.pp > 1 && layers && layers->size() == encoder.layers.size()) encoder.layers = *layers;
    read_module_recompute(encoder, network);
    set_mbs_scale(encoder, std::min<int64_t>(scale, 1 << 20) * llm.dp, encoder.dp);
    encoder.form = llm.pp == 1 ? EncoderForm::kOnDemand : EncoderForm::kBefore;
    for (const char* name : {"mbs"}) {
      keys_.ignore(fmt::format("{}.{}", outer, name), "follows from micro-batch-size and hetero-encoder-mbs-scale");
      keys_.ignore(fmt::format("text_decoder.{}", name), "follows from micro-batch-size");
    }
    place_on_all_ranks(plan_.world_size, encoder);
    if (scale > 1 && llm.pp == 1) {
      keys_.note(
          fmt::format("hetero-encoder-mbs-scale is {}, but the llm has no pipeline: encoders run once for each "
                      "microbatch",
                      scale));
      set_mbs_scale(encoder, llm.dp, encoder.dp);
    }
    return encoder;
  }

  bool distributed() { return keys_.flag(megatron_key::kDistributedOptimizer, "zero 1"); }
  bool wants_sequence_parallel() { return keys_.flag(megatron_key::kSequenceParallel, "sequence_parallel"); }
  int64_t ulysses_of(int64_t cp) {
    const ImportedKeys::Given* algorithm = keys_.find(megatron_key::kCpAlgorithm);
    if (algorithm == nullptr || algorithm->value == "ulysses_cp_algo") return cp;
    if (algorithm->value == "hybrid_cp_algo") return keys_.integer_if(megatron_key::kUlysses, "cp_ulysses").value_or(1);
    return 1;
  }

  /// model.json's own, for one module.
  void read_module_recompute(ModulePlan& module, const std::string& prefix) {
    const auto granularity = keys_.text_if(prefix + ".recompute_granularity", "recompute");
    const auto method = keys_.text_if(prefix + ".recompute_method", "block: the first blocks of a stage; uniform: all");
    const auto layers = keys_.integer_if(prefix + ".recompute_num_layers", "how many blocks", ImportedKeys::kWithZero);
    constexpr int64_t kAll = 1 << 20;
    if (!granularity) return;
    if (*granularity == "selective") {
      recompute_first(module, kAll, BlockRecompute::kAttention);
    } else if (*granularity == "full") {
      recompute_first(module, method == "block" ? layers.value_or(kAll) : kAll, BlockRecompute::kFull);
    } else {
      keys_.complain(prefix + ".recompute_granularity", "has to be full or selective");
    }
  }

  /// An object where a number or a list should be has its members under names that nobody asks for.
  void complain_of_sections() {
    for (const ModuleKind kind : {ModuleKind::kVision, ModuleKind::kAudio, ModuleKind::kLlm}) {
      const bool is_llm = kind == ModuleKind::kLlm;
      const std::string outer = mindspeed_key(kind);
      const std::string network = is_llm ? outer : fmt::format("{}.{}", outer, mindspeed_network_key(kind));
      for (const std::string& left : keys_.left()) {
        for (const char* name : {"tp", "pp", "cp", "pipeline_num_layers", "freeze", "recompute_granularity",
                                 "recompute_method", "recompute_num_layers"}) {
          for (const std::string& prefix : {outer, network}) {
            const std::string key = fmt::format("{}.{}", prefix, name);
            if (left.starts_with(key + ".")) keys_.complain(key, "is a section, a number, a list or a word is needed");
          }
        }
      }
    }
  }

  void read_rest() {
    keys_.ignore("seq-length", "bounds a sample; the workload says how long samples are");
    set_workload(import_, plan_.workload.global_batch_samples, std::nullopt, frozen_);
    read_megatron_training(import_);
    // model.json describes layers, and the model that was chosen has them.
    for (const char* key : {"num-layers",
                            "hidden-size",
                            "ffn-hidden-size",
                            "num-attention-heads",
                            "num-query-groups",
                            "group-query-attention",
                            "vocab-size",
                            "padded-vocab-size",
                            "make-vocab-size-divisible-by",
                            "normalization",
                            "norm-epsilon",
                            "swiglu",
                            "position-embedding-type",
                            "rotary-base",
                            "rotary-percent",
                            "disable-bias-linear",
                            "add-qkv-bias",
                            "untie-embeddings-and-output-weights",
                            "hidden-dropout",
                            "attention-dropout",
                            "kv-channels",
                            "use-rotary-position-embeddings",
                            "qk-layernorm",
                            "mm-model"})
      keys_.ignore(key, "the model says it");
    complain_of_sections();
    for (const std::string& key : keys_.left()) {
      if (key.find('.') == std::string::npos && !model_.contains(key)) continue;
      const Json& value = keys_.find(key)->value;
      const bool is_off =
          value.is_null() || value == false || value == 0 || value == Json::array() || value == Json::object();
      if (is_suspicious(key) && !is_off) {
        keys_.not_understood(key, "Weft does not know this entry of model.json");
      } else {
        keys_.ignore(key, "describes a layer, and the model says it");
      }
    }
    sort_megatron_leftovers(import_);
  }

  Import& import_;
  ImportedKeys& keys_;
  Plan& plan_;
  Json model_, result_;
  bool is_hetero_ = false;
  int64_t replica_ = 1;
  std::vector<ModuleKind> frozen_;
  std::function<void(const char*, ModulePlan&)> recompute_vision_;
};

}  // namespace

std::optional<Error> import_mindspeed_mm(Import& import) {
  return MindspeedMm(import).run();
}

}  // namespace weft
