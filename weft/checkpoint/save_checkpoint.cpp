#include "weft/checkpoint/save_checkpoint.h"

#include <algorithm>
#include <map>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/checkpoint/agreement.h"
#include "weft/checkpoint/checkpoint_json.h"
#include "weft/checkpoint/crc32c.h"
#include "weft/checkpoint/new_folder.h"
#include "weft/models/tensor_type.h"
#include "weft/optim/owned_pieces.h"
#include "weft/weights/new_file.h"
#include "weft/weights/safetensors_header.h"

namespace weft {
namespace {

/// What a rank is to write.
struct RankContent {
  std::vector<StoredPart> parts;
  std::vector<WeightInfo> weights;            ///< in the order of the file
  std::map<std::string, at::Tensor> tensors;  ///< by name
};

RankContent content_of(std::span<StageOptimizer* const> optimizers, int64_t rank) {
  RankContent content;
  std::map<std::string, int64_t> num_parts;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    const auto type = weight_type(tensor.scalar_type());
    WEFT_CHECK(type.has_value(), "{} is of the type {}", name, c10::toString(tensor.scalar_type()));
    content.weights.push_back({.name = name, .type = *type, .shape = tensor.sizes().vec()});
    content.tensors.emplace(name, tensor);
  };
  for (const StageOptimizer* optimizer : optimizers) {
    if (optimizer->owner_rank() != rank) continue;
    for (const OwnedPiece& owned : owned_pieces(*optimizer)) {
      if (owned.piece->name.empty()) continue;
      StoredPart part{.piece = *owned.piece,
                      .elements = owned.elements,
                      .tensor = fmt::format("{}#{}", owned.piece->name, num_parts[owned.piece->name]++),
                      .is_trained = owned.state.moment1.defined()};
      add(part.tensor + kValueName, owned.state.master);
      if (part.is_trained) {
        add(part.tensor + kMoment1Name, owned.state.moment1);
        add(part.tensor + kMoment2Name, owned.state.moment2);
      }
      content.parts.push_back(std::move(part));
    }
  }
  sort_for_safetensors(content.weights);
  return content;
}

/// The file, one tensor after the other, and what was written.
Result<CheckpointFile> write_content(const RankContent& content, int64_t rank, const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / checkpoint_file_name(rank);
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return Error{.kind = ErrorKind::kJob,
                 .source = path.string(),
                 .problem = "cannot be written: rank 0 has made its folder, but here it is not there",
                 .advice = "Save to a file system that all ranks share."};
  }
  WEFT_TRY(const std::string front, safetensors_front(content.weights, {}, path.string()));
  CheckpointFile written{.rank = rank, .num_bytes = std::ssize(front), .parts = content.parts};
  for (const WeightInfo& weight : content.weights) written.num_bytes += *bytes_of(weight.type, weight.shape);
  WEFT_TRY(NewFile file, NewFile::create(path, written.num_bytes));
  const auto append = [&](std::span<const std::byte> bytes) {
    written.checksum = crc32c(bytes, written.checksum);
    return file.append(bytes);
  };
  if (auto error = append(std::as_bytes(std::span(front)))) return *std::move(error);
  for (const WeightInfo& weight : content.weights) {
    const at::Tensor tensor = content.tensors.at(weight.name).cpu().contiguous();
    if (auto error = append({static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}))
      return *std::move(error);
  }
  if (auto error = file.finish()) return *std::move(error);
  return written;
}

/// That all ranks' optimizers have done; idle ranks have none.
int64_t updates_of(std::span<StageOptimizer* const> optimizers, Group& everyone) {
  int64_t updates = optimizers.empty() ? 0 : optimizers.front()->step();
  for (const StageOptimizer* optimizer : optimizers)
    WEFT_CHECK(optimizer->step() == updates, "optimizers that have done {} and {} updates", updates, optimizer->step());
  everyone.all_reduce(Buffer{.data = &updates, .count = 1, .type = DataType::kInt64}, Reduction::kMax).wait();
  return updates;
}

/// checkpoint.json, of what all ranks say that they have written.
std::optional<Error> write_json(const SaveRequest& request, int64_t updates, const std::vector<std::string>& written,
                                const std::filesystem::path& folder) {
  Checkpoint checkpoint{.step = request.step, .updates = updates, .plan = request.plan, .run = request.run};
  for (size_t rank = 0; rank < written.size(); ++rank) {
    if (written[rank].empty()) continue;
    const std::string source = fmt::format("what rank {} wrote", rank);
    const auto document =
        parse_document(written[rank], source, Syntax::kJson, {.max_bytes = size_t{1} << 30, .max_values = 100'000'000});
    WEFT_CHECK(document.ok(), "{}", document.error().message());
    auto file = checkpoint_file_from(*document);
    WEFT_CHECK(file.ok(), "{}", file.error().message());
    const std::filesystem::path path = folder / checkpoint_file_name(file->rank);
    std::error_code problem;
    if (std::filesystem::file_size(path, problem) != static_cast<uintmax_t>(file->num_bytes)) {
      return Error{.kind = ErrorKind::kJob,
                   .source = path.string(),
                   .problem = fmt::format("is not there for rank 0 as rank {} has written it", file->rank),
                   .advice = "Save to a file system that all ranks share."};
    }
    checkpoint.files.push_back(*std::move(file));
  }
  const std::string text = checkpoint_to_text(checkpoint);
  auto file = NewFile::create(folder / kCheckpointJsonName, std::ssize(text));
  if (!file) return std::move(file).error();
  if (auto error = file->append(std::as_bytes(std::span(text)))) return error;
  return file->finish();
}

/// Removes all but the last. Those of higher steps are of another history, and are neither counted nor touched.
std::optional<Error> remove_older(const SaveRequest& request) {
  if (request.keep_last == 0) return std::nullopt;
  auto steps = list_checkpoints(request.checkpoints);
  if (!steps) return std::move(steps).error();
  std::erase_if(*steps, [&](int64_t step) { return step > request.step; });
  const int64_t too_many = std::ssize(*steps) - request.keep_last;
  for (int64_t i = 0; i < too_many; ++i) {
    if (auto error = remove_folder(request.checkpoints / checkpoint_name((*steps)[static_cast<size_t>(i)])))
      return error;
  }
  return std::nullopt;
}

}  // namespace

Result<SavedCheckpoint> save_checkpoint(const SaveRequest& request, Group& everyone,
                                        std::span<StageOptimizer* const> optimizers) {
  const at::NoGradGuard no_graph;
  WEFT_CHECK(request.step >= 0 && request.keep_last >= 0, "step {}, of which {} are kept", request.step,
             request.keep_last);
  WEFT_CHECK(request.run.is_object(), "the trainer's own part of a checkpoint is no object");
  WEFT_CHECK(everyone.size() == request.plan.world_size, "{} ranks for a plan of {}", everyone.size(),
             request.plan.world_size);
  const bool is_first = everyone.rank() == 0;
  const int64_t updates = updates_of(optimizers, everyone);
  SavedCheckpoint saved{.folder = request.checkpoints / checkpoint_name(request.step)};
  const std::filesystem::path hidden = hidden_folder(saved.folder);

  std::optional<Error> error;
  if (is_first) {
    error = remove_leftovers(request.checkpoints, kCheckpointPrefix);
    if (!error) error = begin_folder(saved.folder);
  }
  if (auto failed = first_error(everyone, error)) return *std::move(failed);

  std::string written;
  const RankContent content = content_of(optimizers, everyone.rank());
  if (!content.parts.empty()) {
    auto file = write_content(content, everyone.rank(), hidden);
    if (file) {
      saved.num_bytes = file->num_bytes;
      written = checkpoint_file_to_text(*file);
    } else {
      error = std::move(file).error();
    }
  }
  auto failed = first_error(everyone, error);
  if (!failed) {
    const std::vector<std::string> all = gather_texts(everyone, written);
    if (is_first) {
      error = write_json(request, updates, all, hidden);
      if (!error) error = finish_folder(saved.folder);
    }
    failed = first_error(everyone, error);
  }
  if (failed) {
    if (is_first) discard_folder(saved.folder);
    return *std::move(failed);
  }
  saved.warning = first_error(everyone, is_first ? remove_older(request) : std::nullopt);
  return saved;
}

}  // namespace weft
