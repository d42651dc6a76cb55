#include <algorithm>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/exchange/import_parts.h"
#include "weft/exchange/key_lines.h"
#include "weft/exchange/megatron_keys.h"

namespace weft {
namespace {

/// The actor's settings are those of megatron_training, of the model it names, and its own; later ones win.
class MindspeedRl {
 public:
  explicit MindspeedRl(Import& import) : import_(import), keys_(import.keys) {}

  std::optional<Error> run() {
    const ImportRequest& request = import_.request;
    std::vector<Document> documents;
    for (const SettingsFile& file : request.files) {
      auto document = foreign_document(file, keys_);
      if (!document) return document.error();
      documents.push_back(*std::move(document));
    }
    const Json* actor = nullptr;
    for (size_t i = 0; i < documents.size(); ++i) {
      const Json& root = documents[i].root;
      if (root.is_object() && root.contains("actor_config") && root["actor_config"].is_object())
        actor = &root["actor_config"];
    }
    if (actor == nullptr) {
      return Error{.source = request.files.empty() ? "import" : request.files.front().name,
                   .problem = "has no actor_config",
                   .advice = "Give a MindSpeed-RL YAML file, and the file of its model where it names one."};
    }
    for (size_t i = 0; i < documents.size(); ++i) give_section(documents[i].root, i, "megatron_training");
    if (auto error = give_model(documents, *actor)) return error;
    for (size_t i = 0; i < documents.size(); ++i) give_section(documents[i].root, i, "actor_config");
    for (size_t i = 0; i < documents.size(); ++i) give_others(documents[i].root, i);
    return read();
  }

 private:
  bool is_section(const Json& value, size_t file, const std::string& name) {
    if (value.is_object()) return true;
    if (value.is_null()) return false;
    const uint32_t line = KeyLines(import_.request.files[file].text).line_of({name});
    keys_.give({.key = name, .value = value, .place = {static_cast<uint32_t>(file), line}});
    keys_.raw(name, "a section");
    keys_.complain(name, fmt::format("is {}, a section with settings is needed", describe_value(value)));
    return false;
  }

  void give_section(const Json& root, size_t file, const std::string& section) {
    if (!root.is_object() || !root.contains(section) || !is_section(root[section], file, section)) return;
    const KeyLines lines(import_.request.files[file].text);
    for (const auto& [name, value] : root[section].items()) {
      if (name == "model" || value.is_null()) continue;
      std::string key = name;
      std::replace(key.begin(), key.end(), '_', '-');
      keys_.give({.key = key,
                  .value = value == true ? Json() : value,
                  .place = {static_cast<uint32_t>(file), lines.line_of({section, name})}});
    }
  }

  /// The section that the files call by the actor's model.
  std::optional<Error> give_model(const std::vector<Document>& documents, const Json& actor) {
    const std::string name =
        actor.contains("model") && actor["model"].is_string() ? actor["model"].get<std::string>() : "";
    if (name.empty()) return std::nullopt;
    bool is_found = false;
    for (size_t i = 0; i < documents.size(); ++i) {
      is_found |= documents[i].root.is_object() && documents[i].root.contains(name);
      give_section(documents[i].root, i, name);
    }
    if (!is_found) {
      import_.no_shape =
          fmt::format("they name the model {}, whose file (model/{}.yaml) is not among those given", name, name);
    }
    return std::nullopt;
  }

  void give_others(const Json& root, size_t file) {
    if (!root.is_object()) return;
    for (const char* section : {"rl_config", "generate_config"}) {
      if (!root.contains(section) || !is_section(root[section], file, section)) continue;
      give_values(root[section], section, static_cast<uint32_t>(file), import_.request.files[file].text, keys_);
    }
  }

  std::optional<Error> read() {
    const std::string no_shape = import_.no_shape;
    read_megatron_shape(import_);
    if (!no_shape.empty() && !import_.shape) import_.no_shape = no_shape;
    if (auto error = choose_model(import_)) return error;
    if (import_.plan.model.modules.size() > 1) {
      return Error{.source = "--model",
                   .problem = "has encoders, but actor_config is read for one chain of decoder layers",
                   .advice = "Give a model of text, or import from mindspeed-mm."};
    }
    read_devices();
    read_batch();
    read_megatron_plan(import_);
    const auto tokens = keys_.integer_if("seq-length", "tokens of a sample");
    set_workload(import_, import_.plan.workload.global_batch_samples, tokens, {});
    read_megatron_training(import_);
    for (const std::string& key : keys_.left()) {
      if (key.starts_with("rl_config.") || key.starts_with("generate_config."))
        keys_.ignore(key, "is about sampling, rewards or the loss; a step of the actor's training is planned");
    }
    sort_megatron_leftovers(import_);
    return std::nullopt;
  }

  void read_devices() {
    const auto devices =
        keys_.integer_if("rl_config.actor_resource.num_npus", "devices of the actor", {1, kMostDevices});
    Cluster& cluster = import_.plan.cluster;
    const ImportRequest& request = import_.request;
    if (devices && !request.nodes && !request.devices_per_node) {
      if (*devices % cluster.devices_per_node == 0) {
        cluster.nodes = *devices / cluster.devices_per_node;
      } else if (*devices < cluster.devices_per_node) {
        cluster.nodes = 1;
        set_devices_per_node(*devices, cluster);
      } else {
        keys_.complain("rl_config.actor_resource.num_npus",
                       fmt::format("is {}, which nodes of {} devices do not give", *devices, cluster.devices_per_node));
      }
      import_.plan.world_size = cluster.num_devices();
      return;
    }
    read_world(import_);
    if (devices && *devices != import_.plan.world_size)
      keys_.complain("rl_config.actor_resource.num_npus",
                     fmt::format("is {}, but the cluster has {}", *devices, import_.plan.world_size));
  }

  /// A step of the optimizer takes a mini-batch of prompts, each with several samples.
  void read_batch() {
    const int64_t prompts = keys_.factor("rl_config.mini_batch_size", 1, "prompts of a step");
    const int64_t samples = keys_.factor("rl_config.n_samples_per_prompt", 1, "samples of a prompt");
    const int64_t batch = prompts * samples;
    keys_.ignore(megatron_key::kBatch, "counts prompts between generations");
    keys_.assume("global_batch_samples", std::to_string(batch), "mini_batch_size times n_samples_per_prompt");
    keys_.give({.key = megatron_key::kBatch, .value = batch});
    if (keys_.has("rl_config.use_dynamic_bsz") || keys_.has("rl_config.max_packing_token_size"))
      keys_.note("samples are packed by their tokens; here microbatches have a fixed number of samples");
  }

  Import& import_;
  ImportedKeys& keys_;
};

}  // namespace

std::optional<Error> import_mindspeed_rl(Import& import) {
  return MindspeedRl(import).run();
}

}  // namespace weft
