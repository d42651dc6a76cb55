#include "weft/engine/predict.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/units.h"
#include "weft/comm/launch.h"
#include "weft/engine/core_share.h"
#include "weft/engine/end_ids.h"
#include "weft/engine/memory_check.h"
#include "weft/engine/on_ranks.h"
#include "weft/engine/plan_predictor.h"
#include "weft/engine/prediction_plan.h"
#include "weft/engine/predictor.h"
#include "weft/engine/prompt_file.h"
#include "weft/engine/run_model.h"
#include "weft/engine/same_model.h"
#include "weft/engine/tensor_options.h"
#include "weft/engine/words_prompt.h"
#include "weft/models/module_network.h"
#include "weft/models/samples.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

Result<Model> read_model_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    const bool is_there = std::filesystem::exists(folder, ignored);
    return Error{.source = folder.string(),
                 .problem = is_there ? "is not a folder" : "does not exist",
                 .advice = "Give the folder of a Hugging Face model, with its config.json and its weights."};
  }
  return read_model_file(folder);
}

/// How many tokens may follow a prompt of this length.
Result<int64_t> new_tokens_for(int64_t length, const PromptEntry& entry, const PredictRequest& request,
                               int64_t max_positions) {
  const std::optional<int64_t> wanted = request.max_new_tokens ? request.max_new_tokens : entry.max_new_tokens;
  const int64_t room = max_positions - length;
  if (room < 1) {
    return Error{.field = "input_ids",
                 .problem = fmt::format("has {} tokens, which leaves no room for a new one: the model's "
                                        "max_position_embeddings is {}",
                                        length, max_positions),
                 .advice = "Shorten the prompt."};
  }
  if (!wanted) return std::min(kDefaultNewTokens, room);
  if (*wanted > room) {
    return Error{.field = "max_new_tokens",
                 .problem = fmt::format("is {}, but after a prompt of {} tokens the model's max_position_embeddings {} "
                                        "leaves room for {}",
                                        *wanted, length, max_positions, room),
                 .advice = "Ask for fewer tokens, or shorten the prompt."};
  }
  return *wanted;
}

/// The prompts of an entry, each checked against the model.
Result<std::vector<PlannedPrompt>> prompts_of(const PromptEntry& entry, const PredictRequest& request,
                                              const ModelNumbers& numbers, int64_t vocabulary) {
  for (const int64_t length : entry.raw.lengths) {
    if (length < 1) continue;  // prepare_inputs says what is wrong
    WEFT_TRY([[maybe_unused]] const int64_t count, new_tokens_for(length, entry, request, numbers.llm.max_positions));
  }
  WEFT_TRY([[maybe_unused]] const Inputs all, prepare_inputs(numbers, vocabulary, entry.raw));
  std::vector<PlannedPrompt> prompts;
  for (const RawInputs& sample : split_samples(numbers, entry.raw)) {
    PlannedPrompt prompt{.raw = sample};
    WEFT_TRY(prompt.inputs, prepare_inputs(numbers, vocabulary, sample));
    WEFT_TRY(prompt.max_new_tokens, new_tokens_for(sample.lengths[0], entry, request, numbers.llm.max_positions));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::optional<Error> check_model_memory(const Model& model, const PredictRequest& request, at::ScalarType type,
                                        at::Device device) {
  const double needed = static_cast<double>(num_parameters(model)) * static_cast<double>(c10::elementSize(type));
  const std::string larger =
      device.is_cpu() ? "a machine with more memory." : "a GPU with more memory, or --device cpu.";
  auto error =
      check_memory({.bytes = needed,
                    .what = fmt::format("the model's weights take {} in {}", format_bytes(needed), name_of_type(type)),
                    .advice = type == at::kBFloat16 ? "Use " + larger : "Use --dtype bf16, or " + larger},
                   device);
  if (error) error->source = request.model.string();
  return error;
}

/// A number of threads that no machine of so few cores can mean.
std::optional<Error> check_num_threads(int num_threads) {
  const int64_t cores = usable_cores(), most = kMostThreadsPerCore * cores;
  if (num_threads <= most) return std::nullopt;
  return Error{.source = "--threads",
               .problem = fmt::format("is '{}', a whole number from 1 to {} is needed on {}", num_threads, most,
                                      counted(cores, "core")),
               .advice = "Leave it out for one a core."};
}

Precision precision_of(at::ScalarType type) {
  return type == at::kDouble ? Precision::kFp64 : type == at::kBFloat16 ? Precision::kBf16 : Precision::kFp32;
}

/// The text of a prompt that was words, put together and handed on as tokens come.
class AnswerText {
 public:
  AnswerText(const std::optional<Tokenizer>& tokenizer, const std::function<void(const std::string&)>& on_text)
      : on_text_(on_text) {
    if (tokenizer) decoder_.emplace(*tokenizer, /*skip_special=*/true);
  }

  void add(int64_t token) {
    if (decoder_) add_text(decoder_->add(token));
  }
  std::string finish() {
    if (decoder_) add_text(decoder_->finish());
    return std::move(text_);
  }

 private:
  void add_text(const std::string& part) {
    text_ += part;
    if (on_text_ && !part.empty()) on_text_(part);
  }

  const std::function<void(const std::string&)>& on_text_;
  std::optional<StreamDecoder> decoder_;
  std::string text_;
};

void add_prompt(PredictReport& report, const PlannedPrompt& prompt, Generation generation, std::string text) {
  report.num_decoded += std::ssize(generation.tokens) - 1;
  report.prompts.push_back({.input_tokens = prompt.inputs.ids.size(0),
                            .tokens = std::move(generation.tokens),
                            .text = std::move(text),
                            .reached_end = generation.reached_end});
}

/// All prompts on a plan's ranks.
Result<PredictReport> predict_by_plan(const PredictRequest& request, const Model& model, at::ScalarType type,
                                      const std::vector<PlannedPrompt>& prompts, const GenerationLimits& limits,
                                      const std::optional<Tokenizer>& tokenizer, bool& has_ranks) {
  if (auto error = check_same_model(request.model, request.plan->model)) return *std::move(error);
  Plan own = *request.plan;
  own.model = model;
  WEFT_TRY(const Plan plan, prediction_plan(own, precision_of(type)));
  AnswerText text(tokenizer, request.on_text);
  has_ranks = true;
  WEFT_TRY(auto generated, generate_on_ranks({.plan = plan,
                                              .model = request.model,
                                              .adapter = request.adapter,
                                              .device = request.device,
                                              .num_threads = request.num_threads,
                                              .end_ids = limits.end_ids,
                                              .sampling = request.sampling,
                                              .on_token = [&](int64_t token) { text.add(token); }},
                                             prompts));
  PredictReport report{.dtype = name_of_type(type)};
  if (!generated) return report;
  report.prefill_ms = generated->prefill_ms;
  report.decode_ms = generated->decode_ms;
  for (size_t i = 0; i < prompts.size(); ++i)
    add_prompt(report, prompts[i], std::move(generated->prompts[i]), i == 0 ? text.finish() : "");
  return report;
}

/// `has_ranks` becomes true when a plan's ranks begin, which tell their errors themselves.
Result<PredictReport> predict_here(const PredictRequest& given, bool& has_ranks) {
  PredictRequest request = given;
  if (!request.run_folder.empty()) {
    if (const Launch launch = detect_launch(); launch.size > 1) {
      return Error{.source = "--run",
                   .problem = fmt::format("is given to {} processes, of which each would write the run's model folder",
                                          launch.size),
                   .advice = "Write it first with weft convert --from RUN --to DIR, and give that as --model."};
    }
    WEFT_TRY(request.model, model_of_run(request.run_folder));
  }
  if (auto error = check_num_threads(request.num_threads)) return *std::move(error);
  if (request.num_threads > 0 && !request.plan) at::set_num_threads(request.num_threads);
  WEFT_TRY(const at::Device device, open_device(request.device));
  WEFT_TRY(Model model, read_model_folder(request.model));
  std::optional<AdapterFolder> adapter;
  if (!request.adapter.empty()) {
    WEFT_TRY(adapter, AdapterFolder::open(request.adapter, model));
    WEFT_TRY(model, with_adapters(model, adapter->rules(), request.adapter.string()));
    if (auto error = adapter->check(model)) return *std::move(error);
  }
  if (auto error = find_no_text(model, request.model.string())) return *std::move(error);
  WEFT_TRY(const at::ScalarType type, compute_type(request.dtype, model));
  WEFT_TRY(const ModelNumbers numbers, numbers_to_run(model));
  GenerationLimits limits;
  if (!request.ignores_end) {
    WEFT_TRY(limits.end_ids, read_end_ids(request.model, model, numbers));
  }

  const int64_t vocabulary = std::get<Lookup>(op_named(model.modules.back().entry, "embedding").shape).entries;
  std::vector<PromptEntry> entries;
  std::optional<Tokenizer> tokenizer;
  if (request.prompt_file.empty()) {
    WEFT_TRY(WordsPrompt words, read_words_prompt(model, numbers, vocabulary, request));
    entries.push_back({.raw = std::move(words.raw)});
    tokenizer = std::move(words.tokenizer);
  } else {
    WEFT_TRY(entries, read_prompt_file(request.prompt_file));
  }
  std::vector<PlannedPrompt> prompts;
  for (const PromptEntry& entry : entries) {
    auto own = prompts_of(entry, request, numbers, vocabulary);
    if (!own) {
      Error error = std::move(own).error();
      if (error.source.empty()) error.source = tokenizer ? "--prompt" : request.prompt_file.string();
      if (!entry.place.empty()) error.field = entry.place + "." + error.field;
      return error;
    }
    for (PlannedPrompt& prompt : *own) prompts.push_back(std::move(prompt));
  }

  if (request.plan) return predict_by_plan(request, model, type, prompts, limits, tokenizer, has_ranks);
  if (auto error = check_model_memory(model, request, type, device)) return *std::move(error);
  WEFT_TRY(const Predictor predictor, Predictor::load(model, request.model, at::TensorOptions(device).dtype(type),
                                                      request.load_progress, adapter ? &*adapter : nullptr));
  PredictReport report{.dtype = name_of_type(type)};
  limits.sampling = request.sampling;
  for (const PlannedPrompt& prompt : prompts) {
    limits.max_new_tokens = prompt.max_new_tokens;
    limits.prompt_number = report.prompts.size();
    AnswerText text(tokenizer, request.on_text);
    limits.on_token = [&](int64_t token) { text.add(token); };
    WEFT_TRY(Generation generation, predictor.generate(prompt.inputs, limits));
    report.prefill_ms += generation.prefill_ms;
    report.decode_ms += generation.decode_ms;
    const double prefill_ms = generation.prefill_ms, decode_ms = generation.decode_ms;
    add_prompt(report, prompt, std::move(generation), text.finish());
    report.prompts.back().prefill_ms = prefill_ms;
    report.prompts.back().decode_ms = decode_ms;
  }
  return report;
}

}  // namespace

Result<PredictReport> predict(const PredictRequest& request) {
  bool has_ranks = false;
  Result<PredictReport> report = predict_here(request, has_ranks);
  if (report.ok() || has_ranks || detect_launch().is_speaker()) return report;
  return told_elsewhere(report.error().kind);  // every process finds the same
}

}  // namespace weft
