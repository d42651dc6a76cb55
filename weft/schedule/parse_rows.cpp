#include "weft/schedule/parse_rows.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "weft/base/counted.h"

namespace weft {
namespace {

constexpr size_t kMostCells = 50'000'000;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\"");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\"") - first + 1);
}

/// Reads row by row.
class RowsParser {
 public:
  explicit RowsParser(const RowsForm& form) : form_(form) {}

  std::optional<Error> add(std::string_view text) {
    const size_t row = schedule_.rows.size();
    schedule_.rows.emplace_back();
    for (size_t cell = 0; !text.empty(); ++cell) {
      const size_t end = std::min(text.find(form_.separator), text.size());
      const std::string_view word = trimmed(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      if (word.empty()) continue;
      if (auto error = add_action(word, row, cell)) return error;
    }
    return std::nullopt;
  }

  Result<Schedule> end() {
    for (size_t row = 0; row < schedule_.rows.size() && num_cells_ > 0; ++row) {
      if (schedule_.rows[row].empty()) {
        return Error{.field = form_.place(row, std::nullopt),
                     .problem = "holds no actions, but every row is a rank of the pipeline",
                     .advice = "Remove it."};
      }
    }
    if (num_cells_ == 0) return Error{.problem = "holds no actions", .advice = "One row per rank, like 0F0, 0B0."};
    if (schedule_.num_microbatches == 0)
      return Error{.problem = "holds no microbatch", .advice = "A stage runs at least one, like 0F0, 0B0."};
    for (const auto& [stage, rank] : rank_of_stage_) {
      if (stage != schedule_.num_stages())
        return Error{.problem = fmt::format("has a stage {} but no stage {}", stage, schedule_.num_stages())};
      schedule_.rank_of_stage.push_back(rank);
    }
    // Whoever reads the rows keeps a cell for every stage and microbatch: a stray number must not make that enormous.
    const auto num_forwards =
        static_cast<size_t>(schedule_.num_stages()) * static_cast<size_t>(schedule_.num_microbatches);
    if (num_forwards > num_cells_) {
      return Error{
          .problem = fmt::format("has a microbatch {} but only {} actions; {} × {} need a forward each",
                                 schedule_.num_microbatches - 1, num_cells_, counted(schedule_.num_stages(), "stage"),
                                 counted(schedule_.num_microbatches, "microbatch")),
          .advice = "Correct the number, or give every stage its actions of every microbatch."};
    }
    return std::move(schedule_);
  }

 private:
  std::optional<Error> add_action(std::string_view word, size_t row, size_t cell) {
    const auto bad = [&](std::string problem, std::string advice) {
      return Error{.field = form_.place(row, cell), .problem = std::move(problem), .advice = std::move(advice)};
    };
    Result<Action> action = parse_action(word);
    if (!action) return bad(action.error().problem, action.error().advice);
    if (++num_cells_ > kMostCells) return Error{.problem = fmt::format("has more than {} actions", kMostCells)};
    if (is_encoder(action->kind)) {
      return bad(fmt::format("{} is an encoder's action", to_text(*action)),
                 "Rows of a schedule hold the pipeline alone; encoders are in the plan.");
    }
    const auto rank = static_cast<int32_t>(row);
    const auto [it, is_new] = rank_of_stage_.try_emplace(action->stage, rank);
    if (it->second != rank) {
      return bad(fmt::format("stage {} is on rank {} and on rank {}", action->stage, it->second, rank),
                 "A stage lives on one rank.");
    }
    schedule_.num_microbatches = std::max(schedule_.num_microbatches, action->microbatch + 1);
    schedule_.rows.back().push_back(*action);
    return std::nullopt;
  }

  const RowsForm& form_;
  Schedule schedule_;
  std::map<int32_t, int32_t> rank_of_stage_;
  size_t num_cells_ = 0;
};

}  // namespace

Result<Schedule> parse_rows(std::span<const std::string_view> rows, const RowsForm& form) {
  if (rows.size() > kMostRows) return Error{.problem = fmt::format("has more than {} ranks", kMostRows)};
  RowsParser parser(form);
  for (const std::string_view row : rows) {
    if (auto error = parser.add(row)) return *std::move(error);
  }
  return parser.end();
}

}  // namespace weft
