#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weft/base/json.h"
#include "weft/base/units.h"
#include "weft/cli/count_option.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/one_process.h"
#include "weft/cli/runtime_loader.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"

namespace weft {
namespace {

struct PredictVerbOptions {
  std::string model;
  std::string run;
  std::string adapter;
  std::string plan;
  std::string prompt_file;
  std::optional<std::string> prompt;
  std::vector<std::string> images, videos, audios;
  double temperature = 0, top_p = 1, repetition_penalty = 1;
  std::optional<std::string> seed;
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
    if (!prompt.text.empty()) prompts.back()["text"] = prompt.text;
  }
  Json json = {{"prompts", prompts}, {"dtype", report.dtype}, {"prefill_ms", report.prefill_ms}};
  const std::optional<double> rate = tokens_per_s(report);
  json["tokens_per_s"] = rate ? Json(*rate) : Json();
  for (const PredictedPrompt& prompt : report.prompts) {
    if (prompt.prefill_ms)
      json["prompt_ms"].push_back({{"prefill", *prompt.prefill_ms}, {"decode", *prompt.decode_ms}});
  }
  return json;
}

std::string rate_text(const PredictReport& report) {
  std::string text = fmt::format("{}, prefill {:.1f} ms", report.dtype, report.prefill_ms);
  if (const std::optional<double> rate = tokens_per_s(report)) text += fmt::format(", then {:.1f} tokens/s", *rate);
  return text;
}

std::string to_text(const PredictReport& report) {
  std::string text;
  for (size_t i = 0; i < report.prompts.size(); ++i) {
    const PredictedPrompt& prompt = report.prompts[i];
    text += fmt::format("prompt {}: {} tokens, then {} new ones{}\n{}\n", i, prompt.input_tokens, prompt.tokens.size(),
                        prompt.reached_end ? ", the last of which ends it" : "", fmt::join(prompt.tokens, " "));
  }
  return text + rate_text(report) + "\n";
}

/// What is wrong with how the prompt is given.
std::optional<Error> find_bad_prompt(const PredictVerbOptions& options) {
  const bool has_file = !options.prompt_file.empty();
  if (has_file == options.prompt.has_value()) {
    return Error{.source = has_file ? "--prompt" : "--prompt-file",
                 .problem = has_file ? "and --prompt-file are both given" : "is missing, and so is --prompt",
                 .advice = "Give words as --prompt, or tokens as --prompt-file."};
  }
  if (has_file && !(options.images.empty() && options.videos.empty() && options.audios.empty())) {
    return Error{.source = !options.images.empty()   ? "--image"
                           : !options.videos.empty() ? "--video"
                                                     : "--audio",
                 .problem = "goes with --prompt; a prompt file has media of its own",
                 .advice = "Give words as --prompt."};
  }
  if (options.prompt && options.prompt->empty())
    return Error{.source = "--prompt", .problem = "is empty", .advice = "Give some words."};
  return std::nullopt;
}

Result<PredictRequest> request_of(const PredictVerbOptions& options) {
  if (options.model.empty() == options.run.empty()) {
    return Error{.source = options.model.empty() ? "--model" : "--run",
                 .problem = options.model.empty() ? "is missing, and so is --run" : "and --model are both given",
                 .advice = "Give a Hugging Face folder as --model, or the folder of a training run as --run."};
  }
  if (auto error = find_bad_prompt(options)) return *std::move(error);
  PredictRequest request{.model = options.model,
                         .run_folder = options.run,
                         .adapter = options.adapter,
                         .prompt_file = options.prompt_file,
                         .prompt = options.prompt.value_or(""),
                         .images = {options.images.begin(), options.images.end()},
                         .audios = {options.audios.begin(), options.audios.end()},
                         .videos = {options.videos.begin(), options.videos.end()},
                         .sampling = {.temperature = options.temperature,
                                      .top_p = options.top_p,
                                      .repetition_penalty = options.repetition_penalty},
                         .dtype = options.dtype,
                         .device = options.device,
                         .ignores_end = options.ignores_end};
  if (!options.plan.empty()) {
    WEFT_TRY(request.plan, read_legal_plan(options.plan));
  }
  if (options.max_new_tokens) {
    WEFT_TRY(request.max_new_tokens, parse_count("--max-new-tokens", *options.max_new_tokens, {1, kMostNewTokens}));
  }
  if (options.seed) {
    WEFT_TRY(const int64_t seed, parse_count("--seed", *options.seed, {0, INT64_MAX}));
    request.sampling.seed = static_cast<uint64_t>(seed);
  }
  if (options.threads) {
    WEFT_TRY(const int64_t threads, parse_count("--threads", *options.threads, {1, 1024}));
    request.num_threads = static_cast<int>(threads);
  }
  return request;
}

Result<std::string> run_predict(const PredictVerbOptions& options) {
  Result<PredictRequest> asked = request_of(options);
  if (!asked) return told_once(std::move(asked).error());
  PredictRequest& request = *asked;
  const bool is_terminal = has_terminal();
  if (is_terminal) {
    request.load_progress = [](int64_t done, int64_t all) {
      show_progress(fmt::format("loading weights: {} of {}", format_bytes(static_cast<double>(done)),
                                format_bytes(static_cast<double>(all))));
    };
  }
  show_progress("loading the runtime");
  WEFT_TRY(const RuntimeApi* runtime, load_runtime());
  bool has_begun = false;
  if (options.prompt && !options.json && is_first_process()) {
    request.on_text = [&](const std::string& text) {
      if (!std::exchange(has_begun, true)) show_progress("");
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
  }
  const Result<PredictReport> report = runtime->predict(request);
  if (is_terminal) show_progress("");
  if (!report) return report.error();
  if (!is_first_process()) return std::string();
  if (request.on_text) {
    say(rate_text(*report));
    return std::string("\n");
  }
  return options.json ? json_output(to_json(*report)) : to_text(*report);
}

}  // namespace

void add_predict(Verbs& verbs) {
  auto options = std::make_shared<PredictVerbOptions>();
  Verb& verb =
      verbs.emplace_back(Verb{.name = "predict", .summary = "Answer a question, or continue prompts, with a model"});
  verb.option("--model", options->model, "Folder of a Hugging Face model: config.json and weights").named("DIR");
  verb.option("--run", options->run, "Instead of it, the folder of a training run: its newest checkpoint").named("DIR");
  verb.option("--adapter", options->adapter, "Adapters for the model, as PEFT or weft convert --adapter saves them")
      .named("DIR");
  verb.option("--plan", options->plan,
              "On the ranks of this plan, threads or, by mpirun, processes; their number of prompts at once")
      .named("FILE");
  verb.option(
          "--prompt", options->prompt,
          "A question, asked by the model's chat template; <image>, <video> and <audio> in it say where files stand")
      .named("TEXT");
  verb.option("--image", options->images, "Pictures that go with it").named("FILE ...");
  verb.option("--video", options->videos, "Videos that go with it, each a folder of frames, named in their order")
      .named("DIR ...");
  verb.option("--audio", options->audios, "Clips that go with it").named("FILE ...");
  verb.option("--prompt-file", options->prompt_file,
              "Instead of it, JSON with token ids, or a processor's tensors as .safetensors")
      .named("FILE");
  verb.option("--temperature", options->temperature, "Draw tokens at this temperature (default 0: the likeliest)")
      .within(0, 100)
      .named("T");
  verb.option("--top-p", options->top_p, "Draw from the fewest tokens that have this share (default 1)")
      .within(0, 1)
      .named("P");
  verb.option("--repetition-penalty", options->repetition_penalty,
              "Make tokens that were there before less likely (default 1: not)")
      .within(0.01, 100)
      .named("X");
  verb.option("--seed", options->seed, "Of what is drawn (default 0)").named("N");
  verb.option("--max-new-tokens", options->max_new_tokens,
              fmt::format("Tokens to generate (default: the prompt file's, else {})", kDefaultNewTokens))
      .named("N");
  verb.option("--dtype", options->dtype, "fp32, fp64 or bf16 (default: as the model was saved)").named("TYPE");
  verb.option("--device", options->device, "cpu (default) or cuda").named("DEVICE");
  verb.option("--ignore-end", options->ignores_end, "Go on after a token that ends the text");
  verb.option("--threads", options->threads, "CPU threads of a rank (default: one for each core)").named("N");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Examples:\n"
      "  weft predict --model path/to/model --prompt \"What is this?\" --image cat.jpg\n"
      "  weft predict --run run --prompt \"Tell me a story.\" --temperature 0.8 --top-p 0.95 --seed 7\n"
      "  weft predict --model path/to/model --prompt-file docs/manual/prompt.json\n"
      "  mpirun -n 4 weft predict --model path/to/model --plan plan.json --prompt \"What is this?\" --image cat.jpg\n"
      "  weft predict --run run --prompt-file docs/manual/prompt.json --max-new-tokens 8 --json";
  verb.run = [options] { return run_predict(*options); };
}

}  // namespace weft
