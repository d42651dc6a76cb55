#include <algorithm>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/weights/safetensors_header.h"
#include "weft/weights/weight_index.h"

using namespace weft;

namespace {

/// Entries lie one after the other to the end of the file, and each has the size of its shape and type.
void claim_contiguous(const SafetensorsContent& content, std::span<const std::byte> file) {
  if (content.entries.empty()) return;
  const std::byte* next = content.entries.front().bytes.data();
  claim(next >= file.data() + kHeaderLengthBytes);
  for (const WeightEntry& entry : content.entries) {
    claim(entry.bytes.data() == next);
    claim(std::ssize(entry.bytes) == bytes_of(entry.info.type, entry.info.shape));
    next += entry.bytes.size();
  }
  claim(next == file.data() + file.size());
}

/// The file as we would write it, in memory.
std::string written(const SafetensorsContent& content) {
  std::vector<WeightInfo> weights;
  for (const WeightEntry& entry : content.entries) weights.push_back(entry.info);
  sort_for_safetensors(weights);
  const Result<std::string> front = safetensors_front(weights, content.metadata, "again");
  claim(front.ok() && front->size() % 8 == 0);
  std::string file = *front;
  for (const WeightInfo& weight : weights) {
    for (const WeightEntry& entry : content.entries) {
      if (entry.info.name != weight.name) continue;
      file.append(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
    }
  }
  return file;
}

void try_file(std::span<const std::byte> file) {
  const Result<SafetensorsContent> content = read_safetensors(file, "input");
  if (!content) return claim_good_message(content);
  claim_contiguous(*content, file);
  const std::string once = written(*content);
  const Result<SafetensorsContent> again = read_safetensors(std::as_bytes(std::span(once)), "again");
  claim(again.ok() && again->metadata == content->metadata && again->entries.size() == content->entries.size());
  claim_contiguous(*again, std::as_bytes(std::span(once)));
  claim(written(*again) == once);
}

/// The text up to the last brace as a header whose length is right, which the fuzzer rarely hits by itself, and the
/// rest as data.
std::string with_right_length(std::string_view text) {
  const uint64_t length = text.rfind('}') == std::string_view::npos ? text.size() : text.rfind('}') + 1;
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  return file.append(text);
}

void try_index(const uint8_t* data, size_t size) {
  const Result<Document> document = document_of(data, size);
  if (!document) return;
  const Result<WeightIndex> index = read_weight_index(*document);
  if (!index) return claim_good_message(index);
  const std::string text = to_text(*index);
  const Result<Document> again = parse_document(text, "again", Syntax::kJson, {.max_bytes = size_t{1} << 30});
  claim(again.ok());
  const Result<WeightIndex> index_again = read_weight_index(*again);
  claim(index_again.ok() && to_text(*index_again) == text && index_again->files() == index->files());
}

}  // namespace

/// A file that is read is contiguous, and written and read again the same. The text of an index likewise.
int weft::fuzz_safetensors(const uint8_t* data, size_t size) {
  try_index(data, size);
  try_file(std::as_bytes(std::span(data, size)));
  const std::string_view text = as_text(data, size);
  const std::string repaired = with_right_length(text.substr(std::min(text.find('{'), size)));
  try_file(std::as_bytes(std::span(repaired)));
  return 0;
}
