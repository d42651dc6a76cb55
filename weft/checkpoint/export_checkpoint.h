#pragma once

#include <functional>

#include "weft/checkpoint/checkpoint.h"

namespace weft {

struct ExportOptions {
  /// Of the weights that are written; nothing: what the model's configuration says, else the master weights'.
  std::optional<Precision> type;
  int64_t max_file_bytes = 5'000'000'000;  ///< more weights are spread over several files, with an index
  /// Where the model came from: what a Hugging Face folder has besides weights and config.json is copied from there.
  std::filesystem::path companions;
  std::function<void(int64_t bytes_done, int64_t bytes_of_all)> progress;
};

/// Fills flat tensors with elements of a weight, from wherever: those that are defined.
using FillWeight = std::function<std::optional<Error>(const WeightPiece&, const ElementRange&, const AdamWState& to)>;

/// The weights of a Hugging Face folder for a model, in any types; moments are zero. The folder must hold the weights
/// of the model, no less and no more.
Result<FillWeight> fill_from_folder(const std::filesystem::path& folder, const Model& model);

/// The files of a Hugging Face folder that go with weights: tokenizer, processor, chat templates, settings of
/// generation. By their paths in it, sorted.
std::vector<std::string> companion_files(const std::filesystem::path& folder);
/// Those with a model's own code, which are not copied.
std::vector<std::string> code_files(const std::filesystem::path& folder);

/// Writes weights as a new Hugging Face folder: config.json with the type that is written, model.safetensors, and what
/// goes with them. One process does it, with one whole weight in memory at a time. A folder that is there already must
/// be empty. `usual` is the type where neither the options nor the configuration name one.
std::optional<Error> export_weights(const FillWeight& fill, const Model& model, Precision usual,
                                    const std::filesystem::path& folder, const ExportOptions& options);

/// The same of a checkpoint, of which every byte that is used is checked.
std::optional<Error> export_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                                       const ExportOptions& options = {});

}  // namespace weft
