#include "weft/weights/foreign_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/paths.h"
#include "weft/base/product.h"
#include "weft/base/text.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLatest = "latest_checkpointed_iteration.txt";
constexpr const char* kRankPrefix = "mp_rank_";
constexpr size_t kMostDegrees = 3;

/// "mp_rank_01_003" as 1, 3.
std::optional<std::vector<int64_t>> ranks_in(const std::string& name) {
  if (!name.starts_with(kRankPrefix)) return std::nullopt;
  std::vector<int64_t> ranks;
  const char* at = name.data() + std::string_view(kRankPrefix).size();
  const char* const end = name.data() + name.size();
  while (true) {
    int64_t rank = 0;
    const auto [next, error] = std::from_chars(at, end, rank);
    if (error != std::errc() || rank < 0 || rank > 1 << 20 || ranks.size() == kMostDegrees) return std::nullopt;
    ranks.push_back(rank);
    if (next == end) return ranks;
    if (*next != '_') return std::nullopt;
    at = next + 1;
  }
}

std::string rank_folder(const std::vector<int64_t>& ranks) {
  std::string name = fmt::format("{}{:02}", kRankPrefix, ranks.front());
  for (size_t i = 1; i < ranks.size(); ++i) name += fmt::format("_{:03}", ranks[i]);
  return name;
}

void add_file(const fs::path& path, ForeignCheckpoint& checkpoint) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return;
  const auto size = fs::file_size(path, ignored);
  ++checkpoint.num_files;
  checkpoint.num_bytes += ignored ? 0 : static_cast<int64_t>(size);
}

/// Degrees are one more than the largest rank; every combination of ranks has a folder.
void set_degrees(const std::set<std::vector<int64_t>>& ranks, ForeignCheckpoint& checkpoint) {
  constexpr size_t kMostNamed = 8;
  checkpoint.degrees.assign(ranks.begin()->size(), 1);
  for (const std::vector<int64_t>& rank : ranks) {
    for (size_t i = 0; i < std::min(rank.size(), checkpoint.degrees.size()); ++i)
      checkpoint.degrees[i] = std::max(checkpoint.degrees[i], rank[i] + 1);
  }
  int64_t folders = 1;
  for (const int64_t degree : checkpoint.degrees) folders = product_of({folders, degree});
  checkpoint.num_missing = folders - std::count_if(ranks.begin(), ranks.end(), [&](const std::vector<int64_t>& rank) {
                             return rank.size() == checkpoint.degrees.size();
                           });
  const size_t named = std::min(kMostNamed, static_cast<size_t>(checkpoint.num_missing));
  for (int64_t place = 0; checkpoint.missing.size() < named; ++place) {
    std::vector<int64_t> rank(checkpoint.degrees.size());
    int64_t left = place;
    for (size_t i = rank.size(); i-- > 0;) {
      rank[i] = left % checkpoint.degrees[i];
      left /= checkpoint.degrees[i];
    }
    if (!ranks.contains(rank)) checkpoint.missing.push_back(rank_folder(rank));
  }
}

/// What one iteration's folder holds.
std::optional<ForeignCheckpoint> iteration_in(const fs::path& folder) {
  std::error_code ignored;
  ForeignCheckpoint checkpoint{.folder = folder, .iteration = folder.filename().string()};
  if (checkpoint.iteration.starts_with("iter_")) {
    checkpoint.iteration.erase(0, 5);
    checkpoint.iteration.erase(0, std::min(checkpoint.iteration.find_first_not_of('0'), checkpoint.iteration.size()));
    if (checkpoint.iteration.empty()) checkpoint.iteration = "0";
  }
  std::set<std::vector<int64_t>> ranks;
  bool has_parts = false;
  for (const fs::path& path : paths_in(folder, ignored)) {
    const std::string name = path.filename().string();
    if (const auto rank = ranks_in(name); rank && fs::is_directory(path, ignored)) {
      ranks.insert(*rank);
      for (const fs::path& file : paths_in(path, ignored)) add_file(file, checkpoint);
      continue;
    }
    if (!name.ends_with(".distcp")) continue;
    has_parts = true;
    add_file(path, checkpoint);
  }
  if (has_parts) {
    checkpoint.form = ForeignCheckpoint::Form::kDistributed;
    return checkpoint;
  }
  if (ranks.empty()) return std::nullopt;
  set_degrees(ranks, checkpoint);
  return checkpoint;
}

}  // namespace

Result<std::optional<ForeignCheckpoint>> find_foreign_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return std::optional<ForeignCheckpoint>();
  if (auto checkpoint = iteration_in(folder)) return checkpoint;
  const fs::path latest = folder / kLatest;
  if (!fs::exists(latest, ignored)) return std::optional<ForeignCheckpoint>();
  constexpr size_t kMostBytes = 100;
  WEFT_TRY(std::string iteration, read_file(latest, kMostBytes));
  while (!iteration.empty() && (iteration.back() == '\n' || iteration.back() == ' ' || iteration.back() == '\r'))
    iteration.pop_back();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(iteration.data(), iteration.data() + iteration.size(), number);
  const bool is_number = error == std::errc() && end == iteration.data() + iteration.size() && number >= 0;
  if (!is_number && iteration != "release")
    return Error{.source = latest.string(),
                 .problem = fmt::format("holds {}, a number or 'release' is needed", in_quotes(printable(iteration))),
                 .advice = "Give the folder of an iteration."};
  const fs::path newest = folder / (is_number ? fmt::format("iter_{:07}", number) : iteration);
  auto checkpoint = iteration_in(newest);
  if (!checkpoint)
    return Error{.source = latest.string(),
                 .problem = fmt::format("names {}, but there is no such folder with weights of ranks",
                                        in_quotes(newest.filename().string())),
                 .advice = "Give the folder of an iteration that is there."};
  return checkpoint;
}

std::string degrees_text(const ForeignCheckpoint& checkpoint) {
  std::string text;
  // Without a pipeline the second number is that of experts, and nothing tells the two apart.
  const char* const second = checkpoint.degrees.size() == 2 ? "pp (or ep)" : "pp";
  const char* const names[] = {"tp", second, "ep"};
  for (size_t i = 0; i < checkpoint.degrees.size(); ++i)
    text += fmt::format("{}{} {}", i > 0 ? " x " : "", names[i], checkpoint.degrees[i]);
  return text;
}

}  // namespace weft
