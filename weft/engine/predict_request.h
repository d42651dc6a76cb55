#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/plan/plan.h"

namespace weft {

/// How the next token is chosen.
struct Sampling {
  double temperature = 0;         ///< 0: the likeliest token is taken
  double top_p = 1;               ///< tokens are drawn from the fewest that have this share
  double repetition_penalty = 1;  ///< that tokens which were there before are less likely by
  uint64_t seed = 0;
};

/// What `weft predict` asks of the runtime half.
struct PredictRequest {
  std::filesystem::path model;       ///< a folder with config.json and weights
  std::filesystem::path run_folder;  ///< or a training run's, whose newest checkpoint is taken
  std::filesystem::path adapter;     ///< for the model, as PEFT saves it; empty: none
  std::optional<Plan> plan;          ///< on whose ranks; nothing: one rank
  std::filesystem::path prompt_file;
  std::string prompt;  ///< words in place of a file, with media
  std::vector<std::filesystem::path> images, audios;
  std::vector<std::filesystem::path> videos;  ///< folders of frames, in the order of their names
  Sampling sampling;
  std::function<void(const std::string&)> on_text;  ///< the answer to words, as it is made
  std::optional<int64_t> max_new_tokens;            ///< goes before what the prompt file says
  std::string dtype;                                ///< empty: as the configuration says
  std::string device = "cpu";
  bool ignores_end = false;
  int num_threads = 0;  ///< of a rank; 0: LibTorch's choice, or a rank's share of the cores
  std::function<void(int64_t bytes_done, int64_t bytes_of_all)> load_progress;
};

struct PredictedPrompt {
  int64_t input_tokens = 0;
  std::vector<int64_t> tokens;
  std::string text;          ///< of these tokens, where the prompt was words
  bool reached_end = false;  ///< else the number of new tokens was reached
  /// What it took until its first new token, and from then on; nothing where prompts grow together.
  std::optional<double> prefill_ms = std::nullopt, decode_ms = std::nullopt;
};

struct PredictReport {
  std::vector<PredictedPrompt> prompts;  ///< none in processes of ranks other than 0
  double prefill_ms = 0;                 ///< all prompts, each with its first new token
  int64_t num_decoded = 0;               ///< tokens after the first of each prompt
  double decode_ms = 0;                  ///< what these took
  std::string dtype;                     ///< that was used
};

/// Tokens generated where neither the flag nor the prompt file says how many, if the model's context has room for them.
inline constexpr int64_t kDefaultNewTokens = 64;
inline constexpr int64_t kMostNewTokens = 1'000'000;

}  // namespace weft
