#include <algorithm>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/checkpoint/checkpoint_json.h"
#include "weft/checkpoint/crc32c.h"
#include "weft/checkpoint/stored_weights.h"
#include "weft/plan/plan_json.h"

using namespace weft;

namespace {

constexpr DocumentLimits kLimits{.max_bytes = size_t{1} << 20, .max_values = 100'000};

/// Where a shard is written to be mapped. It is there only while an input is tried.
const std::filesystem::path& folder() {
  static const std::filesystem::path made = [] {
    const std::filesystem::path memory = "/dev/shm";
    const std::filesystem::path around =
        std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
    return around / fmt::format("weft-fuzz-{}", getpid());
  }();
  return made;
}

/// What a change of the text would be refused for, made right: the plan's hash and, for the one file, size and
/// checksums of the shard. So the fuzzer gets to what is read after them.
void repair(Json& json, std::string_view shard) {
  if (!json.is_object()) return;
  if (json.contains("plan")) json["plan_hash"] = hash_of(json["plan"]);
  if (!json.contains("files") || !json["files"].is_array() || json["files"].empty()) return;
  Json& file = json["files"][0];
  if (!file.is_object()) return;
  if (file.contains("rank") && file["rank"].is_number_integer())
    file["name"] = fmt::format("rank-{:05}.safetensors", file["rank"].get<int64_t>());
  file["bytes"] = shard.size();
  if (file.contains("crc32c")) file["crc32c"] = fmt::format("{:08x}", crc32c(std::as_bytes(std::span(shard))));
  if (!file.contains("chunk_bytes") || !file["chunk_bytes"].is_number_unsigned()) return;
  const auto chunk = file["chunk_bytes"].get<uint64_t>();
  if (chunk == 0) return;
  std::string sums;
  for (size_t place = 0; place < shard.size();) {
    const std::string_view here = shard.substr(place, chunk);
    sums += fmt::format("{:08x}", crc32c(std::as_bytes(std::span(here))));
    place += here.size();
  }
  file["chunks"] = sums;
}

/// Every weight of it, whole: it is filled, or it is said why not.
void try_weights(const Checkpoint& checkpoint) {
  StoredWeights weights(checkpoint);
  for (const RoutedPart& part : weights.index().parts()) {
    const WeightPiece whole = whole_weight(part.piece.name, part.piece.shape);
    constexpr int64_t kMostElements = 100'000;
    if (whole.shape[0] > kMostElements || whole.num_elements() > kMostElements) continue;
    const auto flat = [&] { return at::full({whole.num_elements()}, 7.5, at::kDouble); };
    const AdamWState state{.master = flat(), .moment1 = flat(), .moment2 = flat()};
    if (const auto error = weights.fill(whole, {0, whole.num_elements()}, state))
      claim_good_message(Result<int>(*error));
  }
}

void try_checkpoint(const Document& document, std::string_view shard) {
  Result<Checkpoint> checkpoint = checkpoint_from(document);
  if (!checkpoint) return claim_good_message(checkpoint);
  const std::string text = checkpoint_to_text(*checkpoint);
  claim(!check_seal(text, "again"));
  const auto again = parse_document(text, "again", Syntax::kJson, kLimits);
  claim(again.ok());
  const auto read = checkpoint_from(*again);
  claim(read.ok() && checkpoint_to_text(*read) == text);
  if (checkpoint->files.size() != 1) return;
  checkpoint->folder = folder();
  std::filesystem::create_directory(folder());
  const std::filesystem::path file = folder() / checkpoint_file_name(checkpoint->files[0].rank);
  std::ofstream(file, std::ios::binary) << shard;
  if (const auto error = verify_checkpoint(*checkpoint)) claim_good_message(Result<int>(*error));
  try_weights(*checkpoint);
  std::filesystem::remove_all(folder());
}

}  // namespace

/// The text of checkpoint.json up to the end of its last line but one, and then a rank's file. What is read is written
/// and read again the same; weights come out of the file, or an error says why not.
int weft::fuzz_checkpoint(const uint8_t* data, size_t size) {
  const std::string_view input = as_text(data, size);
  constexpr std::string_view kEnd = "\n}\n";
  const size_t end = input.find(kEnd);
  const std::string_view text = input.substr(0, end == std::string_view::npos ? size : end + kEnd.size());
  const std::string_view shard = input.substr(text.size());
  Result<Document> document = parse_document(text, "input", Syntax::kJson, kLimits);
  if (!document) {
    claim_good_message(document);
    return 0;
  }
  try_checkpoint(*document, shard);
  repair(document->root, shard);
  try_checkpoint(*document, shard);
  return 0;
}
