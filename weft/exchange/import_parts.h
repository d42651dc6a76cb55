#pragma once

#include "weft/exchange/import.h"

namespace weft {

// What the readers of import_settings share.

/// What is built up while files are read.
struct Import {
  const ImportRequest& request;
  ImportedKeys keys;
  Plan plan;
  std::optional<Json> shape;  ///< the model as a Hugging Face configuration, where files describe one
  std::string no_shape;       ///< why they do not
  std::optional<std::vector<std::vector<int64_t>>> stages;  ///< layers of the llm that files list, [rank][chunk]
  Json data = "synthetic";                                  ///< of the training configuration
  Json config = nullptr;
  std::string no_config;
  bool searches = false;
};

/// Scripts, lines and YAML files of arguments, by key. Files of other kinds are given back.
Result<std::vector<size_t>> read_arguments(const ImportRequest& request, ImportedKeys& keys);

/// A JSON or YAML document of another system: anchors stand for what they name, includes are refused, and of a key that
/// stands twice the last value counts, with a note.
Result<Document> foreign_document(const SettingsFile& file, ImportedKeys& keys);
/// Every value of a document, or of a section of it, by its path: "parallel_config.data_parallel". Lists stay whole.
void give_values(const Json& root, const std::string& section, uint32_t file, std::string_view text,
                 ImportedKeys& keys);

/// num-layers, hidden-size and the like as a Hugging Face configuration, where they are given.
void read_megatron_shape(Import& import);
/// The model that the plan has: the one given, or the files' own. Where both are there they must agree.
std::optional<Error> choose_model(Import& import);

/// Nodes and devices from the launcher's arguments, else the cluster's.
void read_world(Import& import);
/// How many there are, and the setting that says it.
struct NamedCount {
  std::string key;
  int64_t count = 1;
};
/// The cluster with so many nodes of so many devices, and the plan's world; a complaint, and one node, where no plan
/// has so many.
void set_world(Import& import, const NamedCount& nodes, const NamedCount& devices_per_node);
/// Degrees, stages, batch, recomputation, ZeRO and precision of the llm.
void read_megatron_plan(Import& import);
/// Rate and schedule, optimizer, steps, seed, checkpoints.
void read_megatron_training(Import& import);
/// Tensor and pipeline ranks that a command of the script cuts weights for, against those that load them.
void compare_converted_degrees(Import& import);
/// Everything that is left: harmless, or not understood.
void sort_megatron_leftovers(Import& import);

struct TrainingNumbers {
  std::optional<int64_t> steps;
  int64_t seed = 0;
  std::optional<double> learning_rate;
  double end_rate = 0;
  std::optional<double> end_layers_rate;  ///< of the embedding and the head
  std::string schedule = "cosine";
  int64_t warmup_steps = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0, max_gradient_norm = 0;
  std::optional<int64_t> checkpoint_steps, checkpoints_kept;
};
/// As weft train reads it.
void set_config(const TrainingNumbers& numbers, Import& import);

/// The workload: the one given, or text of one length; with the batch and precision of the plan.
void set_workload(Import& import, int64_t batch, std::optional<int64_t> sequence_tokens,
                  const std::vector<ModuleKind>& frozen);

/// The parts of a module that follow from its degrees: ranks, axes, and a shape of recomputation.
void place_on_all_ranks(int64_t world_size, ModulePlan& module);
/// A complaint where a module has more chunks than layers: no table of so many is made, and its pipeline has one rank.
bool has_too_many_chunks(Import& import, const std::string& key, ModulePlan& module, int64_t num_layers);
/// The same number of layers in every chunk; a complaint where that is not possible.
void spread_layers(Import& import, const std::string& key, ModulePlan& module, int64_t num_layers);
/// The first blocks of every chunk, or all where it has fewer.
void recompute_first(ModulePlan& module, int64_t blocks, BlockRecompute what);
/// Stages in the order of the data as [rank][chunk].
std::vector<std::vector<int64_t>> by_rank(const std::vector<int64_t>& stages, int64_t pp);
int64_t num_layers(const Plan& plan, ModuleKind kind);

/// One for each system.
std::optional<Error> import_megatron(Import& import);
std::optional<Error> import_mindspeed_mm(Import& import);
std::optional<Error> import_mindformers(Import& import);
std::optional<Error> import_mindspeed_rl(Import& import);

}  // namespace weft
