#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/json.h"
#include "weft/base/units.h"
#include "weft/cli/count_option.h"
#include "weft/cli/runtime_loader.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"

namespace weft {
namespace {

struct PredictVerbOptions {
  std::string model;
  std::string run;
  std::string prompt_file;
  std::optional<std::string> max_new_tokens;
  std::string dtype;
  std::string device = "cpu";
  bool ignores_end = false;
  std::optional<std::string> threads;
  bool json = false;
};

/// Tokens after the first of each prompt, in a second; nothing where there were none.
std::optional<double> tokens_per_s(const PredictReport& report) {
  if (report.num_decoded == 0 || report.decode_ms <= 0) return std::nullopt;
  return static_cast<double>(report.num_decoded) / report.decode_ms * 1000;
}

Json to_json(const PredictReport& report) {
  Json prompts = Json::array();
  for (const PredictedPrompt& prompt : report.prompts) {
    prompts.push_back({{"input_tokens", prompt.input_tokens},
                       {"tokens", prompt.tokens},
                       {"stopped_by", prompt.reached_end ? "end" : "length"}});
  }
  Json json = {{"prompts", prompts}, {"dtype", report.dtype}, {"prefill_ms", report.prefill_ms}};
  const std::optional<double> rate = tokens_per_s(report);
  json["tokens_per_s"] = rate ? Json(*rate) : Json();
  return json;
}

std::string to_text(const PredictReport& report) {
  std::string text;
  for (size_t i = 0; i < report.prompts.size(); ++i) {
    const PredictedPrompt& prompt = report.prompts[i];
    text += fmt::format("prompt {}: {} tokens, then {} new ones{}\n{}\n", i, prompt.input_tokens, prompt.tokens.size(),
                        prompt.reached_end ? ", the last of which ends it" : "", fmt::join(prompt.tokens, " "));
  }
  text += fmt::format("{}, prefill {:.1f} ms", report.dtype, report.prefill_ms);
  if (const std::optional<double> rate = tokens_per_s(report)) text += fmt::format(", then {:.1f} tokens/s", *rate);
  return text + "\n";
}

Result<std::string> run_predict(const PredictVerbOptions& options) {
  if (options.model.empty() == options.run.empty()) {
    return Error{.source = options.model.empty() ? "--model" : "--run",
                 .problem = options.model.empty() ? "is missing, and so is --run" : "and --model are both given",
                 .advice = "Give a Hugging Face folder as --model, or the folder of a training run as --run."};
  }
  PredictRequest request{.model = options.model,
                         .run_folder = options.run,
                         .prompt_file = options.prompt_file,
                         .dtype = options.dtype,
                         .device = options.device,
                         .ignores_end = options.ignores_end};
  if (options.max_new_tokens) {
    WEFT_TRY(request.max_new_tokens, parse_count("--max-new-tokens", *options.max_new_tokens, {1, kMostNewTokens}));
  }
  if (options.threads) {
    WEFT_TRY(const int64_t threads, parse_count("--threads", *options.threads, {1, 1024}));
    request.num_threads = static_cast<int>(threads);
  }
  const bool is_terminal = has_terminal();
  if (is_terminal) {
    request.load_progress = [](int64_t done, int64_t all) {
      show_progress(fmt::format("loading weights: {} of {}", format_bytes(static_cast<double>(done)),
                                format_bytes(static_cast<double>(all))));
    };
  }
  show_progress("loading the runtime");
  WEFT_TRY(const RuntimeApi* runtime, load_runtime());
  const Result<PredictReport> report = runtime->predict(request);
  if (is_terminal) show_progress("");
  if (!report) return report.error();
  return options.json ? to_json(*report).dump(2) + "\n" : to_text(*report);
}

}  // namespace

void add_predict(Verbs& verbs) {
  auto options = std::make_shared<PredictVerbOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "predict", .summary = "Continue prompts with a model, the likeliest token each time"});
  verb.option("--model", options->model, "Folder of a Hugging Face model: config.json and weights").named("DIR");
  verb.option("--run", options->run, "Instead of it, the folder of a training run: its newest checkpoint").named("DIR");
  verb.option("--prompt-file", options->prompt_file, "JSON with token ids, or a processor's tensors as .safetensors")
      .required()
      .named("FILE");
  verb.option("--max-new-tokens", options->max_new_tokens,
              fmt::format("Tokens to generate (default: the prompt file's, else {})", kDefaultNewTokens))
      .named("N");
  verb.option("--dtype", options->dtype, "fp32, fp64 or bf16 (default: as the model was saved)").named("TYPE");
  verb.option("--device", options->device, "cpu (default) or cuda").named("DEVICE");
  verb.option("--ignore-end", options->ignores_end, "Go on after a token that ends the text");
  verb.option("--threads", options->threads, "CPU threads (default: one for each core)").named("N");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Examples:\n"
      "  weft predict --model path/to/model --prompt-file docs/manual/prompt.json\n"
      "  weft predict --run run --prompt-file docs/manual/prompt.json --max-new-tokens 8 --json";
  verb.run = [options] { return run_predict(*options); };
}

}  // namespace weft
