#include "weft/validate/measurements.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/text.h"
#include "weft/base/trimmed.h"
#include "weft/spec/cluster.h"

namespace weft {
namespace {

constexpr int64_t kMostCount = 1 << 26;
constexpr size_t kMostBytes = 16u << 20;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// Puts a cell into a run; says what is needed where it cannot.
using CellReader = std::function<bool(std::string_view, TrainingRun&)>;

struct Column {
  std::string name;
  bool is_required;
  std::string needed;
  CellReader read;
};

Column count_column(std::string name, bool is_required, int64_t TrainingRun::*field, int64_t least, int64_t most) {
  return {std::move(name), is_required, fmt::format("a whole number from {} to {}", least, most),
          [=](std::string_view cell, TrainingRun& run) {
            int64_t& value = run.*field;
            const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
            return error == std::errc() && end == cell.data() + cell.size() && value >= least && value <= most;
          }};
}

template <typename T>
Column word_column(std::string name, std::vector<std::pair<std::string, T>> words, T TrainingRun::*field) {
  std::vector<std::string> names;
  for (const auto& [word, ignored] : words) names.push_back(word);
  return {std::move(name), false, joined_or(names), [=](std::string_view cell, TrainingRun& run) {
            for (const auto& [word, value] : words) {
              if (cell != word) continue;
              run.*field = value;
              return true;
            }
            return false;
          }};
}

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      count_column("num_gpus", true, &TrainingRun::num_devices, 1, kMostDevices),
      count_column("global_batch", true, &TrainingRun::global_batch, 1, kMostCount),
      count_column("micro_batch", true, &TrainingRun::micro_batch, 1, kMostCount),
      count_column("hidden_size", true, &TrainingRun::hidden_size, 1, 1 << 18),
      count_column("num_heads", true, &TrainingRun::num_heads, 1, 1 << 14),
      count_column("num_layers", true, &TrainingRun::num_layers, 1, 10'000),
      count_column("sequence_length", true, &TrainingRun::sequence_length, 1, kMostCount),
      count_column("tp", true, &TrainingRun::tp, 1, 1 << 14),
      count_column("dp", true, &TrainingRun::dp, 1, 1 << 20),
      count_column("pp", true, &TrainingRun::pp, 1, 10'000),
      {"iteration_ms", true, "a time in milliseconds above 0",
       [](std::string_view cell, TrainingRun& run) {
         const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), run.measured_ms);
         return error == std::errc() && end == cell.data() + cell.size() && std::isfinite(run.measured_ms) &&
                run.measured_ms > 0 && run.measured_ms < 1e9;
       }},
      word_column<Recomputation>(
          "recompute",
          {{"none", Recomputation::kNone}, {"selective", Recomputation::kSelective}, {"full", Recomputation::kFull}},
          &TrainingRun::recompute),
      count_column("zero", false, &TrainingRun::zero, 0, 3),
      count_column("vpp", false, &TrainingRun::vpp, 1, 1000),
      word_column<bool>("sequence_parallel", {{"true", true}, {"false", false}, {"1", true}, {"0", false}},
                        &TrainingRun::sequence_parallel),
      word_column<bool>("attention", {{"fused", true}, {"unfused", false}}, &TrainingRun::fused_attention),
      count_column("vocab_size", false, &TrainingRun::vocabulary, 1, kMostCount),
  };
  return all;
}

Result<std::vector<const Column*>> read_header(std::string_view line, const std::string& source) {
  std::vector<const Column*> header;
  std::vector<std::string> known;
  for (const Column& column : columns()) known.push_back(column.name);
  const auto bad = [&](std::string problem, std::string advice) {
    return Error{.source = source, .field = "line 1", .problem = std::move(problem), .advice = std::move(advice)};
  };
  for (const std::string_view cell : split(line, ',')) {
    const auto it = std::find_if(columns().begin(), columns().end(), [&](const Column& c) { return c.name == cell; });
    if (it == columns().end()) {
      return bad(fmt::format("has the column {}, which is not known", in_quotes(std::string(cell))),
                 fmt::format("Known are {}.{}", joined_or(known), did_you_mean(std::string(cell), known)));
    }
    if (std::find(header.begin(), header.end(), &*it) != header.end())
      return bad(fmt::format("has the column {} twice", it->name), "Remove one.");
    header.push_back(&*it);
  }
  for (const Column& column : columns()) {
    if (column.is_required && std::find(header.begin(), header.end(), &column) == header.end())
      return bad(fmt::format("lacks the column {}", column.name), "Add it: the first line names the columns.");
  }
  return header;
}

}  // namespace

Result<std::vector<TrainingRun>> parse_measurements(std::string_view text, const std::string& source) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<TrainingRun> runs;
  std::vector<const Column*> header;
  int64_t line_number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++line_number;
    if (line.empty()) continue;
    if (header.empty()) {
      WEFT_TRY(header, read_header(line, source));
      continue;
    }
    const std::string where = fmt::format("line {}", line_number);
    const std::vector<std::string_view> cells = split(line, ',');
    if (cells.size() != header.size()) {
      return Error{.source = source,
                   .field = where,
                   .problem = fmt::format("has {} cells, but the header names {} columns", cells.size(), header.size()),
                   .advice = "Correct the row."};
    }
    TrainingRun run{.source = fmt::format("{}: {}", source, where)};
    for (size_t i = 0; i < cells.size(); ++i) {
      if (header[i]->read(cells[i], run)) continue;
      return Error{.source = source,
                   .field = fmt::format("{}, {}", where, header[i]->name),
                   .problem = fmt::format("is {}, {} is needed", in_quotes(std::string(cells[i])), header[i]->needed),
                   .advice = "Correct the row."};
    }
    run.name = fmt::format("h{} L{} tp{} pp{} dp{} mbs{}", run.hidden_size, run.num_layers, run.tp, run.pp, run.dp,
                           run.micro_batch);
    runs.push_back(std::move(run));
  }
  if (runs.empty()) {
    return Error{.source = source,
                 .problem = header.empty() ? "is empty" : "has a header but no rows",
                 .advice = "Give a header line and one line for each measured run."};
  }
  return runs;
}

Result<std::vector<TrainingRun>> read_measurements(const std::filesystem::path& path) {
  WEFT_TRY(const std::string text, read_file(path, kMostBytes));
  return parse_measurements(text, path.string());
}

}  // namespace weft
