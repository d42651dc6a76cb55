#include <cctype>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/exchange/settings_edit.h"
#include "weft/meaning/check.h"
#include "weft/meaning/trainable.h"
#include "weft/spec/model_reader.h"

using namespace weft;

namespace {

const Model& small_model() {
  static const Model model =
      *read_model(*parse_document(R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 32,
        "intermediate_size": 48, "num_hidden_layers": 8, "num_attention_heads": 4})",
                                  "m", Syntax::kJson),
                  "m");
  return model;
}

const Model& model_with_experts() {
  static const Model model =
      *read_model(*parse_document(R"({"model_type": "qwen3_moe", "vocab_size": 100, "hidden_size": 32, "head_dim": 8,
        "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 8, "num_attention_heads": 4,
        "num_key_value_heads": 4, "num_experts": 8, "num_experts_per_tok": 2})",
                                  "m", Syntax::kJson),
                  "m");
  return model;
}

const Cluster& small_cluster() {
  static const Cluster cluster = *read_cluster(*parse_document(R"({"nodes": 1, "devices_per_node": 8,
        "device": {"name": "d", "memory_gib": 80, "memory_bandwidth_gb_per_s": 2000, "matrix_tflops": {"bf16": 300}},
        "links": {"within_node": {"bandwidth_gb_per_s": 300, "latency_us": 3},
                  "between_nodes": {"bandwidth_gb_per_s": 25, "latency_us": 5, "cards_per_node": 8}}})",
                                                               "c", Syntax::kJson),
                                               "c");
  return cluster;
}

Target system_of(char letter) {
  return letter == 'f'   ? Target::kMindformers
         : letter == 'r' ? Target::kMindspeedRl
         : letter == 'v' ? Target::kMindspeedMm
                         : Target::kMegatron;
}

}  // namespace

/// The first letter says what the rest is: a script (s), YAML of Megatron-LM (y), MindFormers (f) or MindSpeed-RL (r),
/// a model.json or search result of MindSpeed-MM (v). A capital letter gives no model, so that the text has to describe
/// it, and a digit 1 behind the letter one with experts. It is refused in a line, or a plan that can be priced.
int weft::fuzz_import(const uint8_t* data, size_t size) {
  if (size < 2 || size > (1 << 14)) return 0;
  const auto letter = static_cast<unsigned char>(data[0]);
  const bool has_model = std::isupper(letter) == 0, has_experts = has_model && data[1] == '1';
  const size_t front = has_experts ? 2 : 1;
  const std::string text(as_text(data + front, size - front));
  const char kind = static_cast<char>(std::tolower(letter));
  ImportRequest request{.system = system_of(kind), .files = {}, .arguments = ""};
  if (has_model) request.model = has_experts ? model_with_experts() : small_model();
  request.files = {{kind == 's' ? "run.sh" : kind == 'v' ? "model.json" : "run.yaml", text}};
  request.cluster = small_cluster();
  if (kind == 'v') request.arguments = "--micro-batch-size 1";
  if (kind == 's') {
    const Result<std::vector<ShellCommand>> commands = read_script(request.files);
    if (!commands) claim_good_message(commands);
  }
  const Result<ImportedRun> run = import_settings(request);
  if (!run) {
    claim_good_message(run);
    return 0;
  }
  if (run->searches) return 0;
  claim(check_plan(run->plan, PlanUse::kPrice).empty());
  // The file, changed to say another plan, says it.
  Plan wanted = run->plan;
  ModulePlan& llm = wanted.modules.back();
  llm.sequence_parallel = !llm.sequence_parallel && llm.tp > 1;
  llm.zero = llm.zero == 0 && llm.dp > 1 ? 1 : 0;
  wanted.predicted = {.step_time_ms = 1, .peak_memory_gib = {1}, .throughput_samples_per_s = 1};
  if (!check_plan(wanted, PlanUse::kPrice).empty() || !trains(wanted, ModuleKind::kLlm)) return 0;
  const Result<SettingsEdit> edit = edit_settings(request, *run, wanted);
  if (!edit || edit->files.empty()) return 0;
  request.files.front() = edit->files.front();
  const Result<ImportedRun> again = import_settings(request);
  claim(again.ok() && again->plan.llm().zero == llm.zero);
  return 0;
}
