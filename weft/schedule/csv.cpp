#include "weft/schedule/csv.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace weft {
namespace {

constexpr size_t kMostRanks = 16'384;
constexpr size_t kMostCells = 50'000'000;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\"");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\"") - first + 1);
}

Error bad_cell(const std::string& source, size_t line, size_t cell, std::string problem, std::string advice = "") {
  return {.source = source,
          .field = fmt::format("line {}, cell {}", line + 1, cell + 1),
          .problem = std::move(problem),
          .advice = std::move(advice)};
}

}  // namespace

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (const auto& row : schedule.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      text += to_text(row[i]);
    }
    text += '\n';
  }
  return text;
}

Result<Schedule> parse_csv(std::string_view text, const std::string& source) {
  Schedule schedule;
  std::map<int32_t, int32_t> rank_of_stage;
  size_t num_cells = 0;
  for (size_t line = 0; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view row_text = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (text.find_first_not_of(" \t\r\n\",") == std::string_view::npos && trimmed(row_text).empty())
      break;  // blank to the end
    if (line == kMostRanks)
      return Error{.source = source, .problem = fmt::format("has more than {} ranks", kMostRanks)};
    auto& row = schedule.rows.emplace_back();
    for (size_t cell = 0; !row_text.empty(); ++cell) {
      const size_t comma = std::min(row_text.find(','), row_text.size());
      const std::string_view word = trimmed(row_text.substr(0, comma));
      row_text.remove_prefix(std::min(comma + 1, row_text.size()));
      if (word.empty()) continue;
      Result<Action> action = parse_action(word);
      if (!action) return bad_cell(source, line, cell, action.error().problem, action.error().advice);
      if (++num_cells > kMostCells)
        return Error{.source = source, .problem = fmt::format("has more than {} actions", kMostCells)};
      if (is_encoder(action->kind)) {
        return bad_cell(source, line, cell, fmt::format("{} is an encoder's action", to_text(*action)),
                        "A schedule file holds the pipeline alone; encoders are in the plan.");
      }
      const auto [it, is_new] = rank_of_stage.try_emplace(action->stage, static_cast<int32_t>(line));
      if (it->second != static_cast<int32_t>(line)) {
        return bad_cell(source, line, cell,
                        fmt::format("stage {} is on rank {} and on rank {}", action->stage, it->second, line),
                        "A stage lives on one rank.");
      }
      schedule.num_microbatches = std::max(schedule.num_microbatches, action->microbatch + 1);
      row.push_back(*action);
    }
  }
  for (size_t rank = 0; rank < schedule.rows.size() && num_cells > 0; ++rank) {
    if (schedule.rows[rank].empty()) {
      return Error{.source = source,
                   .field = fmt::format("line {}", rank + 1),
                   .problem = "holds no actions, but every line is a rank of the pipeline",
                   .advice = "Remove it."};
    }
  }
  if (num_cells == 0)
    return Error{.source = source, .problem = "holds no actions", .advice = "One line per rank, like 0F0,0B0."};
  if (schedule.num_microbatches == 0) {
    return Error{
        .source = source, .problem = "holds no microbatch", .advice = "A stage runs at least one, like 0F0,0B0."};
  }
  for (const auto& [stage, rank] : rank_of_stage) {
    if (stage != schedule.num_stages()) {
      return Error{.source = source,
                   .problem = fmt::format("has a stage {} but no stage {}", stage, schedule.num_stages())};
    }
    schedule.rank_of_stage.push_back(rank);
  }
  // The validator keeps a cell for every stage and microbatch: a stray huge number must not make it enormous.
  if (static_cast<size_t>(schedule.num_microbatches) > num_cells) {
    return Error{
        .source = source,
        .problem = fmt::format("has a microbatch {} but only {} actions", schedule.num_microbatches - 1, num_cells)};
  }
  return schedule;
}

}  // namespace weft
