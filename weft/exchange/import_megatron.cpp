#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/import_parts.h"
#include "weft/exchange/megatron_arguments.h"
#include "weft/exchange/megatron_keys.h"
#include "weft/exchange/megatron_layout.h"
#include "weft/meaning/weight_copies.h"
#include "weft/schedule/schedule_kind.h"
#include "weft/spec/num_experts.h"

namespace weft {
namespace {

namespace key = megatron_key;

/// The llm's part of a plan, from arguments of Megatron-LM, or of MindSpeed on top of it.
class MegatronPlan {
 public:
  explicit MegatronPlan(Import& import)
      : import_(import),
        keys_(import.keys),
        plan_(import.plan),
        is_ascend_(import.request.system != Target::kMegatron) {}

  void read() {
    llm_.kind = ModuleKind::kLlm;
    read_degrees();
    read_precision();
    read_stages();
    read_recompute();
    read_replicas();
    read_batch();
    place_on_all_ranks(plan_.world_size, llm_);
    plan_.modules.push_back(std::move(llm_));
  }

 private:
  void read_degrees() {
    llm_.tp = keys_.integer(key::kTp, 1, "tp", ImportedKeys::kDegrees);
    llm_.pp = keys_.integer(key::kPp, 1, "pp", ImportedKeys::kDegrees);
    llm_.cp = keys_.integer(key::kCp, 1, "cp", ImportedKeys::kDegrees);
    read_experts();
    if (is_ascend_ && keys_.flag("moe-tp-extend-ep", "experts_over_tp: whole experts, spread over tp ranks too")) {
      llm_.experts_over_tp = llm_.tp > 1;
      llm_.ep *= llm_.tp;
    }
    if (llm_.ep > 1) {
      const std::string dispatcher = keys_.choice(key::kDispatcher, {"allgather", "alltoall", "alltoall_seq", "flex"},
                                                  "rows go to experts by all-to-all here");
      if (dispatcher == "allgather")
        keys_.note(
            "the experts' rows are gathered from all ranks (moe-token-dispatcher-type allgather); they are priced as "
            "an all-to-all, which sends less");
    } else {
      keys_.ignore(key::kDispatcher, "there is no expert parallelism");
    }
    read_order();
    read_sequence_parallel();
    read_context();
    const int64_t replica = llm_.tp * llm_.pp * llm_.cp;
    if (plan_.world_size % replica != 0) {
      keys_.complain(key::kTp, fmt::format("{} x pp {} x cp {} is {}, which does not divide the {} devices of {} nodes",
                                           llm_.tp, llm_.pp, llm_.cp, replica, plan_.world_size, plan_.cluster.nodes));
    }
    llm_.dp = std::max<int64_t>(1, plan_.world_size / replica);
  }

  void read_experts() {
    const Module* llm = plan_.model.find(ModuleKind::kLlm);
    if (llm != nullptr && num_experts(*llm) <= 1) {
      for (const char* unused : {key::kEp, key::kExpertTp}) keys_.ignore(unused, "the model has no experts");
      return;
    }
    llm_.ep = keys_.integer(key::kEp, 1, "ep", ImportedKeys::kDegrees);
    const int64_t experts_tp =
        keys_.integer(key::kExpertTp, llm_.tp, "1 beside tp above 1: experts_over_tp", ImportedKeys::kDegrees);
    llm_.experts_over_tp = experts_tp == 1 && llm_.tp > 1 && llm_.ep > 1;
    if (experts_tp != llm_.tp && experts_tp != 1)
      keys_.not_understood(key::kExpertTp, "experts are cut like other layers (tp) or not at all (1) here");
  }

  void read_order() {
    llm_.axis_order = {"tp", "cp", "dp", "pp"};
    if (keys_.flag(key::kStagesInside, "axis_order [tp, cp, pp, dp]")) llm_.axis_order = {"tp", "cp", "pp", "dp"};
  }

  void read_sequence_parallel() {
    llm_.sequence_parallel = keys_.flag(key::kSequenceParallel, "sequence_parallel");
    if (llm_.sequence_parallel && llm_.tp == 1) {
      keys_.note("sequence-parallel is given with tp 1; the system switches it off without a word");
      llm_.sequence_parallel = false;
    }
    if (llm_.ep > 1 && llm_.tp > 1 && !llm_.sequence_parallel)
      keys_.complain(key::kEp, "is above 1 with tp above 1, but without sequence-parallel; the system refuses that");
    const bool overlaps = keys_.flag(key::kTpOverlap, "overlap.tp");
    const bool overlaps_ascend = is_ascend_ && keys_.flag(key::kTpOverlapAscend, "overlap.tp");
    const bool overlaps_coc = is_ascend_ && keys_.flag("use-ascend-coc", "overlap.tp");
    plan_.overlap_tp = (overlaps || overlaps_ascend || overlaps_coc) && llm_.sequence_parallel;
  }

  void read_context() {
    if (is_ascend_) return read_ascend_context();
    if (llm_.cp == 1) {
      keys_.ignore(key::kCpKind, "there is no context parallelism");
      keys_.ignore(key::kCpSizes, "there is no context parallelism");
      return;
    }
    const std::string kind = keys_.choice(key::kCpKind, {"p2p", "a2a", "a2a+p2p", "allgather"}, "cp_ulysses");
    if (kind == "a2a") llm_.cp_ulysses = llm_.cp;
    if (kind == "allgather")
      keys_.not_understood(key::kCpKind,
                           "keys and values are sent around a ring, or heads exchanged, here; not gathered");
    if (kind != "a2a+p2p") return;
    const Json* sizes = keys_.raw(key::kCpSizes, "cp_ulysses is the first");
    std::vector<int64_t> numbers;
    if (sizes != nullptr && sizes->is_array()) {
      for (const Json& size : *sizes) {
        const std::string text = size.is_string() ? size.get<std::string>() : size.dump();
        const bool is_number = !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == text.npos;
        numbers.push_back(is_number ? std::stoll(text) : 0);
      }
    }
    if (numbers.size() == 2 && numbers[0] >= 1 && numbers[0] * numbers[1] == llm_.cp) {
      llm_.cp_ulysses = numbers[0];
    } else {
      keys_.complain(key::kCpSizes, fmt::format("has to be two numbers whose product is cp {} with a2a+p2p", llm_.cp));
    }
  }

  void read_ascend_context() {
    const std::string algorithm = keys_.choice(
        key::kCpAlgorithm,
        {"ulysses_cp_algo", "megatron_cp_algo", "hybrid_cp_algo", "adaptive_cp_algo", "hybrid_adaptive_cp_algo"},
        "cp_ulysses: cp, 1, or ulysses-degree-in-cp");
    const auto ulysses = keys_.integer_if(key::kUlysses, "cp_ulysses with hybrid_cp_algo");
    if (llm_.cp == 1) return;
    if (algorithm == "ulysses_cp_algo") llm_.cp_ulysses = llm_.cp;
    if (algorithm == "hybrid_cp_algo") {
      if (!ulysses || llm_.cp % *ulysses != 0) {
        keys_.complain(key::kUlysses, fmt::format("has to be given with hybrid_cp_algo, and divide cp {}", llm_.cp));
      } else {
        llm_.cp_ulysses = *ulysses;
      }
    }
    if (algorithm.find("adaptive") != std::string::npos)
      keys_.not_understood(key::kCpAlgorithm, "masks are not divided adaptively here");
    for (const char* extra : {"use-cp-send-recv-overlap", "use-fused-ring-attention-update", "cp-attention-mask-type",
                              "attention-mask-type", "cp-window-size", "use-cp-double-ring"})
      keys_.ignore(extra, "is an order of the same messages");
  }

  void read_stages() {
    const int64_t layers = num_layers(plan_, ModuleKind::kLlm);
    const auto per_chunk = keys_.integer_if(key::kLayersPerChunk, "vpp: layers of a pipeline rank over this");
    auto chunks = keys_.integer_if("num-virtual-stages-per-pipeline-rank", "vpp");
    if (!chunks) chunks = keys_.integer_if("virtual-pipeline-model-parallel-size", "vpp");
    const auto layout = keys_.text_if(key::kLayout, "layers");
    const auto first = keys_.integer_if("decoder-first-pipeline-num-layers", "layers of the first stage");
    const auto last = keys_.integer_if("decoder-last-pipeline-num-layers", "layers of the last stage");
    const bool counts_embedding =
        keys_.flag("account-for-embedding-in-pipeline-split", "the embedding counts as a layer");
    const bool counts_loss = keys_.flag("account-for-loss-in-pipeline-split", "the loss counts as a layer");
    if (chunks && *chunks > 0) llm_.vpp = *chunks;
    if (per_chunk) {
      if (chunks) keys_.complain(key::kLayersPerChunk, "is given together with the number of virtual stages; give one");
      const int64_t per_rank = layers / llm_.pp;
      if (layers % llm_.pp != 0 || per_rank % *per_chunk != 0) {
        keys_.complain(key::kLayersPerChunk,
                       fmt::format("is {}, which does not divide the {} layers of each of {} pipeline "
                                   "ranks",
                                   *per_chunk, per_rank, llm_.pp));
      } else {
        llm_.vpp = per_rank / *per_chunk;
      }
    }
    const auto group = keys_.integer_if("microbatch-group-size-per-virtual-pipeline-stage",
                                        "microbatches that a chunk runs before the next one does: pp here");
    if (group && *group != llm_.pp && llm_.vpp > 1)
      keys_.not_understood("microbatch-group-size-per-virtual-pipeline-stage",
                           fmt::format("a chunk runs {} microbatches before the next one does here: pp", llm_.pp));
    if (llm_.vpp > 1 && llm_.pp == 1) {
      keys_.note("virtual stages are given with pp 1; the system has no pipeline to interleave then");
      llm_.vpp = 1;
    }
    llm_.vpp = std::clamp<int64_t>(llm_.vpp, 1, std::max<int64_t>(1, layers));
    if (import_.stages) {
      llm_.layers = *import_.stages;
      llm_.vpp = static_cast<int64_t>(llm_.layers.front().size());
    } else if (layout) {
      read_layout(*layout, layers);
    } else if (counts_embedding || counts_loss) {
      read_counted(layers, counts_embedding, counts_loss);
    } else if (first || last) {
      read_ends(layers, first, last);
    } else if (is_ascend_ && keys_.has("num-layer-list")) {
      read_layer_list(layers);
    } else {
      spread_layers(import_, key::kPp, llm_, layers);
    }
    plan_.schedule.name = name_of(usual_schedule(llm_.vpp));
  }

  void read_layout(const std::string& layout, int64_t layers) {
    const auto stages = parse_megatron_layout(layout);
    if (!stages) {
      keys_.complain(key::kLayout, stages.error().problem);
      return spread_layers(import_, key::kPp, llm_, layers);
    }
    int64_t sum = 0;
    for (const int64_t count : *stages) sum += count;
    if (stages->size() % static_cast<size_t>(llm_.pp) != 0 || sum != layers) {
      keys_.complain(key::kLayout, fmt::format("has {} stages with {} layers, but pp is {} and the model has {} layers",
                                               stages->size(), sum, llm_.pp, layers));
      return spread_layers(import_, key::kPp, llm_, layers);
    }
    llm_.layers = by_rank(*stages, llm_.pp);
    llm_.vpp = static_cast<int64_t>(llm_.layers.front().size());
  }

  void read_counted(int64_t layers, bool counts_embedding, bool counts_loss) {
    const int64_t all = layers + static_cast<int64_t>(counts_embedding) + static_cast<int64_t>(counts_loss);
    if (has_too_many_chunks(import_, key::kPp, llm_, all)) return;
    const int64_t stages = llm_.pp * llm_.vpp;
    if (all % stages != 0) {
      keys_.complain(key::kPp, fmt::format("{} with {} chunks does not divide {} layers, embedding and loss counted",
                                           llm_.pp, llm_.vpp, all));
    }
    std::vector<int64_t> counts(static_cast<size_t>(stages), all / stages);
    if (counts_embedding) --counts.front();
    if (counts_loss) --counts.back();
    llm_.layers = by_rank(counts, llm_.pp);
  }

  void read_ends(int64_t layers, std::optional<int64_t> first, std::optional<int64_t> last) {
    if (llm_.pp < 2) {
      keys_.note("layers of the first or last stage are given without a pipeline; they have no effect");
      return spread_layers(import_, key::kPp, llm_, layers);
    }
    if (has_too_many_chunks(import_, key::kPp, llm_, layers)) return;
    const int64_t ends = static_cast<int64_t>(first.has_value()) + static_cast<int64_t>(last.has_value());
    const int64_t middle = layers - first.value_or(0) - last.value_or(0);
    const int64_t others = llm_.pp - ends;
    if (middle < 0 || (others == 0 ? middle != 0 : middle % (others * llm_.vpp) != 0) ||
        first.value_or(0) % llm_.vpp != 0 || last.value_or(0) % llm_.vpp != 0) {
      keys_.complain(first ? "decoder-first-pipeline-num-layers" : "decoder-last-pipeline-num-layers",
                     fmt::format("leaves {} layers, which do not divide among {} pipeline ranks with {} chunks", middle,
                                 others, llm_.vpp));
    }
    llm_.layers.clear();
    for (int64_t rank = 0; rank < llm_.pp; ++rank) {
      const bool is_first = rank == 0 && first, is_last = rank == llm_.pp - 1 && last;
      const int64_t count = is_first     ? *first
                            : is_last    ? *last
                            : others > 0 ? std::max<int64_t>(0, middle) / others
                                         : 0;
      llm_.layers.emplace_back(static_cast<size_t>(llm_.vpp), count / llm_.vpp);
    }
  }

  /// MindSpeed's list of layers.
  void read_layer_list(int64_t layers) {
    const auto list = keys_.text_if("num-layer-list", "layers of every pipeline rank");
    if (!list) return spread_layers(import_, key::kPp, llm_, layers);
    std::vector<int64_t> counts;
    int64_t sum = 0, number = 0;
    bool is_good = true, has_digit = false;
    for (const char c : *list + ",") {
      if (c == ',') {
        is_good &= has_digit;
        counts.push_back(number);
        sum += number;
        number = 0;
        has_digit = false;
      } else if (c >= '0' && c <= '9' && number < 100'000) {
        number = 10 * number + (c - '0');
        has_digit = true;
      } else {
        is_good = false;
      }
    }
    if (!is_good) {
      keys_.complain("num-layer-list",
                     fmt::format("is {}, numbers with a comma between two of them are needed", in_quotes(*list)));
      return spread_layers(import_, key::kPp, llm_, layers);
    }
    if (static_cast<int64_t>(counts.size()) != llm_.pp || sum != layers || llm_.vpp > 1) {
      keys_.complain("num-layer-list", fmt::format("has {} entries with {} layers, but pp is {} and the model has {}",
                                                   counts.size(), sum, llm_.pp, layers));
      return spread_layers(import_, key::kPp, llm_, layers);
    }
    llm_.layers = by_rank(counts, llm_.pp);
  }

  void read_recompute() {
    std::string granularity = keys_.text(key::kRecompute, "none", "recompute");
    if (keys_.flag("recompute-activations", "recompute attention")) granularity = "selective";
    if (keys_.flag("checkpoint-activations", "recompute full")) granularity = "full";
    const auto method = keys_.text_if(key::kRecomputeMethod, "block: the first blocks of a chunk; uniform: all");
    const auto layers = keys_.integer_if(key::kRecomputeLayers, "how many blocks", ImportedKeys::kWithZero);
    const Json* modules = keys_.raw(key::kRecomputeModules, "what is recomputed of every block");
    constexpr int64_t kAll = 1 << 20;
    if (granularity == "full") {
      if (method == "uniform" || method == "block") {
        recompute_first(llm_, method == "block" ? layers.value_or(kAll) : kAll, BlockRecompute::kFull);
        if (method == "uniform" && layers.value_or(1) > 1) {
          keys_.note(
              fmt::format("recompute-method uniform keeps one input for {} layers each; here every block keeps its "
                          "input, which takes a little more memory",
                          *layers));
        }
      } else {
        keys_.complain(key::kRecomputeMethod, "has to be block or uniform with full recomputation");
      }
    } else if (granularity == "selective") {
      const bool is_attention = modules == nullptr || *modules == "core_attn" || *modules == Json::array({"core_attn"});
      if (is_attention) {
        recompute_first(llm_, kAll, BlockRecompute::kAttention);
      } else {
        keys_.not_understood(key::kRecomputeModules, "of a block, attention or all of it is recomputed here");
        recompute_first(llm_, kAll, BlockRecompute::kAttention);
      }
    } else if (granularity != "none") {
      keys_.complain(key::kRecompute, "has to be full or selective");
    } else if (method || (layers && *layers > 0)) {
      keys_.note(
          "recompute-method or recompute-num-layers is given without recompute-granularity; nothing is recomputed");
    }
    keys_.ignore("distribute-saved-activations", "keeps a block's input divided over tp");
  }

  void read_precision() {
    const bool is_bf16 =
        keys_.flag(key::kBf16, "precision.compute bf16", import_.request.system == Target::kMindspeedRl);
    const bool is_fp16 = keys_.flag(key::kFp16, "precision.compute fp16");
    if (is_bf16 && is_fp16) keys_.complain(key::kFp16, "is given together with bf16; the system refuses that");
    PrecisionPlan& precision = plan_.precision;
    precision.compute = is_bf16 ? Precision::kBf16 : is_fp16 ? Precision::kFp16 : Precision::kFp32;
    const bool in_fp32 = keys_.flag(key::kReduceFp32, "precision.reduce fp32");
    const bool in_bf16 = keys_.flag(key::kReduceBf16, "precision.reduce bf16");
    // With bf16 sums are in fp32 unless that is switched off; with fp16 they are not unless it is switched on.
    precision.reduce = Precision::kFp32;
    if (is_bf16 && in_bf16) precision.reduce = Precision::kBf16;
    if (is_fp16 && !in_fp32) precision.reduce = Precision::kFp16;
    if (in_fp32 && in_bf16) keys_.note("gradients are reduced in bf16 and in fp32; the system takes bf16");
    keys_.ignore("reuse-fp32-param",
                 "keeps master weights and weights in the same memory: less of it than is predicted");
    keys_.ignore("use-precision-aware-optimizer", "lets types of the optimizer's states be chosen, which are read");
    for (const char* sharing :
         {"main-grads-dtype", "main-params-dtype", "exp-avg-dtype", "exp-avg-sq-dtype",
          "megatron-fsdp-main-grads-dtype", "megatron-fsdp-main-params-dtype", "megatron-fsdp-grad-comm-dtype"}) {
      const auto type = keys_.text_if(sharing, "fp32, as here");
      if (type && *type != "fp32") keys_.not_understood(sharing, "the optimizer's states are fp32 here");
    }
  }

  void read_replicas() {
    const bool is_distributed = keys_.flag(key::kDistributedOptimizer, "zero 1");
    const bool overlaps = keys_.flag(key::kOverlapReduce, "overlap.dp");
    keys_.flag(key::kOverlapGather, "overlap.dp");
    keys_.ignore("no-overlap-grad-reduce", "is the default");
    const auto bucket = keys_.integer_if(key::kBucket, "buckets_mb, in gradients");
    bool is_sharded = false;
    for (const char* name : {key::kFsdp, "use-custom-fsdp"})
      is_sharded |= keys_.flag(name, "zero by the sharding strategy");
    const bool is_torch = keys_.flag("use-torch-fsdp2", "zero 3");
    llm_.zero = is_distributed ? 1 : 0;
    int64_t unit = 0;
    const bool shards_by_default = import_.request.version.empty() || import_.request.version == "core_v0.19.0";
    if (is_sharded) {
      const std::string usual = shards_by_default ? "optim_grads_params" : "no_shard";
      const std::string strategy = keys_.text(key::kSharding, usual, "zero 0, 1, 2 or 3");
      const std::vector<std::string> stages = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
      const auto stage = std::find(stages.begin(), stages.end(), strategy);
      if (stage == stages.end()) {
        keys_.complain(key::kSharding, "has to be no_shard, optim, optim_grads or optim_grads_params");
      } else {
        llm_.zero = stage - stages.begin();
      }
      unit = keys_.integer_if(key::kFsdpBucket, "buckets_mb, in gradients").value_or(0);
      keys_.ignore(key::kCheckpointFormat, "says how that system's checkpoints are written and read");
    }
    if (is_torch) llm_.zero = 3;
    if (const auto parts =
            keys_.integer_if("num-distributed-optimizer-instances", "1: states divided over all replicas");
        parts && *parts > 1)
      keys_.not_understood("num-distributed-optimizer-instances", "states are divided over all replicas here");
    if (const auto outer = keys_.text_if("outer-dp-sharding-strategy", "no_shard"); outer && *outer != "no_shard")
      keys_.not_understood("outer-dp-sharding-strategy", "all replicas are divided in one way here");
    keys_.ignore("ddp-num-buckets", "how many buckets gradients lie in; buckets_mb says their size here");
    if (num_weight_copies(llm_) == 1) {
      if (llm_.zero > 0)
        keys_.note(fmt::format("ZeRO {} is given, but there is one replica: nothing is divided", llm_.zero));
      llm_.zero = 0;
    }
    const bool has_replicas = num_weight_copies(llm_) > 1;
    plan_.overlap_dp = overlaps || !has_replicas || llm_.zero >= 2;
    const int64_t usual = std::max<int64_t>(40'000'000, 1'000'000 * num_weight_copies(llm_));
    if (bucket && *bucket > 0) {
      plan_.buckets_mb = bucket_mb(*bucket, plan_.precision.reduce);
    } else if (unit > 0) {
      plan_.buckets_mb = bucket_mb(unit, plan_.precision.reduce);
    } else if (overlaps && has_replicas) {
      keys_.assume(key::kBucket, std::to_string(usual), "buckets_mb, in gradients");
      plan_.buckets_mb = bucket_mb(usual, plan_.precision.reduce);
    }
  }

  void read_batch() {
    plan_.schedule.mbs = keys_.factor(key::kMbs, 1, "mbs");
    if (!keys_.has(key::kMbs)) keys_.complain(key::kMbs, "is missing; the system refuses to start without it");
    const int64_t least = plan_.schedule.mbs * llm_.dp;
    batch_ = keys_.integer(key::kBatch, least, "global_batch_samples");
    if (batch_ % least != 0) {
      keys_.complain(key::kBatch,
                     fmt::format("is {}, which mbs {} x dp {} does not divide", batch_, plan_.schedule.mbs, llm_.dp));
    }
    plan_.schedule.microbatches = std::max<int64_t>(1, batch_ / least);
    for (const char* growing : {"rampup-batch-size", "step-batch-size-schedule"})
      if (keys_.has(growing)) keys_.not_understood(growing, "the batch stays the same here; the last one is taken");
    plan_.workload.global_batch_samples = batch_;
  }

  Import& import_;
  ImportedKeys& keys_;
  Plan& plan_;
  bool is_ascend_;
  ModulePlan llm_;
  int64_t batch_ = 1;
};

}  // namespace

void read_megatron_plan(Import& import) {
  MegatronPlan(import).read();
}

void compare_converted_degrees(Import& import) {
  const ModulePlan* llm = import.plan.modules.empty() ? nullptr : &import.plan.modules.back();
  const auto compare = [&](const char* name, const char* degree, int64_t ModulePlan::*member) {
    const auto cut = import.keys.integer_if(fmt::format("convert.{}", name), "degrees that the weights are cut for");
    if (!cut || llm == nullptr || import.searches || *cut == llm->*member) return;
    import.keys.complain(
        fmt::format("convert.{}", name),
        fmt::format("cuts the weights for {} {}, but the training has {}", degree, *cut, llm->*member));
  };
  compare("tp_size", "tp", &ModulePlan::tp);
  compare("tensor-parallel-size", "tp", &ModulePlan::tp);
  compare("pipeline-parallel-size", "pp", &ModulePlan::pp);
  for (const std::string& key : import.keys.left()) {
    if (key.starts_with("convert.")) import.keys.ignore(key, "is how weights are converted");
  }
}

void sort_megatron_leftovers(Import& import) {
  compare_converted_degrees(import);
  for (const std::string& name : import.keys.left()) {
    if (const auto why = harmless_megatron_key(name)) {
      import.keys.ignore(name, std::string(*why));
    } else {
      import.keys.not_understood(name, "Weft does not know this argument");
    }
  }
}

std::optional<Error> import_megatron(Import& import) {
  if (auto others = read_arguments(import.request, import.keys); !others) return others.error();
  read_megatron_shape(import);
  if (auto error = choose_model(import)) return error;
  if (import.plan.model.modules.size() > 1) {
    return Error{.source = "--model",
                 .problem = "has encoders, but arguments of Megatron-LM describe one chain of decoder layers",
                 .advice = "Give a model of text, or import from mindspeed-mm."};
  }
  read_world(import);
  read_megatron_plan(import);
  const auto tokens = import.keys.integer_if("seq-length", "tokens of a sample");
  set_workload(import, import.plan.workload.global_batch_samples, tokens, {});
  read_megatron_training(import);
  if (import.keys.has("grpo-group-size") || import.keys.has("perform-rl-step")) {
    import.config = nullptr;
    import.no_config = "their loss is one of reinforcement learning; a step of the actor's training is planned";
  }
  sort_megatron_leftovers(import);
  return std::nullopt;
}

}  // namespace weft
