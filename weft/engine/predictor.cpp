#include "weft/engine/predictor.h"

#include <algorithm>
#include <chrono>

#include "weft/engine/continuation.h"
#include "weft/engine/next_token.h"

namespace weft {
namespace {

class Stopwatch {
 public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Result<Predictor> Predictor::load(const Model& model, const std::filesystem::path& folder, at::TensorOptions options,
                                  const LoadProgress& progress, const AdapterFolder* adapter) {
  WEFT_TRY(const WeightFolder files, WeightFolder::open(folder));
  WholeParameters maker(options);
  WEFT_TRY(Network network, Network::create(model, maker));
  std::vector<ParameterPtr> own, adapted;
  for (const ParameterPtr& parameter : maker.all()) {
    const bool is_of_adapter = parameter->name().find(".lora_") != std::string::npos;
    (is_of_adapter ? adapted : own).push_back(parameter);
  }
  if (auto error = load_weights(files, own, network.numbers().files, progress)) return *std::move(error);
  WEFT_CHECK(adapted.empty() || adapter != nullptr, "a model with adapters without their weights");
  if (adapter != nullptr) {
    if (auto error = adapter->fill(adapted)) return *std::move(error);
  }
  return Predictor(std::move(network), options);
}

Result<Generation> Predictor::generate(const Inputs& prompt, const GenerationLimits& limits) const {
  WEFT_CHECK(limits.max_new_tokens > 0, "asked for {} tokens", limits.max_new_tokens);
  Generation result;
  TokenChooser chooser(limits.sampling, limits.prompt_number, tokens_of(prompt.ids));
  const Stopwatch prefill;
  Continuation text(network_, prompt.to(options_), limits.max_new_tokens - 1);
  WEFT_TRY(int64_t token, next_token(chooser, text.logits(), 0));
  result.prefill_ms = prefill.ms();
  const Stopwatch decode;
  while (true) {
    result.tokens.push_back(token);
    if (limits.on_token) limits.on_token(token);
    result.reached_end = std::find(limits.end_ids.begin(), limits.end_ids.end(), token) != limits.end_ids.end();
    if (result.reached_end || std::ssize(result.tokens) == limits.max_new_tokens) break;
    text.append(token);
    WEFT_TRY(token, next_token(chooser, text.logits(), result.tokens.size()));
  }
  result.decode_ms = decode.ms();
  return result;
}

}  // namespace weft
