#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/models/inputs.h"

namespace weft {
namespace {

/// Takes tensors out of a map by name, and remembers the first that was wrong.
class TensorFields {
 public:
  explicit TensorFields(std::map<std::string, at::Tensor>& tensors) : tensors_(tensors) {}

  at::Tensor take(const std::string& name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return {};
    at::Tensor tensor = found->second;
    tensors_.erase(found);
    return tensor;
  }

  at::Tensor integers(const std::string& name, int64_t dims) {
    at::Tensor tensor = take(name);
    if (!tensor.defined()) return tensor;
    if (dims == 1 && tensor.dim() == 2 && tensor.size(0) == 1) tensor = tensor.squeeze(0);
    if (!at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) || tensor.dim() != dims) {
      complain(name, tensor, fmt::format("integers with {} dims", dims));
      return {};
    }
    return tensor.to(at::kLong).contiguous();
  }

  int64_t num_dims(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? 0 : found->second.dim();
  }

  at::Tensor numbers(const std::string& name, int64_t dims) {
    at::Tensor tensor = take(name);
    if (!tensor.defined()) return tensor;
    if (!tensor.is_floating_point() || tensor.dim() != dims) {
      complain(name, tensor, fmt::format("floating point with {} dims", dims));
      return {};
    }
    if (!tensor.isfinite().all().item<bool>()) {
      complain({.field = name,
                .problem = "holds a value that is not a finite number",
                .advice = "Prepare the media again; the file may be damaged."});
    }
    return tensor.contiguous();
  }

  std::vector<int64_t> integer_list(const std::string& name) {
    const at::Tensor tensor = integers(name, 1);
    if (!tensor.defined()) return {};
    return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
  }

  std::vector<Grid> grids(const std::string& name) {
    const at::Tensor tensor = integers(name, 2);
    if (!tensor.defined()) return {};
    if (tensor.size(1) != 3) {
      complain(name, tensor, "3 columns: patches in time, height and width");
      return {};
    }
    std::vector<Grid> list;
    const int64_t* values = tensor.data_ptr<int64_t>();
    for (int64_t i = 0; i < tensor.size(0); ++i) list.push_back({values[3 * i], values[3 * i + 1], values[3 * i + 2]});
    return list;
  }

  void complain(const std::string& name, const at::Tensor& tensor, const std::string& expected) {
    complain({.field = name,
              .problem = fmt::format("is {} of shape [{}], expected {}", c10::toString(tensor.scalar_type()),
                                     fmt::join(tensor.sizes(), ", "), expected),
              .advice = "Save what the model's own processor returns for one conversation."});
  }
  void complain(Error error) {
    if (!error_) error_ = std::move(error);
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::map<std::string, at::Tensor>& tensors_;
  std::optional<Error> error_;
};

/// A processor pads clips to one length, [clips, mel bins, frames], and says in a mask which frames are real.
void unpad_features(RawInputs& raw, const at::Tensor& padded, const at::Tensor& mask, TensorFields& fields) {
  if (padded.size(0) != mask.size(0) || padded.size(2) != mask.size(1)) {
    return fields.complain("feature_attention_mask", mask,
                           fmt::format("a row of {} for each of {} clips", padded.size(2), padded.size(0)));
  }
  std::vector<at::Tensor> clips;
  for (int64_t clip = 0; clip < padded.size(0); ++clip) {
    const at::Tensor is_real = mask.select(0, clip).ne(0);
    const int64_t frames = is_real.sum().item<int64_t>();
    if (!is_real.narrow(0, 0, frames).all().item<bool>()) {
      return fields.complain("feature_attention_mask", mask, "in every row ones, then zeros");
    }
    raw.audio_frames.push_back(frames);
    clips.push_back(padded.select(0, clip).narrow(1, 0, frames));
  }
  raw.input_features = clips.empty() ? at::Tensor() : at::cat(clips, 1);
}

}  // namespace

Result<RawInputs> raw_inputs(std::map<std::string, at::Tensor> tensors) {
  TensorFields fields(tensors);
  RawInputs raw;
  raw.input_ids = fields.integers("input_ids", 1);
  if (!raw.input_ids.defined() && !fields.error()) {
    return Error{.field = "input_ids", .problem = "is missing", .advice = "Give the token ids of the prompt."};
  }
  raw.lengths = fields.integer_list("lengths");
  if (raw.lengths.empty() && raw.input_ids.defined()) raw.lengths = {raw.input_ids.size(0)};
  raw.targets = fields.integers("targets", 1);
  raw.pixel_values = fields.numbers("pixel_values", fields.num_dims("pixel_values") == 4 ? 4 : 2);
  raw.image_grids = fields.grids("image_grid_thw");
  raw.pixel_values_videos = fields.numbers("pixel_values_videos", 2);
  raw.video_grids = fields.grids("video_grid_thw");
  for (const char* name : {"second_per_grid_ts", "video_second_per_grid"}) {
    const at::Tensor seconds = fields.take(name);
    if (!seconds.defined()) continue;
    if (seconds.dim() > 1) {
      fields.complain(name, seconds, "numbers with 1 dim");
      continue;
    }
    const at::Tensor values = seconds.to(at::kDouble).flatten().contiguous();
    raw.video_frame_seconds.assign(values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  }
  const at::Tensor mask = fields.integers("feature_attention_mask", 2);
  raw.input_features = fields.numbers("input_features", mask.defined() ? 3 : 2);
  raw.audio_frames = mask.defined() ? std::vector<int64_t>{} : fields.integer_list("audio_feature_lengths");
  if (mask.defined() && raw.input_features.defined() && !fields.error())
    unpad_features(raw, raw.input_features, mask, fields);
  if (const at::Tensor flag = fields.take("use_audio_in_video"); flag.defined()) {
    if (flag.numel() != 1) fields.complain("use_audio_in_video", flag, "one value");
    raw.has_audio_in_video = flag.to(at::kLong).ne(0).any().item<bool>();
  }
  // A processor's mask of real tokens. Prompts come one at a time here, so that all of them are.
  if (const at::Tensor real = fields.take("attention_mask"); real.defined()) {
    if (!real.to(at::kLong).ne(0).all().item<bool>())
      fields.complain("attention_mask", real, "only ones: a prompt without padding");
  }
  fields.take("mm_token_type_ids");
  if (fields.error()) return *fields.error();
  if (!tensors.empty()) {
    static const std::vector<std::string> known = {"input_ids",
                                                   "lengths",
                                                   "targets",
                                                   "pixel_values",
                                                   "image_grid_thw",
                                                   "pixel_values_videos",
                                                   "video_grid_thw",
                                                   "second_per_grid_ts",
                                                   "video_second_per_grid",
                                                   "input_features",
                                                   "audio_feature_lengths",
                                                   "feature_attention_mask",
                                                   "attention_mask",
                                                   "use_audio_in_video",
                                                   "mm_token_type_ids"};
    const std::string& name = tensors.begin()->first;
    return Error{.field = name,
                 .problem = fmt::format("is a tensor that nothing reads; known are {}", joined_or(known)),
                 .advice = "Leave it out." + did_you_mean(name, known)};
  }
  return raw;
}

}  // namespace weft
