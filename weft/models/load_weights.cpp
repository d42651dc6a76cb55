#include "weft/models/load_weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/text.h"
#include "weft/models/tensor_type.h"
#include "weft/models/weight_copies.h"
#include "weft/program/name_weights.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

std::vector<int64_t> turned(std::vector<int64_t> shape) {
  std::reverse(shape.begin(), shape.end());
  return shape;
}

/// What is wrong with a weight that the model has, if anything.
std::optional<Error> check_entry(const FoundWeight& entry, const NamedShape& weight) {
  const bool is_turned = entry.is_transposed != weight.is_transposed;
  if (entry.info.shape != (is_turned ? turned(weight.file_shape()) : weight.file_shape())) {
    return Error{.field = weight.name,
                 .problem = fmt::format("has the shape {}, but the model's configuration makes it {}",
                                        shape_text(entry.info.shape), shape_text(weight.file_shape())),
                 .advice = "Are these the weights of another model?"};
  }
  if (!tensor_type(entry.info.type)) {
    return Error{.field = weight.name,
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

/// Where the configuration ties the head to the embedding, a file may hold it all the same, as a copy.
std::optional<Error> check_tied_head(const WeightEntries& entries, const WeightFiles& files) {
  const auto head = entries.find(files.tied_head);
  const auto table = entries.find(files.tied_table);
  if (files.tied_head.empty() || head == entries.end() || table == entries.end()) return std::nullopt;
  const WeightEntry& a = head->second;
  const WeightEntry& b = table->second;
  const bool is_copy = a.info.type == b.info.type && a.info.shape == b.info.shape &&
                       std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
  if (is_copy) return std::nullopt;
  return Error{.field = head->first,
               .problem = "is another weight than the embedding, but the configuration ties the two",
               .advice = "Set tie_word_embeddings to false in config.json, or leave the weight out."};
}

/// In stretches between which progress is told.
std::optional<size_t> copy_with_progress(const std::vector<WeightCopy>& copies, const LoadProgress& progress) {
  if (!progress) return copy_weights(copies);
  constexpr int64_t kStretchBytes = int64_t{512} << 20;
  int64_t total = 0;
  for (const WeightCopy& copy : copies) total += static_cast<int64_t>(copy.to.nbytes());
  int64_t done = 0;
  for (size_t begin = 0; begin < copies.size();) {
    progress(done, total);
    size_t end = begin;
    for (int64_t bytes = 0; end < copies.size() && bytes < kStretchBytes; ++end) {
      bytes += static_cast<int64_t>(copies[end].to.nbytes());
      done += static_cast<int64_t>(copies[end].to.nbytes());
    }
    const auto first = copies.begin() + static_cast<std::ptrdiff_t>(begin);
    if (const auto bad = copy_weights({first, copies.begin() + static_cast<std::ptrdiff_t>(end)})) return begin + *bad;
    begin = end;
  }
  progress(total, total);
  return std::nullopt;
}

/// How many weights of the model lie in each stack of its files, by the stack's name.
std::map<std::string, int64_t> stack_sizes(const WeightList& model) {
  std::map<std::string, int64_t> sizes;
  for (const NamedShape& weight : model.weights) {
    if (const auto stack = model.files.stack_with(weight.name)) ++sizes[*stack];
  }
  return sizes;
}

/// What a weight of the files holds, under the names that parameters have for it.
Result<WeightEntries> entries_in(const WeightEntry& entry, const WeightFiles& files,
                                 const std::map<std::string, int64_t>& stacks) {
  const std::string name = files.name_of(entry.info.name);
  const auto stack = files.stack_of(name);
  const std::vector<int64_t>& shape = entry.info.shape;
  const auto size = stacks.find(name);
  if (!stack || shape.size() < 2 || size == stacks.end()) return WeightEntries{{name, FoundWeight{entry}}};
  // Before it is taken apart: the header of a small file may say anything.
  if (shape.front() != size->second) {
    return Error{.field = entry.info.name,
                 .problem = fmt::format("has the shape {}, but the model's configuration makes {} of its first dim",
                                        shape_text(shape), size->second),
                 .advice = "Are these the weights of another model?"};
  }
  WeightEntries entries;
  const size_t bytes = entry.bytes.size() / static_cast<size_t>(shape.front());
  for (int64_t i = 0; i < shape.front(); ++i) {
    FoundWeight part{entry};
    part.info.shape.erase(part.info.shape.begin());
    part.bytes = entry.bytes.subspan(static_cast<size_t>(i) * bytes, bytes);
    entries.emplace(numbered(*stack, i), std::move(part));
  }
  return entries;
}

/// The weights of the files under the names that parameters have for them.
Result<WeightEntries> entries_of(const WeightFolder& folder, const WeightList& model) {
  const std::map<std::string, int64_t> stacks = stack_sizes(model);
  WeightEntries entries;
  for (const SafetensorsFile& file : folder.files()) {
    for (const WeightEntry& entry : file.entries()) {
      WEFT_TRY(WeightEntries parts, entries_in(entry, model.files, stacks));
      for (auto& [name, part] : parts) {
        if (entries.emplace(name, std::move(part)).second) continue;
        return Error{.field = entry.info.name,
                     .problem = fmt::format("is a second weight for {}", name),
                     .advice = "Keep the one that belongs to the model."};
      }
    }
  }
  return entries;
}

/// Says of each how it lies in the files.
void find_directions(const WeightList& model, WeightEntries& entries) {
  const auto found = [&](const NamedShape& weight) {
    const auto it = entries.find(weight.name);
    return it == entries.end() ? nullptr : &it->second;
  };
  const auto is_stacked = [&](const NamedShape& weight) {
    return weight.shape.size() == 2 && model.files.stack_with(weight.name).has_value();
  };
  const bool are_turned = std::any_of(model.weights.begin(), model.weights.end(), [&](const NamedShape& weight) {
    const FoundWeight* entry = found(weight);
    return entry != nullptr && is_stacked(weight) && entry->info.shape != weight.file_shape() &&
           entry->info.shape == turned(weight.file_shape());
  });
  for (const NamedShape& weight : model.weights) {
    if (FoundWeight* entry = found(weight))
      entry->is_transposed = weight.is_transposed != (are_turned && is_stacked(weight));
  }
}

/// The files hold the model's weights, all of them and no others.
std::optional<Error> check_entries(const WeightEntries& entries, const WeightList& model) {
  std::set<std::string> extra;
  for (const auto& [name, entry] : entries) extra.insert(name);
  std::vector<std::string> missing;
  for (const NamedShape& weight : model.weights) {
    extra.erase(weight.name);
    const auto found = entries.find(weight.name);
    if (found == entries.end()) {
      missing.push_back(weight.name);
    } else if (auto error = check_entry(found->second, weight)) {
      return error;
    }
  }
  if (auto error = check_tied_head(entries, model.files)) return error;
  std::erase_if(extra, [&](const std::string& name) { return model.files.is_unused(name); });
  if (!missing.empty()) return missing_weights(missing, extra);
  if (extra.empty()) return std::nullopt;
  Error error{.field = *extra.begin(), .problem = "is in the files, but the model has no such weight"};
  if (extra.size() > 1) error.problem += fmt::format(", nor {} others, like {}", extra.size() - 1, *extra.rbegin());
  error.advice = "Are these the weights of another model?";
  return error;
}

}  // namespace

StoredPlace stored_place(const WeightPiece& piece, const FoundWeight& found, int64_t row, int64_t column) {
  if (!found.is_transposed)
    return {.first = row * piece.row_elements() + column, .row_stride = piece.row_elements(), .column_stride = 1};
  return {.first = column * piece.shape[0] + row, .row_stride = 1, .column_stride = piece.shape[0]};
}

Result<WeightEntries> find_weights(const WeightFolder& folder, const WeightList& model) {
  auto entries = entries_of(folder, model);
  if (entries) find_directions(model, *entries);
  std::optional<Error> error = entries ? check_entries(*entries, model) : std::optional(entries.error());
  if (!error) return entries;
  error->source = folder.path().string();
  return *std::move(error);
}

std::optional<Error> load_weights(const WeightFolder& folder, const std::vector<ParameterPtr>& parameters,
                                  const WeightFiles& files, const LoadProgress& progress) {
  return load_weight_parts(folder, list_weights(parameters, files), parameters, progress);
}

std::optional<Error> load_weight_parts(const WeightFolder& folder, const WeightList& model,
                                       const std::vector<ParameterPtr>& parameters, const LoadProgress& progress) {
  const at::NoGradGuard no_graph;
  const auto entries = find_weights(folder, model);
  if (!entries) return entries.error();

  std::vector<WeightCopy> copies;
  std::vector<const WeightPiece*> copied;
  for (const ParameterPtr& parameter : parameters) {
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
      if (count == 0) continue;
      const auto found = entries->find(piece.name);
      WEFT_CHECK(found != entries->end(), "{} is no weight of the model", piece.name);
      const FoundWeight& entry = found->second;
      const at::ScalarType type = *tensor_type(entry.info.type);
      const int64_t row = piece.row_elements();
      const int64_t column = piece.num_columns < 0 ? 0 : piece.first_column * (row / piece.shape[1]);
      const auto file = stored_place(piece, entry, piece.first_row, column);
      copies.push_back({.to = part,
                        .from = entry.bytes.data() + static_cast<size_t>(file.first) * c10::elementSize(type),
                        .type = type,
                        .row_elements = piece.held_row_elements(),
                        .row_stride = file.row_stride,
                        .column_stride = file.column_stride});
      copied.push_back(&piece);
    }
  }
  if (const auto bad = copy_with_progress(copies, progress)) {
    return Error{.source = folder.path().string(),
                 .field = copied[*bad]->name,
                 .problem = "holds a value that is not a finite number",
                 .advice = "The file is damaged, or the training that wrote it diverged."};
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
  const Place& first = found->second.front();
  return first.parameter->spec.pieces[first.piece].is_transposed ? whole.t().contiguous() : whole;
}

at::Tensor NamedWeights::in_files(std::string_view name, const WeightFiles& files,
                                  const std::function<at::Tensor(std::string_view)>& of) const {
  const auto stack = files.stack_of(name);
  if (!stack || places_.contains(name)) return of(name);
  std::vector<at::Tensor> parts;
  for (std::string part = numbered(*stack, 0); places_.contains(part); part = numbered(*stack, std::ssize(parts))) {
    parts.push_back(of(part));
    if (!parts.back().defined()) return {};
  }
  return parts.empty() ? at::Tensor() : at::stack(parts);
}

bool NamedWeights::is_turned(std::string_view name, const WeightFiles& files, std::span<const int64_t> shape) const {
  const auto stack = files.stack_of(name);
  const auto first = stack ? places_.find(numbered(*stack, 0)) : places_.end();
  if (first == places_.end() || shape.size() != 3) return false;
  const Place& place = first->second.front();
  const WeightPiece& piece = place.parameter->spec.pieces[place.piece];
  const auto [rows, columns] = std::pair(piece.shape[0], piece.row_elements());
  return rows != columns && (shape[1] == rows) == piece.is_transposed;
}

at::Tensor NamedWeights::file_value(std::string_view name, const WeightFiles& files) const {
  return in_files(name, files, [&](std::string_view each) { return value(each); });
}

at::Tensor NamedWeights::file_gradient(std::string_view name, const WeightFiles& files) const {
  return in_files(name, files, [&](std::string_view each) { return gradient(each); });
}

at::Tensor NamedWeights::value(std::string_view name) const {
  return assemble(name, [](const Parameter& parameter) { return parameter.value; });
}

at::Tensor NamedWeights::gradient(std::string_view name) const {
  return assemble(name, [](const Parameter& parameter) { return parameter.gradient; });
}

std::optional<Error> save_weights(const std::filesystem::path& folder, const FolderLayout& layout,
                                  const std::vector<ParameterPtr>& parameters, const WeightFiles& files) {
  const NamedWeights weights(parameters);
  bool are_turned = false;
  for (const FolderLayout::File& file : layout.files) {
    for (const WeightInfo& info : file.weights)
      are_turned |= weights.is_turned(files.name_of(info.name), files, info.shape);
  }
  at::Tensor kept;  // its bytes are being written
  return write_weight_folder(folder, layout, [&](const WeightInfo& info) -> Result<std::span<const std::byte>> {
    const auto type = tensor_type(info.type);
    const at::Tensor value = weights.file_value(files.name_of(info.name), files);
    if (!type || !value.defined()) {
      return Error{.source = folder.string(),
                   .field = info.name,
                   .problem = value.defined() ? fmt::format("is to be written as {}", name_of(info.type))
                                              : "is to be written, but the model has no such weight",
                   .advice = "Save with the layout of this model's own files."};
    }
    const bool is_stack = files.stack_of(files.name_of(info.name)).has_value() && value.dim() == 3;
    kept = (are_turned && is_stack ? value.transpose(1, 2) : value).to(*type).contiguous();
    return std::span(static_cast<const std::byte*>(kept.data_ptr()), kept.nbytes());
  });
}

}  // namespace weft
