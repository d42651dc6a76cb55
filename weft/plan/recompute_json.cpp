#include "weft/plan/recompute_json.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/text.h"

namespace weft {
namespace {

constexpr int64_t kMostBlocks = 1'000'000'000;

std::string word_of(BlockRecompute what, int64_t blocks) {
  return blocks == 1 ? std::string(name_of(what)) : fmt::format("{}*{}", name_of(what), blocks);
}

std::optional<RecomputeRun> parse_word(std::string_view word) {
  const size_t star = word.find('*');
  RecomputeRun run{.blocks = 1};
  if (star != std::string_view::npos) {
    const std::string_view count = word.substr(star + 1);
    const auto [end, problem] = std::from_chars(count.data(), count.data() + count.size(), run.blocks);
    const bool is_count = problem == std::errc() && end == count.data() + count.size();
    if (!is_count || run.blocks < 1 || run.blocks > kMostBlocks) return std::nullopt;
  }
  const auto names = block_recompute_names();
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != word.substr(0, star)) continue;
    run.what = static_cast<BlockRecompute>(i);
    return run;
  }
  return std::nullopt;
}

/// Reads what one chunk recomputes, or says why not.
class ChunkReader {
 public:
  ChunkReader(Fields& fields, const ModulePlan& module) : fields_(fields), module_(module) {}

  Recompute words(const Json& chunk, size_t rank, size_t place) {
    place_ = fmt::format("recompute[{}][{}]", rank, place);
    Recompute recompute;
    if (!chunk.is_array()) {
      complain(fmt::format("is {}", describe_value(chunk)));
      return recompute;
    }
    int64_t sum = 0;
    for (const Json& word : chunk) {
      const auto run = word.is_string() ? parse_word(word.get_ref<const std::string&>()) : std::nullopt;
      if (!run) {
        complain(fmt::format("holds {}", describe_value(word)));
        return recompute;
      }
      recompute.add(run->what, run->blocks);
      sum += run->blocks;
      if (sum > kMostBlocks) break;
    }
    if (sum > 0) check_sum(sum, rank, place, sum == layers_of(rank, place));
    return recompute;
  }

  Recompute counts(const Json& chunk, size_t rank, size_t place) {
    place_ = fmt::format("recompute[{}][{}]", rank, place);
    RecomputeCounts counts;
    if (!chunk.is_object()) {
      complain_of_counts(describe_value(chunk));
      return counts;
    }
    for (const auto& [key, value] : chunk.items()) {
      int64_t* count = key == "full" ? &counts.full : key == "selective" ? &counts.selective : nullptr;
      const bool is_count =
          value.is_number_integer() && value.get<int64_t>() >= 0 && value.get<int64_t>() <= kMostBlocks;
      if (count == nullptr || !is_count) {
        complain_of_counts(fmt::format("{} with {}", in_quotes(key), describe_value(value)));
        return {};
      }
      *count = value.get<int64_t>();
    }
    const int64_t sum = counts.full + counts.selective;
    check_sum(sum, rank, place, sum <= layers_of(rank, place));
    return counts;
  }

 private:
  /// What says nothing about layers is found elsewhere.
  int64_t layers_of(size_t rank, size_t place) const {
    const bool has_layers = rank < module_.layers.size() && place < module_.layers[rank].size();
    return has_layers ? module_.layers[rank][place] : -1;
  }

  void check_sum(int64_t sum, size_t rank, size_t place, bool fits) {
    const int64_t layers = layers_of(rank, place);
    if (sum <= kMostBlocks && (fits || layers < 0)) return;
    fields_.complain(place_,
                     layers < 0 ? fmt::format("adds up to more than {} blocks", kMostBlocks)
                                : fmt::format("adds up to {}, but the chunk has {}", counted(sum, "block"), layers),
                     "The blocks of a chunk's recomputation are its layers; none at all keeps everything.");
  }

  void complain(std::string found) {
    fields_.complain(
        place_, std::move(found) +
                    R"(; allowed is a list of "keep", "full" and "attention", each with a count or without, like )" +
                    R"(["full*2", "keep*14"])");
  }

  void complain_of_counts(const std::string& found) {
    fields_.complain(
        place_, fmt::format(R"(has {}; version 1 allows counts of blocks, like {{"full": 2, "selective": 0}})", found));
  }

  Fields& fields_;
  const ModulePlan& module_;
  std::string place_;
};

}  // namespace

Json recompute_to_json(const ModulePlan& module) {
  Json rows = Json::array();
  for (size_t rank = 0; rank < module.recompute.size(); ++rank) {
    Json& chunks = rows.emplace_back(Json::array());
    for (size_t chunk = 0; chunk < module.recompute[rank].size(); ++chunk) {
      const Recompute& recompute = module.recompute[rank][chunk];
      Json& words = chunks.emplace_back(Json::array());
      for (const RecomputeRun& run : recompute.runs()) words.push_back(word_of(run.what, run.blocks));
      const bool has_layers = rank < module.layers.size() && chunk < module.layers[rank].size();
      const int64_t kept = has_layers ? module.layers[rank][chunk] - recompute.num_blocks() : 0;
      if (!words.empty() && kept > 0) words.push_back(word_of(BlockRecompute::kKeep, kept));
    }
  }
  return rows;
}

void read_recompute(Fields& fields, int64_t version, ModulePlan& module) {
  const Json* raw = fields.raw("recompute");
  if (raw == nullptr) return;
  const auto bad = [&](const Json& found) {
    fields.complain(
        "recompute",
        fmt::format("is {}, a list per pipeline rank of a list per chunk is needed, like {}", describe_value(found),
                    version == 1 ? R"([[{"full": 2, "selective": 0}]])" : R"([[["full*2", "keep*14"]]])"));
  };
  if (!raw->is_array()) return bad(*raw);
  ChunkReader reader(fields, module);
  for (const Json& row : *raw) {
    if (!row.is_array()) return bad(row);
    const size_t rank = module.recompute.size();
    auto& chunks = module.recompute.emplace_back();
    for (const Json& chunk : row)
      chunks.push_back(version == 1 ? reader.counts(chunk, rank, chunks.size())
                                    : reader.words(chunk, rank, chunks.size()));
  }
}

}  // namespace weft
