#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/product.h"
#include "weft/base/text.h"
#include "weft/exchange/import_parts.h"
#include "weft/exchange/mindformers_keys.h"
#include "weft/families/parts/limits.h"
#include "weft/meaning/training_ranges.h"
#include "weft/meaning/weight_copies.h"
#include "weft/schedule/schedule_kind.h"
#include "weft/spec/num_experts.h"

namespace weft {
namespace {

/// A number for each pipeline rank, or a list of these for each chunk, as [rank][chunk]. One number is for all.
std::optional<std::vector<std::vector<int64_t>>> per_rank(const Json& value, int64_t pp, int64_t vpp) {
  const auto ranks = static_cast<size_t>(pp), chunks = static_cast<size_t>(vpp);
  const auto count = [](const Json& number) -> std::optional<int64_t> {
    if (number.is_boolean()) return number.get<bool>() ? int64_t{1} << 20 : 0;
    if (!number.is_number_integer() || std::abs(number.get<double>()) > 1e6) return std::nullopt;
    return number.get<int64_t>();
  };
  if (const auto all = count(value)) return std::vector(ranks, std::vector<int64_t>(chunks, *all));
  if (!value.is_array() || value.empty()) return std::nullopt;
  const bool is_nested = value.front().is_array();
  if (value.size() != (is_nested ? chunks : ranks)) return std::nullopt;
  std::vector result(ranks, std::vector<int64_t>(chunks, 0));
  for (size_t i = 0; i < value.size(); ++i) {
    if (is_nested && (!value[i].is_array() || value[i].size() != ranks)) return std::nullopt;
    for (size_t rank = 0; is_nested && rank < ranks; ++rank) {
      const auto number = count(value[i][rank]);
      if (!number) return std::nullopt;
      result[rank][i] = *number;
    }
    if (is_nested) continue;
    const auto number = count(value[i]);
    if (!number) return std::nullopt;
    // One number for a rank with several chunks is for the first.
    result[i][0] = *number;
  }
  return result;
}

class Mindformers {
 public:
  explicit Mindformers(Import& import) : import_(import), keys_(import.keys), plan_(import.plan) {}

  std::optional<Error> run() {
    const ImportRequest& request = import_.request;
    for (size_t i = 0; i < request.files.size(); ++i) {
      auto document = foreign_document(request.files[i], keys_);
      if (!document) return document.error();
      if (!document->root.is_object()) {
        return Error{.source = request.files[i].name,
                     .problem = "is not a mapping of settings",
                     .advice = "Give a MindFormers YAML file."};
      }
      give_values(document->root, "", static_cast<uint32_t>(i), request.files[i].text, keys_);
    }
    if (keys_.has("base_config")) {
      keys_.not_understood("base_config",
                           "the file builds on another one, which is not read: give both, that one first");
    }
    read_shape();
    if (auto error = choose_model(import_)) return error;
    if (plan_.model.modules.size() > 1) {
      return Error{.source = "--model",
                   .problem = "has encoders, but parallel_config is for one chain of layers",
                   .advice = "Give a model of text, or import from mindspeed-mm."};
    }
    llm_.kind = ModuleKind::kLlm;
    read_degrees();
    read_world_of_degrees();
    read_schedule();
    read_layers();
    read_recompute();
    read_precision();
    read_optimizer_parallel();
    read_batch();
    place_on_all_ranks(plan_.world_size, llm_);
    plan_.modules.push_back(std::move(llm_));
    set_workload(import_, plan_.workload.global_batch_samples,
                 keys_.integer_if(mindformers_key::kSequence, "tokens of a sample"), {});
    read_training();
    sort_leftovers();
    if (import_.searches) plan_.modules.clear();
    return std::nullopt;
  }

 private:
  std::optional<int64_t> one_of(std::initializer_list<const char*> names, const char* meaning) {
    std::optional<int64_t> value;
    for (const char* name : names) {
      const auto here = keys_.integer_if(std::string(mindformers_key::kModel) + name, meaning);
      if (here && !value) value = here;
    }
    return value;
  }

  void read_shape() {
    const auto layers = one_of({"num_layers", "num_hidden_layers"}, "num_hidden_layers");
    const auto hidden = one_of({"hidden_size"}, "hidden_size");
    const auto heads = one_of({"num_heads", "num_attention_heads"}, "num_attention_heads");
    const auto groups = one_of({"n_kv_heads", "num_key_value_heads"}, "num_key_value_heads");
    const auto vocabulary = one_of({"vocab_size"}, "vocab_size");
    auto intermediate = one_of({"intermediate_size"}, "intermediate_size");
    const auto head_dim = one_of({"head_dim"}, "head_dim");
    const auto multiple = one_of({"multiple_of"}, "rounds intermediate_size");
    // No MLP is a thousand times as wide as others, and of this one the width still fits a number.
    constexpr NumberRange kFactors{0.001, 1000};
    const auto factor = keys_.number_if(std::string(mindformers_key::kModel) + "ffn_dim_multiplier",
                                        "makes intermediate_size", kFactors);
    const std::string type = name_of_model();
    Json shape = Json::object();
    if (layers) shape["num_hidden_layers"] = *layers;
    if (hidden) shape["hidden_size"] = *hidden;
    if (heads) shape["num_attention_heads"] = *heads;
    if (import_.request.model) {
      import_.shape = std::move(shape);
      return;
    }
    const std::string family = family_of(type);
    if (family.empty() || !layers || !hidden || !heads || !vocabulary) {
      import_.no_shape =
          family.empty() ? keys_.has("pretrained_model_dir") && type.empty()
                               ? "it is in the folder that pretrained_model_dir names"
                               : fmt::format("model_config of type {} is no family that Weft knows", in_quotes(type))
                         : "sizes are missing in model.model_config";
      return;
    }
    if (!intermediate) {
      const double wide = 4.0 * static_cast<double>(*hidden) * (factor ? *factor + 0.01 : 1.0);
      const int64_t step = multiple.value_or(256);
      intermediate = (static_cast<int64_t>(2 * std::floor(wide) / 3) + step - 1) / step * step;
      if (*intermediate > kIntermediateRange.max && factor) {
        keys_.complain(std::string(mindformers_key::kModel) + "ffn_dim_multiplier",
                       fmt::format("is {}, which makes an intermediate_size of {}, at most {} is known", *factor,
                                   *intermediate, kIntermediateRange.max));
        intermediate = kIntermediateRange.max;
      }
      keys_.assume(std::string(mindformers_key::kModel) + "intermediate_size", std::to_string(*intermediate),
                   "intermediate_size");
    }
    shape["model_type"] = family;
    shape["vocab_size"] = *vocabulary;
    shape["intermediate_size"] = *intermediate;
    shape["num_key_value_heads"] = groups.value_or(*heads);
    if (family != "qwen2" && (head_dim || family == "llama")) shape["head_dim"] = head_dim.value_or(*hidden / *heads);
    shape["hidden_act"] = "silu";
    shape["max_position_embeddings"] = std::max<int64_t>(
        1, one_of({"max_position_embedding", "max_position_embeddings", "seq_length"}, "max_position_embeddings")
               .value_or(4096));
    shape["rms_norm_eps"] = keys_.number(std::string(mindformers_key::kModel) + "rms_norm_eps", 1e-5, "rms_norm_eps");
    auto theta = keys_.number_if(std::string(mindformers_key::kModel) + "theta", "rope_theta");
    if (!theta) theta = keys_.number_if(std::string(mindformers_key::kModel) + "rope_theta", "rope_theta");
    shape["rope_theta"] = theta.value_or(10000.0);
    shape["tie_word_embeddings"] =
        keys_.flag(std::string(mindformers_key::kModel) + "tie_word_embeddings", "tie_word_embeddings");
    import_.shape = std::move(shape);
  }

  std::string name_of_model() {
    const auto type = keys_.text_if(std::string(mindformers_key::kModel) + "type", "the family");
    const auto model_type = keys_.text_if(std::string(mindformers_key::kModel) + "model_type", "the family");
    return model_type.value_or(type.value_or(""));
  }

  std::string family_of(const std::string& type) {
    const bool has_bias = keys_.flag(std::string(mindformers_key::kModel) + "qkv_has_bias",
                                     "biases of queries, keys and values: the family qwen2");
    const bool norms = keys_.flag(std::string(mindformers_key::kModel) + "qk_layernorm",
                                  "norms of queries and keys: the family qwen3");
    if (type == "qwen3" || type == "Qwen3Config" || norms) return "qwen3";
    if (type == "qwen2" || type == "Qwen2Config" || (type == "LlamaConfig" && has_bias)) return "qwen2";
    return type == "LlamaConfig" || type == "llama" ? "llama" : "";
  }

  void read_degrees() {
    const bool is_parallel = keys_.flag(
        mindformers_key::kUseParallel, "whether there is more than one device",
        keys_.has(mindformers_key::kDp) || keys_.has(mindformers_key::kTp) || keys_.has(mindformers_key::kPp));
    llm_.dp = keys_.integer(mindformers_key::kDp, 1, "dp", ImportedKeys::kDegrees);
    llm_.tp = keys_.integer(mindformers_key::kTp, 1, "tp", ImportedKeys::kDegrees);
    llm_.pp = keys_.integer(mindformers_key::kPp, 1, "pp", ImportedKeys::kDegrees);
    llm_.cp = keys_.integer(mindformers_key::kCp, 1, "cp", ImportedKeys::kDegrees);
    if (const Module* llm = plan_.model.find(ModuleKind::kLlm); llm != nullptr && num_experts(*llm) > 1) {
      llm_.ep = keys_.integer(mindformers_key::kEp, 1, "ep", ImportedKeys::kDegrees);
    } else {
      keys_.ignore(mindformers_key::kEp, "the model has no experts");
    }
    const int64_t world = product_of({llm_.dp, llm_.tp, llm_.pp, llm_.cp});
    if (is_parallel && world > kMostDevices) {
      keys_.complain(mindformers_key::kDp,
                     fmt::format("x model_parallel x context_parallel x pipeline_stage is {}, at most {} devices can "
                                 "be planned",
                                 world, kMostDevices));
      llm_.dp = llm_.tp = llm_.pp = llm_.cp = llm_.ep = 1;
      has_no_stages_ = true;
    }
    if (!is_parallel && world > 1) {
      keys_.note("use_parallel is false: the degrees of parallel_config have no effect, one device trains");
      llm_.dp = llm_.tp = llm_.pp = llm_.cp = llm_.ep = 1;
    }
    read_mode();
    llm_.sequence_parallel = keys_.flag(mindformers_key::kSequenceParallel, "sequence_parallel");
    if (llm_.sequence_parallel && (llm_.tp == 1 || llm_.cp > 1)) {
      keys_.note(fmt::format("use_seq_parallel is given with {}; the system leaves it out without a word",
                             llm_.tp == 1 ? "model_parallel 1" : fmt::format("context_parallel {}", llm_.cp)));
      llm_.sequence_parallel = false;
    }
    const std::string algorithm =
        keys_.choice(mindformers_key::kCpAlgorithm, {"colossalai_cp", "ulysses_cp", "hybrid_cp"}, "cp_ulysses");
    const auto ulysses = keys_.integer_if(mindformers_key::kUlysses, "cp_ulysses with hybrid_cp");
    if (llm_.cp > 1 && algorithm == "ulysses_cp") llm_.cp_ulysses = llm_.cp;
    if (llm_.cp > 1 && algorithm == "hybrid_cp") {
      if (!ulysses || llm_.cp % *ulysses != 0) {
        keys_.complain(mindformers_key::kUlysses, fmt::format("has to divide context_parallel {}", llm_.cp));
      } else {
        llm_.cp_ulysses = *ulysses;
      }
    }
  }

  void read_mode() {
    const Json* mode = keys_.raw(mindformers_key::kMode,
                                 "0: data parallel; 1: as parallel_config says; 2: searched; 3: by the model's code");
    if (mode == nullptr) return;
    const std::string text = mode->is_string() ? mode->get<std::string>() : mode->dump();
    const std::vector<std::string> names = {"data_parallel", "semi_auto_parallel", "auto_parallel", "hybrid_parallel"};
    const auto named = std::find(names.begin(), names.end(), text);
    const int64_t number = named != names.end() ? named - names.begin() : text.size() == 1 ? text[0] - '0' : -1;
    if (number == 0 && llm_.tp * llm_.pp * llm_.cp > 1) {
      keys_.complain(mindformers_key::kMode,
                     "is 0, data parallel, but model_parallel, pipeline_stage or context_parallel is above 1");
    } else if (number == 2) {
      import_.searches = true;
    } else if (number == 3) {
      keys_.note("parallel_mode is 3: the model's own code divides it; the degrees of parallel_config are taken");
    } else if (number < 0 || number > 3) {
      keys_.complain(mindformers_key::kMode, "has to be 0, 1, 2 or 3");
    }
  }

  /// The degrees say how many devices there are.
  void read_world_of_degrees() {
    const int64_t world = llm_.num_ranks();
    Cluster& cluster = plan_.cluster;
    const ImportRequest& request = import_.request;
    set_world(import_, {"--nodes", request.nodes.value_or(cluster.nodes)},
              {"--devices-per-node", request.devices_per_node.value_or(cluster.devices_per_node)});
    const bool is_given = request.nodes.has_value() || request.devices_per_node.has_value();
    if (!import_.searches && !has_no_stages_ && cluster.num_devices() != world) {
      if (is_given) {
        keys_.complain(mindformers_key::kDp,
                       fmt::format("x model_parallel x context_parallel x pipeline_stage is {}, but there are {} "
                                   "devices",
                                   world, cluster.num_devices()));
      } else if (world % cluster.devices_per_node == 0) {
        cluster.nodes = world / cluster.devices_per_node;
        keys_.assume("--nodes", std::to_string(cluster.nodes), "as many as parallel_config needs");
      } else if (world < cluster.devices_per_node) {
        cluster.nodes = 1;
        set_devices_per_node(world, cluster);
        keys_.assume("--devices-per-node", std::to_string(world), "as many as parallel_config needs");
      } else {
        keys_.complain(mindformers_key::kDp,
                       fmt::format("x model_parallel x context_parallel x pipeline_stage is {}, which nodes of {} "
                                   "devices do not give",
                                   world, cluster.devices_per_node));
      }
    }
    plan_.world_size = cluster.num_devices();
  }

  void read_schedule() {
    llm_.vpp = keys_.integer(mindformers_key::kVpp, 1, "vpp");
    const bool interleaves = keys_.flag(mindformers_key::kInterleave, "interleaved_1f1b");
    const std::string scheduler = keys_.choice(mindformers_key::kScheduler, {"1f1b", "gpipe"}, "schedule.name");
    if (llm_.vpp > 1 && (!interleaves || llm_.pp == 1)) {
      keys_.note(fmt::format("pp_interleave_num is {}, but {}: chunks are not interleaved", llm_.vpp,
                             llm_.pp == 1 ? "there is no pipeline" : "pipeline_interleave is not on"));
      llm_.vpp = 1;
    }
    llm_.vpp = std::clamp<int64_t>(llm_.vpp, 1, std::max<int64_t>(1, num_layers(plan_, ModuleKind::kLlm)));
    plan_.schedule.name = llm_.pp == 1 || llm_.vpp > 1 ? name_of(usual_schedule(llm_.vpp)) : scheduler;
    if (llm_.pp == 1 && scheduler == "gpipe") keys_.note("pipeline_scheduler is gpipe, but there is no pipeline");
  }

  void read_layers() {
    const int64_t layers = num_layers(plan_, ModuleKind::kLlm);
    const Json* offset = keys_.raw(mindformers_key::kOffset, "layers: what a stage has beyond an even share");
    // A list of what each stage has may leave some without layers.
    const bool is_list = offset != nullptr && offset->is_array() && std::ssize(*offset) == llm_.pp && llm_.vpp == 1;
    if (has_no_stages_) {
      llm_.layers = {{layers}};
      return;
    }
    if (!is_list && has_too_many_chunks(import_, mindformers_key::kPp, llm_, layers)) {
      has_no_stages_ = true;
      return;
    }
    const int64_t share = layers / (llm_.pp * llm_.vpp);
    llm_.layers.assign(static_cast<size_t>(llm_.pp), std::vector<int64_t>(static_cast<size_t>(llm_.vpp), share));
    if (offset != nullptr && *offset != 0) {
      const auto more = per_rank(*offset, llm_.pp, llm_.vpp);
      if (!more) {
        keys_.complain(mindformers_key::kOffset,
                       fmt::format("has to be 0, a list of {} numbers, or {} such lists", llm_.pp, llm_.vpp));
      } else {
        for (size_t rank = 0; rank < more->size(); ++rank) {
          for (size_t chunk = 0; chunk < (*more)[rank].size(); ++chunk)
            llm_.layers[rank][chunk] += (*more)[rank][chunk];
        }
      }
    }
    int64_t sum = 0;
    for (const auto& row : llm_.layers) {
      for (const int64_t count : row) {
        if (count < 0) keys_.complain(mindformers_key::kOffset, "leaves a stage with fewer than 0 layers");
        sum += count;
      }
    }
    if (sum != layers && !import_.searches) {
      keys_.complain(
          offset != nullptr ? mindformers_key::kOffset : mindformers_key::kPp,
          fmt::format("gives {} layers on {} stages, but the model has {}", sum, llm_.pp * llm_.vpp, layers));
    }
  }

  void read_recompute() {
    const Json* recompute =
        keys_.raw(mindformers_key::kRecompute, "recompute: full blocks of a stage, from its first on");
    const Json* selected = keys_.raw(mindformers_key::kSelectRecompute, "operators by name");
    const char* const of_mlp =
        "makes an MLP's activation again in the backward, which takes less memory than is predicted; what is trained "
        "is "
        "the same";
    // Without names the system takes those of the MLP's activation.
    if (selected != nullptr) keys_.ignore(mindformers_key::kSelectRecompute, of_mlp);
    const std::string prefix = std::string(mindformers_key::kSelectRecompute) + ".";
    for (const std::string& name : keys_.left()) {
      if (!name.starts_with(prefix)) continue;
      const std::string op = name.substr(prefix.size());
      const bool is_of_mlp = op == R"(feed_forward\.mul)" || op == R"(feed_forward\.w1\.activation\.silu)" ||
                             op == R"(feed_forward\.w1\.reshape)" || op == R"(feed_forward\.w2\.reshape)";
      if (is_of_mlp) {
        keys_.ignore(name, of_mlp);
      } else {
        keys_.not_understood(name, "of a block, attention or all of it is recomputed here");
      }
    }
    if (recompute == nullptr || has_no_stages_) return;
    const auto counts = per_rank(*recompute, llm_.pp, llm_.vpp);
    if (!counts) {
      keys_.complain(mindformers_key::kRecompute,
                     fmt::format("has to be true, false, a list of {} numbers, or {} such lists", llm_.pp, llm_.vpp));
      return;
    }
    const auto is_negative = [](int64_t count) { return count < 0; };
    if (std::any_of(counts->begin(), counts->end(),
                    [&](const auto& row) { return std::any_of(row.begin(), row.end(), is_negative); })) {
      keys_.complain(mindformers_key::kRecompute, "has a number of blocks below 0");
      return;
    }
    llm_.recompute.assign(llm_.layers.size(), {});
    for (size_t rank = 0; rank < llm_.layers.size(); ++rank) {
      for (size_t chunk = 0; chunk < llm_.layers[rank].size(); ++chunk) {
        Recompute blocks;
        blocks.add(BlockRecompute::kFull,
                   std::clamp<int64_t>((*counts)[rank][chunk], 0, std::max<int64_t>(0, llm_.layers[rank][chunk])));
        llm_.recompute[rank].push_back(blocks);
      }
    }
    keys_.ignore("recompute_config.parallel_optimizer_comm_recompute",
                 "gathers weights again in the backward, as ZeRO 3 does here");
    keys_.ignore("recompute_config.mp_comm_recompute", "whether recomputation communicates again; it does here");
    keys_.ignore("recompute_config.recompute_slice_activation", "keeps a block's input divided over tp");
    keys_.ignore("recompute_config.select_comm_recompute", "is for select_recompute");
  }

  static std::optional<Precision> type(const std::string& name) {
    if (name == "bfloat16" || name == "bf16") return Precision::kBf16;
    if (name == "float16" || name == "fp16") return Precision::kFp16;
    if (name == "float32" || name == "fp32") return Precision::kFp32;
    return std::nullopt;
  }

  void read_precision() {
    const auto read = [&](const std::string& name, const char* usual, const char* meaning) {
      const auto precision = type(keys_.text(name, usual, meaning));
      if (!precision) keys_.complain(name, "has to be bfloat16, float16 or float32");
      return precision.value_or(Precision::kFp32);
    };
    plan_.precision.compute = read(mindformers_key::kComputeType, "float16", "precision.compute");
    const bool has_new_name = keys_.has(mindformers_key::kParameterTypeNew);
    plan_.precision.master = read(has_new_name ? mindformers_key::kParameterTypeNew : mindformers_key::kParameterType,
                                  "float32", "precision.master");
    plan_.precision.reduce =
        keys_.flag(mindformers_key::kReduceFp32, "precision.reduce fp32, else that of compute", true)
            ? Precision::kFp32
            : plan_.precision.compute;
  }

  void read_optimizer_parallel() {
    const bool is_on = keys_.flag(mindformers_key::kZero, "zero by optimizer_level");
    const std::string level = keys_.choice(mindformers_key::kZeroLevel, {"level1", "level2", "level3"}, "zero");
    if (is_on) llm_.zero = level.back() - '0';
    llm_.zero = effective_zero(llm_.zero, num_weight_copies(llm_));
    if (keys_.flag("parallel.parallel_optimizer_config.gradient_accumulation_shard",
                   "gradients that are summed up are divided: "
                   "zero 2") &&
        llm_.zero == 1)
      llm_.zero = 2;
    keys_.ignore("parallel.parallel_optimizer_config.parallel_optimizer_threshold",
                 "leaves weights below so many KB whole on every rank; all are divided here");
    for (const char* collective : {"allreduce", "allgather", "reducescatter"}) {
      const std::string prefix = fmt::format("{}.{}", mindformers_key::kFusion, collective);
      const auto mode = keys_.text_if(prefix + ".mode", "how messages are joined");
      const auto size = keys_.number_if(prefix + ".config", "buckets_mb, where the mode is size");
      if (mode == "size" && size && *size > 0) plan_.buckets_mb = *size;
    }
  }

  void read_batch() {
    constexpr IntegerRange kParts{1, 1024};
    const int64_t interleaved = keys_.integer("micro_batch_interleave_num", 1,
                                              "mbs: batch_size times this, in parts that hide each other's "
                                              "communication",
                                              kParts);
    if (interleaved > 1)
      keys_.note("micro_batch_interleave_num hides communication behind the other half; that is not priced");
    plan_.schedule.mbs = keys_.factor(mindformers_key::kBatch, 1, "mbs") * interleaved;
    const int64_t microbatches = keys_.factor(mindformers_key::kMicrobatches, 1, "microbatches of a pipeline");
    const int64_t accumulated = keys_.factor(mindformers_key::kAccumulation, 1, "microbatches without a pipeline");
    plan_.schedule.microbatches = llm_.pp > 1 ? microbatches : accumulated;
    if (llm_.pp > 1 && accumulated > 1)
      keys_.complain(mindformers_key::kAccumulation, "is above 1 in a pipeline, which has micro_batch_num");
    if (llm_.pp == 1 && microbatches > 1)
      keys_.note(fmt::format("micro_batch_num is {} without a pipeline; the system sets it back to 1", microbatches));
    if (llm_.pp > 1 && microbatches < llm_.pp)
      keys_.complain(mindformers_key::kMicrobatches,
                     fmt::format("is {}, but a pipeline of {} stages needs at least as many", microbatches, llm_.pp));
    plan_.workload.global_batch_samples = product_of({plan_.schedule.mbs, plan_.schedule.microbatches, llm_.dp});
  }

  void read_training() {
    TrainingNumbers numbers;
    numbers.seed = keys_.integer("seed", 0, "seed", ImportedKeys::kWithZero);
    numbers.learning_rate = keys_.number_if("lr_schedule.learning_rate", "optimizer.learning_rate", kLearningRateRange);
    if (!numbers.learning_rate)
      numbers.learning_rate = keys_.number_if("optimizer.learning_rate", "optimizer.learning_rate", kLearningRateRange);
    if (keys_.has("lr_schedule.learning_rate")) keys_.ignore("optimizer.learning_rate", "lr_schedule says it");
    numbers.end_rate = keys_.number("lr_schedule.lr_end", 0, "learning_rate_schedule.end_fraction: over learning_rate",
                                    kLearningRateRange);
    const std::string schedule = keys_.text("lr_schedule.type", "ConstantWarmUpLR", "learning_rate_schedule.kind");
    if (schedule.starts_with("Cosine")) {
      numbers.schedule = "cosine";
    } else if (schedule.starts_with("Linear") || schedule.starts_with("Polynomial")) {
      numbers.schedule = "linear";
    } else {
      numbers.schedule = "constant";
      if (!schedule.starts_with("Constant"))
        keys_.not_understood("lr_schedule.type", "schedules here are constant, linear and cosine");
    }
    const auto total = keys_.integer_if("lr_schedule.total_steps", "steps, where it is not -1", {-1, kStepRange.max});
    const int64_t epochs = keys_.integer("runner_config.epochs", 1, "steps: times those of the data");
    if (total && *total > 0) numbers.steps = total;
    const Json* sizes = keys_.raw("train_dataset.data_loader.sizes", "steps of an epoch: the first, over the batch");
    if (!numbers.steps && sizes != nullptr && sizes->is_array() && !sizes->empty()) {
      if (const auto samples = whole_number_in(sizes->front()); samples && *samples >= 0)
        numbers.steps = product_of({epochs, *samples / plan_.workload.global_batch_samples});
    }
    const int64_t steps = import_.request.steps.value_or(numbers.steps.value_or(0));
    const auto ratio = keys_.number_if("lr_schedule.warmup_ratio", "learning_rate_schedule.warmup_steps: of the steps");
    numbers.warmup_steps =
        keys_.integer_if("lr_schedule.warmup_steps", "learning_rate_schedule.warmup_steps", ImportedKeys::kWithZero)
            .value_or(0);
    if (ratio) numbers.warmup_steps = static_cast<int64_t>(std::clamp(*ratio, 0.0, 1.0) * static_cast<double>(steps));
    const std::string optimizer = keys_.text("optimizer.type", "AdamW", "AdamW");
    if (optimizer.find("Adam") == std::string::npos)
      keys_.not_understood("optimizer.type", "AdamW is the optimizer here");
    if (const auto betas =
            keys_.numbers_if("optimizer.betas", "optimizer.beta1, optimizer.beta2", {kBeta1Range, kBeta2Range})) {
      numbers.beta1 = betas->front();
      numbers.beta2 = betas->back();
    }
    numbers.beta1 = keys_.number_if("optimizer.beta1", "optimizer.beta1", kBeta1Range).value_or(numbers.beta1);
    numbers.beta2 = keys_.number_if("optimizer.beta2", "optimizer.beta2", kBeta2Range).value_or(numbers.beta2);
    numbers.epsilon = keys_.number("optimizer.eps", 1e-8, "optimizer.epsilon", kEpsilonRange);
    numbers.weight_decay = keys_.number("optimizer.weight_decay", 0, "optimizer.weight_decay", kWeightDecayRange);
    const bool clips = keys_.flag("runner_wrapper.use_clip_grad", "whether gradients are clipped");
    const double norm =
        keys_.number("runner_wrapper.max_grad_norm", 1, "optimizer.max_gradient_norm", kGradientNormRange);
    numbers.max_gradient_norm = clips ? norm : 0;
    if (const Json* callbacks = keys_.raw("callbacks", "checkpoints: of CheckpointMonitor");
        callbacks != nullptr && callbacks->is_array()) {
      for (const Json& callback : *callbacks) {
        if (!callback.is_object() || callback.value("type", Json()) != "CheckpointMonitor") continue;
        numbers.checkpoint_steps = count_of(callback, "save_checkpoint_steps", kStepRange);
        numbers.checkpoints_kept = count_of(callback, "keep_checkpoint_max", kKeptRange);
      }
    }
    set_config(numbers, import_);
  }

  /// Of a callback; nothing where it is not given, or below the range, which there means none.
  std::optional<int64_t> count_of(const Json& callback, const char* name, IntegerRange range) {
    if (!callback.contains(name) || !callback[name].is_number()) return std::nullopt;
    const auto count = whole_number_in(callback[name]);
    if (count && *count <= range.max) return *count >= range.min ? count : std::nullopt;
    keys_.complain("callbacks", fmt::format("have {} of {}, a whole number from {} to {} is needed",
                                            describe_value(callback[name]), name, range.min, range.max));
    return std::nullopt;
  }

  void sort_leftovers() {
    for (const std::string& name : keys_.left()) {
      const Json& value = keys_.find(name)->value;
      if (const auto why = harmless_mindformers_key(name)) {
        keys_.ignore(name, std::string(*why));
      } else if (value.is_null() || value == false || value == "" || value == Json::array()) {
        keys_.ignore(name, "is off");
      } else {
        keys_.not_understood(name, "Weft does not know this key");
      }
    }
  }

  Import& import_;
  ImportedKeys& keys_;
  Plan& plan_;
  ModulePlan llm_;
  bool has_no_stages_ = false;  ///< their settings were refused, and what depends on them means nothing
};

}  // namespace

std::optional<Error> import_mindformers(Import& import) {
  return Mindformers(import).run();
}

}  // namespace weft
