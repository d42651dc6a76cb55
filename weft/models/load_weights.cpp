#include "weft/models/load_weights.h"

#include <cstring>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/models/weight_names.h"
#include "weft/weights/mapped_file.h"

namespace weft {
namespace {

std::optional<at::ScalarType> tensor_type(WeightType type) {
  switch (type) {
    case WeightType::kF64:
      return at::kDouble;
    case WeightType::kF32:
      return at::kFloat;
    case WeightType::kF16:
      return at::kHalf;
    case WeightType::kBf16:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

/// Whether an element's exponent is all ones. Written for the compiler to vectorise.
template <typename Bits>
bool has_not_finite(const std::byte* bytes, size_t size, Bits exponent) {
  Bits found = 0;
  for (size_t i = 0; i < size; i += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes + i, sizeof(Bits));
    found |= static_cast<Bits>((bits & exponent) == exponent);
  }
  return found != 0;
}

bool has_not_finite(const std::byte* bytes, size_t size, at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return has_not_finite<uint64_t>(bytes, size, 0x7ff0'0000'0000'0000);
    case at::kFloat:
      return has_not_finite<uint32_t>(bytes, size, 0x7f80'0000);
    case at::kHalf:
      return has_not_finite<uint16_t>(bytes, size, 0x7c00);
    default:
      return has_not_finite<uint16_t>(bytes, size, 0x7f80);
  }
}

/// Copies and looks in one go, while the bytes are in the cache.
bool copy_finite(std::byte* to, const std::byte* from, size_t size, at::ScalarType type) {
  constexpr size_t kStep = size_t{64} << 10;
  bool is_finite = true;
  for (size_t begin = 0; begin < size; begin += kStep) {
    const size_t step = std::min(kStep, size - begin);
    std::memcpy(to + begin, from + begin, step);
    is_finite = is_finite && !has_not_finite(to + begin, step, type);
  }
  return is_finite;
}

std::string shape_text_of(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// False where the rows that the piece is of are not finite.
bool fill_piece(const at::Tensor& elements, const WeightEntry& entry, const WeightPiece& piece, at::ScalarType type) {
  const auto row_bytes = piece.row_elements() * static_cast<int64_t>(c10::elementSize(type));
  const std::byte* from = entry.bytes.data() + piece.first_row * row_bytes;
  const auto size = static_cast<size_t>(piece.num_rows * row_bytes);
  const bool has_whole_rows = piece.num_columns < 0;
  if (has_whole_rows && elements.scalar_type() == type && elements.device().is_cpu()) {
    return copy_finite(static_cast<std::byte*>(elements.data_ptr()), from, size, type);
  }
  if (has_not_finite(from, size, type)) return false;
  std::vector<int64_t> shape = piece.shape;
  shape[0] = piece.num_rows;
  at::Tensor rows;
  if (is_aligned(entry)) {
    rows = at::from_blob(const_cast<std::byte*>(from), shape, at::TensorOptions().dtype(type));
  } else {
    rows = at::empty(shape, at::TensorOptions().dtype(type));
    std::memcpy(rows.data_ptr(), from, size);
  }
  if (!has_whole_rows) rows = rows.narrow(1, piece.first_column, piece.num_columns);
  elements.copy_(rows.reshape({-1}));
  return true;
}

/// What is wrong with the weight that a piece wants, if anything.
std::optional<Error> check_entry(const WeightEntry& entry, const WeightPiece& piece) {
  if (entry.info.shape != piece.shape) {
    return Error{.field = piece.name,
                 .problem = fmt::format("has the shape {}, but the model's configuration makes it {}",
                                        shape_text_of(entry.info.shape), shape_text_of(piece.shape)),
                 .advice = "Are these the weights of another model?"};
  }
  if (!tensor_type(entry.info.type)) {
    return Error{.field = piece.name,
                 .problem = fmt::format("holds {}, but F64, F32, F16 or BF16 is needed", name_of(entry.info.type)),
                 .advice = "Convert the weights to one of these types."};
  }
  return std::nullopt;
}

Error missing_weights(const std::vector<std::string>& missing, const std::set<std::string>& extra) {
  Error error{.field = missing.front(), .problem = "is a weight of the model, but the files do not have it"};
  if (missing.size() > 1) error.problem += fmt::format(", nor {} others, like {}", missing.size() - 1, missing.back());
  error.advice = "Are these the weights of another model?";
  if (!extra.empty())
    error.advice += did_you_mean(missing.front(), std::vector<std::string>(extra.begin(), extra.end()));
  return error;
}

}  // namespace

std::optional<Error> load_weights(const WeightFolder& folder, const std::vector<ParameterPtr>& parameters,
                                  std::string_view prefix, const LoadProgress& progress) {
  const at::NoGradGuard no_graph;
  const auto located = [&](Error error) {
    error.source = folder.path().string();
    return error;
  };
  std::map<std::string, const WeightEntry*, std::less<>> entries;
  std::set<std::string> extra;
  for (const SafetensorsFile& file : folder.files()) {
    for (const WeightEntry& entry : file.entries()) {
      const std::string name = parameter_name(entry.info.name);
      entries[name] = &entry;
      extra.insert(name);
    }
  }
  std::vector<std::string> missing;
  bool has_head = false;
  for (const ParameterPtr& parameter : parameters) {
    for (const WeightPiece& piece : parameter->spec.pieces) {
      if (piece.name.empty()) continue;
      has_head |= piece.name.ends_with("lm_head.weight");
      extra.erase(piece.name);
      const auto found = entries.find(piece.name);
      if (found == entries.end()) {
        missing.push_back(piece.name);
      } else if (auto error = check_entry(*found->second, piece)) {
        return located(*std::move(error));
      }
    }
  }
  std::erase_if(extra, [&](const std::string& name) { return is_ignored_weight(name, prefix, has_head); });
  if (!missing.empty()) return located(missing_weights(missing, extra));
  if (!extra.empty()) {
    Error error{.field = *extra.begin(), .problem = "is in the files, but the model has no such weight"};
    if (extra.size() > 1) error.problem += fmt::format(", nor {} others, like {}", extra.size() - 1, *extra.rbegin());
    error.advice = "Are these the weights of another model?";
    return located(std::move(error));
  }

  int64_t bytes_of_all = 0;
  for (const ParameterPtr& parameter : parameters) bytes_of_all += static_cast<int64_t>(parameter->value.nbytes());
  int64_t bytes_done = 0;
  for (const ParameterPtr& parameter : parameters) {
    if (progress) progress(bytes_done, bytes_of_all);
    bytes_done += static_cast<int64_t>(parameter->value.nbytes());
    const at::Tensor elements = parameter->value.detach().view({-1});
    int64_t begin = 0;
    for (const WeightPiece& piece : parameter->spec.pieces) {
      const int64_t count = piece.num_elements();
      const at::Tensor part = elements.narrow(0, begin, count);
      begin += count;
      if (piece.name.empty()) {
        part.zero_();
        continue;
      }
      const WeightEntry& entry = *entries.find(piece.name)->second;
      if (!fill_piece(part, entry, piece, *tensor_type(entry.info.type))) {
        return located({.field = piece.name,
                        .problem = "holds a value that is not a finite number",
                        .advice = "The file is damaged, or the training that wrote it diverged."});
      }
    }
  }
  return std::nullopt;
}

NamedWeights::NamedWeights(const std::vector<ParameterPtr>& parameters) {
  for (const ParameterPtr& parameter : parameters) {
    int64_t begin = 0;
    for (size_t index = 0; index < parameter->spec.pieces.size(); ++index) {
      const WeightPiece& piece = parameter->spec.pieces[index];
      if (!piece.name.empty())
        places_[piece.name].push_back({.parameter = parameter, .piece = index, .first_element = begin});
      begin += piece.num_elements();
    }
  }
}

std::vector<std::string> NamedWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, places] : places_) names.push_back(name);
  return names;
}

at::Tensor NamedWeights::assemble(std::string_view name,
                                  const std::function<at::Tensor(const Parameter&)>& part) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return {};
  at::Tensor whole;
  for (const Place& place : found->second) {
    const WeightPiece& piece = place.parameter->spec.pieces[place.piece];
    const at::Tensor source = part(*place.parameter);
    if (!source.defined()) return {};
    if (!whole.defined()) whole = at::empty(piece.shape, source.options().device(at::kCPU));
    const at::Tensor held = held_part(piece, whole);
    held.copy_(source.detach().reshape({-1}).narrow(0, place.first_element, piece.num_elements()).view(held.sizes()));
  }
  return whole;
}

at::Tensor NamedWeights::value(std::string_view name) const {
  return assemble(name, [](const Parameter& parameter) { return parameter.value; });
}

at::Tensor NamedWeights::gradient(std::string_view name) const {
  return assemble(name, [](const Parameter& parameter) { return parameter.gradient; });
}

std::optional<Error> save_weights(const std::filesystem::path& folder, const FolderLayout& layout,
                                  const std::vector<ParameterPtr>& parameters) {
  const NamedWeights weights(parameters);
  at::Tensor kept;  // its bytes are being written
  return write_weight_folder(folder, layout, [&](const WeightInfo& info) -> Result<std::span<const std::byte>> {
    const auto type = tensor_type(info.type);
    const at::Tensor value = weights.value(parameter_name(info.name));
    if (!type || !value.defined()) {
      return Error{.source = folder.string(),
                   .field = info.name,
                   .problem = value.defined() ? fmt::format("is to be written as {}", name_of(info.type))
                                              : "is to be written, but the model has no such weight",
                   .advice = "Save with the layout of this model's own files."};
    }
    kept = value.to(*type).contiguous();
    return std::span(static_cast<const std::byte*>(kept.data_ptr()), kept.nbytes());
  });
}

}  // namespace weft
