#include "weft/profile/profile_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/text.h"
#include "weft/base/trimmed.h"
#include "weft/profile/measurement_fields.h"

namespace weft {
namespace {

constexpr size_t kMostBytes = 16u << 20;

/// What a column's cells hold.
enum class CellKind { kNumber, kFlag, kText };

struct Column {
  std::string name;
  CellKind kind = CellKind::kNumber;
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {{"module", CellKind::kText},
                                          {"block", CellKind::kText},
                                          {"tp"},
                                          {"cp"},
                                          {"cp_ulysses"},
                                          {"ep"},
                                          {"sequence_parallel", CellKind::kFlag},
                                          {"experts_over_tp", CellKind::kFlag},
                                          {"attention", CellKind::kText},
                                          {"busy_ranks"},
                                          {"tokens"},
                                          {"sequence_tokens"},
                                          {"forward_ms"},
                                          {"backward_input_ms"},
                                          {"backward_weight_ms"},
                                          {"attention_ms"},
                                          {"kept_bytes"},
                                          {"forward_peak_bytes"},
                                          {"backward_peak_bytes"},
                                          {"link", CellKind::kText},
                                          {"collective", CellKind::kText},
                                          {"ranks"},
                                          {"ranks_per_node"},
                                          {"bytes"},
                                          {"elements"},
                                          {"ms"},
                                          {"runs"},
                                          {"spread_percent"}};
  return all;
}

/// Takes a cell in quotes from the front; nothing where they are not closed.
std::optional<std::string> take_quoted(std::string_view& line) {
  std::string cell;
  for (size_t i = 1; i < line.size(); ++i) {
    if (line[i] != '"') {
      cell += line[i];
    } else if (i + 1 < line.size() && line[i + 1] == '"') {
      cell += line[i++];
    } else {
      line = trimmed(line.substr(i + 1));
      return cell;
    }
  }
  return std::nullopt;
}

/// The cells of a line; nothing where quotes stand elsewhere than around a whole cell. They hold commas together, and
/// two of them stand for one.
std::optional<std::vector<std::string>> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  while (true) {
    line = trimmed(line);
    if (line.starts_with('"')) {
      const auto cell = take_quoted(line);
      if (!cell || (!line.empty() && line.front() != ',')) return std::nullopt;
      cells.emplace_back(trimmed(*cell));
    } else {
      const std::string_view cell = line.substr(0, line.find(','));
      if (cell.find('"') != std::string_view::npos) return std::nullopt;
      cells.emplace_back(trimmed(cell));
      line.remove_prefix(cell.size());
    }
    if (line.empty()) return cells;
    line.remove_prefix(1);
  }
}

class TableReader {
 public:
  explicit TableReader(const std::string& source) : source_(source), profile_{.source = source} {}

  Result<Profile> read(std::string_view text) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view line = trimmed(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      ++line_number_;
      if (line.empty()) continue;
      if (auto error = header_.empty() ? read_header(line) : read_row(line)) return *std::move(error);
    }
    if (profile_.blocks.empty() && profile_.links.empty() && profile_.updates.empty()) {
      return Error{.source = source_,
                   .problem = header_.empty() ? "is empty" : "has a header but no rows",
                   .advice = "Give a line that names the columns, and one line for each measurement."};
    }
    return std::move(profile_);
  }

 private:
  Error bad(std::string column, std::string problem, std::string advice) const {
    const std::string where =
        column.empty() ? fmt::format("line {}", line_number_) : fmt::format("line {}, {}", line_number_, column);
    return {.source = source_, .field = where, .problem = std::move(problem), .advice = std::move(advice)};
  }

  Error bad_quotes() const {
    return bad("", "has a quote inside a cell, or one that is not closed",
               "Put quotes around the whole cell, and write a quote in it as two.");
  }

  std::optional<Error> read_header(std::string_view line) {
    std::vector<std::string> known;
    for (const Column& column : columns()) known.push_back(column.name);
    const auto cells = cells_of(line);
    if (!cells) return bad_quotes();
    for (const std::string& cell : *cells) {
      const auto found =
          std::find_if(columns().begin(), columns().end(), [&](const Column& column) { return column.name == cell; });
      if (found == columns().end()) {
        return bad("", fmt::format("has the column {}, which is not known", in_quotes(cell)),
                   fmt::format("The first line names columns by the fields of a profile: {}.{}", joined_or(known),
                               did_you_mean(cell, known)));
      }
      if (std::find(header_.begin(), header_.end(), &*found) != header_.end())
        return bad("", fmt::format("has the column {} twice", cell), "Remove one.");
      header_.push_back(&*found);
    }
    return std::nullopt;
  }

  std::optional<Error> read_row(std::string_view line) {
    const auto split = cells_of(line);
    if (!split) return bad_quotes();
    const std::vector<std::string>& cells = *split;
    if (cells.size() != header_.size()) {
      return bad("", fmt::format("has {} cells, but the header names {} columns", cells.size(), header_.size()),
                 "Leave cells that say nothing empty.");
    }
    Json row = Json::object();
    for (size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].empty()) continue;
      const std::optional<Json> value = value_of(cells[i], header_[i]->kind);
      if (!value) {
        return bad(header_[i]->name,
                   fmt::format("is {}, {} is needed", in_quotes(cells[i]),
                               header_[i]->kind == CellKind::kFlag ? "true or false" : "a number"),
                   "Correct the cell.");
      }
      row[header_[i]->name] = *value;
    }
    const Document document{.source = "", .root = std::move(row)};
    Findings findings("");
    Fields fields(document, findings);
    const std::vector<std::string> given = kinds_in(fields);
    if (given.size() != 1) {
      return bad("",
                 given.empty() ? "has neither a block nor a link nor elements"
                               : fmt::format("has {} and {}", given[0], given[1]),
                 "Each row measures one thing: a block, a link, or an update of so many elements.");
    }
    if (given[0] == "block") profile_.blocks.push_back(read_block(fields));
    if (given[0] == "link") profile_.links.push_back(read_link(fields));
    if (given[0] == "elements") profile_.updates.push_back(read_update(fields));
    fields.reject_unknown();
    if (const auto& error = findings.first())
      return bad(error->field, error->problem, error->advice.empty() ? "Correct the row." : error->advice);
    return std::nullopt;
  }

  static std::vector<std::string> kinds_in(const Fields& fields) {
    std::vector<std::string> kinds;
    for (const char* key : {"block", "link", "elements"}) {
      if (fields.has(key)) kinds.emplace_back(key);
    }
    return kinds;
  }

  /// Whole numbers stay whole.
  static std::optional<Json> value_of(const std::string& cell, CellKind kind) {
    if (kind == CellKind::kText) return Json(cell);
    if (kind == CellKind::kFlag) {
      if (cell == "true" || cell == "1") return Json(true);
      if (cell == "false" || cell == "0") return Json(false);
      return std::nullopt;
    }
    const char* end = cell.data() + cell.size();
    int64_t whole = 0;
    if (const auto [rest, error] = std::from_chars(cell.data(), end, whole); error == std::errc() && rest == end)
      return Json(whole);
    double number = 0;
    if (const auto [rest, error] = std::from_chars(cell.data(), end, number);
        error == std::errc() && rest == end && std::isfinite(number))
      return Json(number);
    return std::nullopt;
  }

  const std::string& source_;
  Profile profile_;
  std::vector<const Column*> header_;
  int64_t line_number_ = 0;
};

}  // namespace

Result<Profile> parse_profile_table(std::string_view text, const std::string& source) {
  return TableReader(source).read(text);
}

Result<Profile> read_profile_table(const std::filesystem::path& path) {
  WEFT_TRY(const std::string text, read_file(path, kMostBytes));
  return parse_profile_table(text, path.string());
}

}  // namespace weft
