#include "weft/schedule/explicit_rows.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/schedule/parse_rows.h"

namespace weft {

ExplicitRows explicit_rows(Schedule schedule) {
  ExplicitRows rows{.schedule = std::move(schedule)};
  for (auto& row : rows.schedule.rows) {
    std::erase_if(row, [](const Action& action) { return !is_pipeline_compute(action.kind); });
    rows.splits_backward |= std::any_of(row.begin(), row.end(), [](const Action& action) {
      return action.kind == ActionKind::kBackwardInput || action.kind == ActionKind::kBackwardWeight;
    });
  }
  rows.chunks.resize(rows.schedule.rows.size(), 0);
  for (const int32_t rank : rows.schedule.rank_of_stage)
    rows.places.push_back({.rank = rank, .chunk = static_cast<int32_t>(rows.chunks[static_cast<size_t>(rank)]++)});
  return rows;
}

Result<ExplicitRows> parse_explicit_rows(std::span<const std::string> rows) {
  const RowsForm form{.separator = ' ', .place = [](size_t row, std::optional<size_t> cell) {
                        return cell ? fmt::format("rows[{}], action {}", row, *cell + 1) : fmt::format("rows[{}]", row);
                      }};
  const std::vector<std::string_view> texts(rows.begin(), rows.end());
  WEFT_TRY(Schedule schedule, parse_rows(texts, form));
  for (size_t row = 0; row < schedule.rows.size(); ++row) {
    const auto& actions = schedule.rows[row];
    const auto other = std::find_if(actions.begin(), actions.end(),
                                    [](const Action& action) { return !is_pipeline_compute(action.kind); });
    if (other == actions.end()) continue;
    return Error{.field = form.place(row, static_cast<size_t>(other - actions.begin())),
                 .problem = fmt::format("{} is not F, B, I or W; everything else follows from these", to_text(*other)),
                 .advice = "Leave it out."};
  }
  return explicit_rows(std::move(schedule));
}

std::vector<std::string> to_texts(const ExplicitRows& rows) {
  std::vector<std::string> texts;
  for (const auto& row : rows.schedule.rows) {
    std::string& text = texts.emplace_back();
    for (const Action& action : row) text += (text.empty() ? "" : " ") + to_text(action);
  }
  return texts;
}

}  // namespace weft
