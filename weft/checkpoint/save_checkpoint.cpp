#include "weft/checkpoint/save_checkpoint.h"

#include <algorithm>
#include <map>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/checkpoint/agreement.h"
#include "weft/checkpoint/checkpoint_json.h"
#include "weft/checkpoint/new_folder.h"
#include "weft/checkpoint/own_parts.h"
#include "weft/checkpoint/rank_file.h"
#include "weft/models/tensor_type.h"
#include "weft/tensor/memory_count.h"

namespace weft {
namespace {

/// That all ranks' optimizers have done; idle ranks have none.
int64_t updates_of(std::span<StageOptimizer* const> optimizers, Group& everyone) {
  int64_t updates = optimizers.empty() ? 0 : optimizers.front()->step();
  for (const StageOptimizer* optimizer : optimizers)
    WEFT_CHECK(optimizer->step() == updates, "optimizers that have done {} and {} updates", updates, optimizer->step());
  everyone.all_reduce(Buffer{.data = &updates, .count = 1, .type = DataType::kInt64}, Reduction::kMax).wait();
  return updates;
}

/// What all ranks say that they have written, as rank 0 sees it, too.
std::optional<Error> add_files(const std::vector<std::string>& written, const std::filesystem::path& folder,
                               Checkpoint& checkpoint) {
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
  return std::nullopt;
}

/// Removes all but the last. Those of higher steps are of another history, and are neither counted nor touched.
std::optional<Error> remove_older(const std::filesystem::path& checkpoints, int64_t newest, int64_t keep_last,
                                  const std::vector<int64_t>& keep_also) {
  if (keep_last == 0) return std::nullopt;
  auto steps = list_checkpoints(checkpoints);
  if (!steps) return std::move(steps).error();
  std::erase_if(*steps, [&](int64_t step) { return step > newest; });
  const int64_t too_many = std::ssize(*steps) - keep_last;
  for (int64_t i = 0; i < too_many; ++i) {
    const int64_t step = (*steps)[static_cast<size_t>(i)];
    if (std::find(keep_also.begin(), keep_also.end(), step) != keep_also.end()) continue;
    if (auto error = remove_folder(checkpoints / checkpoint_name(step))) return error;
  }
  return std::nullopt;
}

bool is_ready(const auto& future) {
  return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

bool are_all(Group& everyone, bool mine) {
  int64_t missing = mine ? 0 : 1;
  everyone.all_reduce(Buffer{.data = &missing, .count = 1, .type = DataType::kInt64}, Reduction::kMax).wait();
  return missing == 0;
}

}  // namespace

struct CheckpointSave::Content {
  RankContent file;
  std::map<std::string, at::Tensor> tensors;  ///< by name
};

Result<std::unique_ptr<CheckpointSave>> CheckpointSave::start(const SaveRequest& request, Group& everyone,
                                                              std::span<StageOptimizer* const> optimizers,
                                                              bool copies) {
  const at::NoGradGuard no_graph;
  WEFT_CHECK(request.step >= 0 && request.keep_last >= 0, "step {}, of which {} are kept", request.step,
             request.keep_last);
  WEFT_CHECK(request.run.is_object(), "the trainer's own part of a checkpoint is no object");
  WEFT_CHECK(everyone.size() == request.plan.world_size, "{} ranks for a plan of {}", everyone.size(),
             request.plan.world_size);
  const UnlimitedWaits patience(everyone);
  std::unique_ptr<CheckpointSave> save(new CheckpointSave(everyone));
  save->step_ = request.step;
  save->checkpoints_ = request.checkpoints;
  save->keep_last_ = request.keep_last;
  save->keep_also_ = request.keep_also;
  save->described_ = std::make_unique<Checkpoint>(Checkpoint{.folder = {},
                                                             .step = request.step,
                                                             .updates = updates_of(optimizers, everyone),
                                                             .samples = request.samples,
                                                             .first_batch_samples = request.first_batch_samples,
                                                             .plan = request.plan,
                                                             .run = request.run,
                                                             .files = {}});
  save->saved_.folder = request.checkpoints / checkpoint_name(request.step);
  std::optional<Error> error;
  if (everyone.rank() == 0) {
    if (request.removes_leftovers) error = remove_leftovers(request.checkpoints, kCheckpointPrefix);
    if (!error) error = begin_folder(save->saved_.folder);
  }
  if (auto failed = first_error(everyone, error)) {
    save->is_over_ = true;
    return *std::move(failed);
  }
  auto content = std::make_shared<Content>();
  // The copy is told apart from what steps hold, by predictions and by runs.
  const CountedThread not_counted(nullptr);
  for (const StageOptimizer* optimizer : optimizers) {
    for (const OwnedPiece& owned : pieces_to_write(*optimizer)) {
      const bool is_trained = owned.state.moment1.defined();
      const int64_t updates = is_trained ? optimizer->updates_of(owned.index) : optimizer->step();
      StoredPart part{.piece = *owned.piece,
                      .elements = owned.elements,
                      .tensor = "",
                      .is_trained = is_trained,
                      .updates = updates == optimizer->step() ? -1 : updates};
      const auto type = [](const at::Tensor& tensor) {
        const auto known = weight_type(tensor.scalar_type());
        WEFT_CHECK(known.has_value(), "a weight of the type {}", c10::toString(tensor.scalar_type()));
        return *known;
      };
      content->file.add(std::move(part), type(owned.state.master),
                        type(is_trained ? owned.state.moment1 : owned.state.master));
      const std::string& name = content->file.parts.back().tensor;
      const auto keep = [&](const char* what, const at::Tensor& tensor) {
        content->tensors.emplace(name + what, copies ? tensor.to(at::kCPU, tensor.scalar_type(), false, true) : tensor);
      };
      keep(kValueName, owned.state.master);
      if (!is_trained) continue;
      keep(kMoment1Name, owned.state.moment1);
      keep(kMoment2Name, owned.state.moment2);
    }
  }
  save->content_ = content;
  if (content->file.parts.empty()) return save;
  const auto write = [content, rank = everyone.rank(), folder = hidden_folder(save->saved_.folder),
                      chunk_bytes = request.chunk_bytes] {
    at::Tensor kept;  // its bytes are being written
    return write_rank_file(folder, rank, content->file, chunk_bytes,
                           [&](const WeightInfo& info) -> Result<std::span<const std::byte>> {
                             kept = content->tensors.at(info.name).cpu().contiguous();
                             return std::span(static_cast<const std::byte*>(kept.data_ptr()), kept.nbytes());
                           });
  };
  save->writing_ = std::async(copies ? std::launch::async : std::launch::deferred, write);
  return save;
}

Result<std::unique_ptr<CheckpointSave>> CheckpointSave::begin(const SaveRequest& request, Group& everyone,
                                                              std::span<StageOptimizer* const> optimizers) {
  return start(request, everyone, optimizers, /*copies=*/true);
}

CheckpointSave::~CheckpointSave() {
  if (writing_.valid()) writing_.wait();
  if (ending_) ending_->wait();
  if (!is_over_ && everyone_->rank() == 0) discard_folder(saved_.folder);
}

Error CheckpointSave::given_up(Error error) {
  is_over_ = true;
  if (everyone_->rank() == 0) discard_folder(saved_.folder);
  return error;
}

std::optional<Error> CheckpointSave::begin_ending() {
  std::optional<Error> error;
  std::string written;
  if (writing_.valid()) {
    Result<CheckpointFile> file = writing_.get();
    if (file) {
      saved_.num_bytes = file->num_bytes;
      written = checkpoint_file_to_text(*file);
    } else {
      error = std::move(file).error();
    }
  }
  content_.reset();
  if (auto failed = first_error(*everyone_, error)) return failed;
  const std::vector<std::string> all = gather_texts(*everyone_, written);
  is_ending_ = true;
  if (everyone_->rank() != 0) return std::nullopt;
  ending_ = std::async(std::launch::async, [this, all]() -> Ending {
    const std::filesystem::path hidden = hidden_folder(saved_.folder);
    if (auto failed = add_files(all, hidden, *described_)) return {.error = std::move(failed), .warning = {}};
    if (auto failed = write_checkpoint_json(hidden, *described_)) return {.error = std::move(failed), .warning = {}};
    if (auto failed = finish_folder(saved_.folder)) return {.error = std::move(failed), .warning = {}};
    return {.error = {}, .warning = remove_older(checkpoints_, step_, keep_last_, keep_also_)};
  });
  return std::nullopt;
}

Result<SavedCheckpoint> CheckpointSave::end() {
  const Ending ending = ending_ ? ending_->get() : Ending();
  ending_.reset();
  if (auto failed = first_error(*everyone_, ending.error)) return given_up(*std::move(failed));
  is_over_ = true;
  saved_.warning = first_error(*everyone_, ending.warning);
  return saved_;
}

Result<std::optional<SavedCheckpoint>> CheckpointSave::poll() {
  const UnlimitedWaits patience(*everyone_);
  if (!is_ending_) {
    if (!are_all(*everyone_, !writing_.valid() || is_ready(writing_))) return std::optional<SavedCheckpoint>();
    if (auto error = begin_ending()) return given_up(*std::move(error));
  }
  if (!are_all(*everyone_, !ending_ || is_ready(*ending_))) return std::optional<SavedCheckpoint>();
  WEFT_TRY(SavedCheckpoint saved, end());
  return std::optional(std::move(saved));
}

Result<SavedCheckpoint> CheckpointSave::finish() {
  const UnlimitedWaits patience(*everyone_);
  if (!is_ending_) {
    if (writing_.valid()) writing_.wait();
    if (auto error = begin_ending()) return given_up(*std::move(error));
  }
  return end();
}

Result<SavedCheckpoint> save_checkpoint(const SaveRequest& request, Group& everyone,
                                        std::span<StageOptimizer* const> optimizers) {
  WEFT_TRY(const std::unique_ptr<CheckpointSave> save,
           CheckpointSave::start(request, everyone, optimizers, /*copies=*/false));
  return save->finish();
}

}  // namespace weft
