#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/result.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// More than anybody has ranks in one pipeline.
inline constexpr size_t kMostRows = 16'384;

/// How a text of rows is written.
struct RowsForm {
  char separator = ',';
  /// The field of an error: a row, or a cell of it.
  std::function<std::string(size_t row, std::optional<size_t> cell)> place;
};

/// A pipeline's rows, one text each. Which rank holds which stage, and the number of microbatches, follow from the
/// actions; empty cells are dropped.
Result<Schedule> parse_rows(std::span<const std::string_view> rows, const RowsForm& form);

}  // namespace weft
