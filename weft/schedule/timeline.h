#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

enum class Stream : uint8_t { kCompute, kSend, kReceive, kReduce };

/// One action of one rank with its time, simulated or measured.
struct TimelineEvent {
  Action action;
  Stream stream = Stream::kCompute;
  double start_ms = 0;  ///< measured: after it had what it waited for of neighbours
  double end_ms = 0;
  double blocked_ms = 0;  ///< measured: of that, in communication of its own
};

/// Who did what when: events of each rank, in the order in which they started on their stream.
struct Timeline {
  std::vector<std::vector<TimelineEvent>> ranks;
  std::vector<std::string> encoder_names;
  std::vector<std::string> rank_names = {};  ///< for traces; empty: "rank 0" and so on
  double makespan_ms = 0;
};

/// Chrome's trace format, one JSON object, which Perfetto and chrome://tracing open: a process a rank, a thread a
/// stream.
std::string to_chrome_trace(const Timeline& timeline);

/// A picture of the compute streams with a legend and a time axis.
std::string to_svg(const Timeline& timeline, const std::string& title);

/// The compute streams in `columns` characters a rank; each cell shows what runs in its middle. With colours for a
/// terminal.
std::string to_terminal(const Timeline& timeline, int columns, bool with_colours);
/// Columns that the longest name of an action takes there.
size_t longest_label(const Timeline& timeline);

}  // namespace weft
