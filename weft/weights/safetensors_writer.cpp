#include "weft/weights/safetensors_writer.h"

#include <unordered_map>

#include "weft/base/check.h"
#include "weft/weights/safetensors_header.h"

namespace weft {

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path, std::vector<WeightInfo> weights,
                                                    const WeightMetadata& metadata) {
  sort_for_safetensors(weights);
  WEFT_TRY(const std::string front, safetensors_front(weights, metadata, path.string()));
  int64_t data_bytes = 0;
  for (const WeightInfo& weight : weights) data_bytes += *bytes_of(weight.type, weight.shape);
  WEFT_TRY(NewFile file, NewFile::create(path, std::ssize(front) + data_bytes));
  if (auto error = file.append(std::as_bytes(std::span(front)))) return *std::move(error);
  return SafetensorsWriter(std::move(file), std::move(weights), data_bytes);
}

std::optional<Error> SafetensorsWriter::append(std::span<const std::byte> bytes) {
  WEFT_CHECK(std::ssize(bytes) <= missing_bytes_, "{} bytes for weights that lack {}", bytes.size(), missing_bytes_);
  missing_bytes_ -= std::ssize(bytes);
  return file_.append(bytes);
}

std::optional<Error> SafetensorsWriter::finish() {
  WEFT_CHECK(missing_bytes_ == 0, "a weight file without {} of its bytes", missing_bytes_);
  return file_.finish();
}

std::optional<Error> write_safetensors(const std::filesystem::path& path, std::span<const WeightEntry> entries,
                                       const WeightMetadata& metadata) {
  std::vector<WeightInfo> weights;
  std::unordered_map<std::string_view, const WeightEntry*> by_name;
  for (const WeightEntry& entry : entries) {
    weights.push_back(entry.info);
    by_name.emplace(entry.info.name, &entry);
  }
  auto writer = SafetensorsWriter::create(path, std::move(weights), metadata);
  if (!writer) return std::move(writer).error();
  for (const WeightInfo& weight : writer->weights()) {
    const WeightEntry& entry = *by_name.at(weight.name);
    WEFT_CHECK(std::ssize(entry.bytes) == *bytes_of(weight.type, weight.shape), "{} has {} bytes", weight.name,
               entry.bytes.size());
    if (auto error = writer->append(entry.bytes)) return error;
  }
  return writer->finish();
}

}  // namespace weft
