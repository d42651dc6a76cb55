#include "weft/schedule/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

struct KindStyle {
  ActionKind kind;
  const char* label;
  const char* fill;     // SVG
  const char* stroke;   // SVG text and border
  int ansi_background;  // 256-colour terminal
};

constexpr std::array<KindStyle, 10> kStyles = {{
    {ActionKind::kForward, "F forward", "#bfdbfe", "#1e3a8a", 111},
    {ActionKind::kBackward, "B backward", "#bbf7d0", "#14532d", 114},
    {ActionKind::kBackwardInput, "I input gradient", "#99f6e4", "#134e4a", 79},
    {ActionKind::kBackwardWeight, "W weight gradient", "#ddd6fe", "#4c1d95", 183},
    {ActionKind::kEncodeForward, "EF encoder forward", "#fde68a", "#78350f", 221},
    {ActionKind::kEncodeBackward, "EB encoder backward", "#fdba74", "#7c2d12", 215},
    {ActionKind::kReduceGrad, "reduce gradients", "#fecdd3", "#881337", 217},
    {ActionKind::kUpdate, "update", "#e5e7eb", "#374151", 250},
    {ActionKind::kEncodeReduce, "ER encoder's reduction", "#fecdd3", "#881337", 217},
    {ActionKind::kEncodeUpdate, "EU encoder's update", "#d6d3d1", "#44403c", 249},
}};

const KindStyle* style_of(ActionKind kind) {
  for (const KindStyle& style : kStyles) {
    if (style.kind == kind) return &style;
  }
  return nullptr;
}

const char* name_of(Stream stream) {
  switch (stream) {
    case Stream::kCompute:
      return "compute";
    case Stream::kSend:
      return "send";
    case Stream::kReceive:
      return "receive";
    case Stream::kReduce:
      return "reduce";
  }
  return "";
}

std::vector<const KindStyle*> used_styles(const Timeline& timeline) {
  std::array<bool, kNumActionKinds> used{};
  for (const auto& rank : timeline.ranks) {
    for (const TimelineEvent& event : rank) used[static_cast<size_t>(event.action.kind)] = true;
  }
  std::vector<const KindStyle*> styles;
  for (const KindStyle& style : kStyles) {
    if (used[static_cast<size_t>(style.kind)]) styles.push_back(&style);
  }
  return styles;
}

/// For each stage in the events its position among the rank's stages.
std::map<int32_t, size_t> chunks_of(const std::vector<TimelineEvent>& events) {
  std::map<int32_t, size_t> chunks;
  for (const TimelineEvent& event : events) {
    if (!is_encoder(event.action.kind)) chunks.emplace(event.action.stage, 0);
  }
  size_t next = 0;
  for (auto& [stage, chunk] : chunks) chunk = next++;
  return chunks;
}

/// What tells an action of a row apart: with its stage where the row has several of one microbatch.
std::string label_of(const Action& action, size_t num_chunks) {
  const bool needs_stage = num_chunks > 1 && !is_encoder(action.kind) && action.microbatch >= 0;
  if (action.microbatch < 0) return std::string(name_of(action.kind));
  return needs_stage ? to_text(action) : fmt::format("{}{}", name_of(action.kind), action.microbatch);
}

/// The whole's width in time. Steps too short to divide by, which only costs that mean nothing make, count as empty:
/// quotients would be infinite.
double drawn_ms(const Timeline& timeline) {
  constexpr double kShortestMs = 1e-100;
  return timeline.makespan_ms < kShortestMs ? 0 : timeline.makespan_ms;
}

/// 1, 2 or 5 times a power of ten, so that at most `most` of them make up the whole.
double round_step(double whole, int most) {
  if (!(whole > 0)) return 1;
  const double power = std::pow(10.0, std::floor(std::log10(whole / most)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (whole / (factor * power) <= most) return factor * power;
  }
  return 10 * power;
}

/// Room for all boxes of the longest row, within what a page shows and a viewer handles.
double picture_width(const Timeline& timeline) {
  constexpr double kBoxWidth = 22, kNarrowest = 700, kWidest = 3200;
  size_t most_boxes = 0;
  for (const auto& rank : timeline.ranks) {
    const auto boxes = std::count_if(rank.begin(), rank.end(), [](const TimelineEvent& event) {
      return event.stream == Stream::kCompute && event.end_ms > event.start_ms;
    });
    most_boxes = std::max(most_boxes, static_cast<size_t>(boxes));
  }
  return std::clamp(kBoxWidth * static_cast<double>(most_boxes), kNarrowest, kWidest);
}

std::string escaped(const std::string& text) {
  std::string out;
  // XML has no control characters, however they are written.
  for (const char c : is_printable(text) ? text : printable(text, 4 * text.size())) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string to_chrome_trace(const Timeline& timeline) {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  bool is_first = true;
  const auto add = [&](const std::string& event) {
    text += (is_first ? "" : ",\n") + event;
    is_first = false;
  };
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const std::string name =
        rank < timeline.rank_names.size() ? timeline.rank_names[rank] : fmt::format("rank {}", rank);
    add(fmt::format(R"({{"name": "process_name", "ph": "M", "pid": {}, "args": {{"name": "{}"}}}})", rank, name));
    add(fmt::format(R"({{"name": "process_sort_index", "ph": "M", "pid": {0}, "args": {{"sort_index": {0}}}}})", rank));
    std::array<bool, 4> named{};
    for (const TimelineEvent& event : timeline.ranks[rank]) {
      const auto stream = static_cast<size_t>(event.stream);
      if (!named[stream]) {
        named[stream] = true;
        add(fmt::format(R"({{"name": "thread_name", "ph": "M", "pid": {}, "tid": {}, "args": {{"name": "{}"}}}})", rank,
                        stream, name_of(event.stream)));
      }
      // Chrome's times are microseconds.
      add(fmt::format(
          R"({{"name": "{}", "cat": "{}", "ph": "X", "pid": {}, "tid": {}, "ts": {:.6f}, "dur": {:.6f}, "args": {{"stage": {}, "microbatch": {}}}}})",
          to_text(event.action), name_of(event.action.kind), rank, stream, event.start_ms * 1e3,
          (event.end_ms - event.start_ms) * 1e3, event.action.stage, event.action.microbatch));
    }
  }
  return text + "\n]}\n";
}

std::string to_svg(const Timeline& timeline, const std::string& title) {
  constexpr double kLeft = 64, kTop = 64, kRowHeight = 30, kGap = 6, kRight = 40;
  const double width = picture_width(timeline);
  const double whole_ms = drawn_ms(timeline);
  const double scale = whole_ms > 0 ? width / whole_ms : 0;
  const double height = kTop + static_cast<double>(timeline.ranks.size()) * (kRowHeight + kGap) + 40;
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{2}" y="22" font-size="15" font-weight="bold" fill="#111827">{3}</text>
)",
      kLeft + width + kRight, height, kLeft, escaped(title));
  double x = kLeft;
  for (const KindStyle* style : used_styles(timeline)) {
    svg += fmt::format(
        R"(<rect x="{0:.1f}" y="34" width="14" height="14" rx="2" fill="{1}" stroke="{2}"/><text x="{3:.1f}" y="46" fill="#374151">{4}</text>
)",
        x, style->fill, style->stroke, x + 19, style->label);
    x += 30 + 7.0 * static_cast<double>(std::string_view(style->label).size());
  }
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const double y = kTop + static_cast<double>(rank) * (kRowHeight + kGap);
    svg += fmt::format(
        R"(<text x="{:.0f}" y="{:.1f}" text-anchor="end" fill="#374151">rank {}</text><rect x="{}" y="{:.1f}" width="{:.1f}" height="{}" fill="#f3f4f6"/>
)",
        kLeft - 8, y + 19, rank, kLeft, y, width, kRowHeight);
    const std::map<int32_t, size_t> chunks = chunks_of(timeline.ranks[rank]);
    for (const TimelineEvent& event : timeline.ranks[rank]) {
      const KindStyle* style = style_of(event.action.kind);
      if (event.stream != Stream::kCompute || style == nullptr) continue;
      // Later chunks of a rank are paler, so that two passes of one microbatch can be told apart.
      const size_t chunk = is_encoder(event.action.kind) ? 0 : chunks.at(event.action.stage);
      const double opacity = 1.0 / (1.0 + 0.7 * static_cast<double>(chunk));
      const double left = kLeft + event.start_ms * scale;
      const double wide = (event.end_ms - event.start_ms) * scale;
      svg += fmt::format(
          R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{}" rx="2" fill="{}" fill-opacity="{:.2f}" stroke="{}" stroke-width="0.6"><title>{} {:.3f} to {:.3f} ms</title></rect>)",
          left, y, std::max(wide, 0.1), kRowHeight, style->fill, opacity, style->stroke, to_text(event.action),
          event.start_ms, event.end_ms);
      const std::string label = event.action.microbatch >= 0 ? std::to_string(event.action.microbatch) : "";
      if (wide > 7.0 * static_cast<double>(label.size())) {
        svg += fmt::format(R"(<text x="{:.2f}" y="{:.1f}" text-anchor="middle" fill="{}">{}</text>)", left + wide / 2,
                           y + 19, style->stroke, label);
      }
      svg += '\n';
    }
  }
  const double base = kTop + static_cast<double>(timeline.ranks.size()) * (kRowHeight + kGap) + 16;
  constexpr int kMostTicks = 10;
  const double step_ms = round_step(whole_ms, kMostTicks);
  const auto num_ticks = static_cast<int>(std::floor(whole_ms / step_ms + 1e-9));
  for (int tick = 0; tick <= num_ticks; ++tick) {
    const double at = tick * step_ms;
    svg += fmt::format(
        R"(<path d="M{0:.1f} {1:.1f}v4" stroke="#6b7280"/><text x="{0:.1f}" y="{2:.1f}" text-anchor="middle" fill="#6b7280">{3:.6g}{4}</text>
)",
        kLeft + at * scale, base - 16, base, at, tick == num_ticks ? " ms" : "");
  }
  return svg + "</svg>\n";
}

std::string to_terminal(const Timeline& timeline, int columns, bool with_colours) {
  std::string text;
  const double per_column = drawn_ms(timeline) / std::max(1, columns);
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    std::string line = fmt::format("{:>5} ", fmt::format("r{}", rank));
    std::string cells(static_cast<size_t>(columns), ' ');
    std::vector<const KindStyle*> styles(static_cast<size_t>(columns), nullptr);
    const size_t num_chunks = chunks_of(timeline.ranks[rank]).size();
    for (const TimelineEvent& event : timeline.ranks[rank]) {
      const KindStyle* style = style_of(event.action.kind);
      if (event.stream != Stream::kCompute || style == nullptr || per_column <= 0) continue;
      const auto first = static_cast<int>(std::ceil(event.start_ms / per_column - 0.5));
      const auto end = std::min(columns, static_cast<int>(std::ceil(event.end_ms / per_column - 0.5)));
      std::string label = label_of(event.action, num_chunks);
      if (static_cast<int>(label.size()) > end - first) label = std::to_string(event.action.microbatch);
      if (static_cast<int>(label.size()) > end - first) label = std::string(name_of(event.action.kind)).substr(0, 1);
      for (int c = std::max(0, first); c < end; ++c) {
        const auto at = static_cast<size_t>(c);
        styles[at] = style;
        cells[at] = static_cast<size_t>(c - first) < label.size() ? label[static_cast<size_t>(c - first)]
                                                                  : (with_colours ? ' ' : '-');
      }
    }
    const KindStyle* current = nullptr;
    for (size_t c = 0; c < cells.size(); ++c) {
      if (with_colours && styles[c] != current) {
        line += styles[c] == nullptr ? "\033[0m" : fmt::format("\033[48;5;{}m\033[30m", styles[c]->ansi_background);
        current = styles[c];
      }
      line += styles[c] == nullptr ? '.' : cells[c];
    }
    if (current != nullptr) line += "\033[0m";
    text += line + "\n";
  }
  text += "      ";
  for (const KindStyle* style : used_styles(timeline)) {
    text += with_colours ? fmt::format("\033[48;5;{}m\033[30m {} \033[0m ", style->ansi_background, style->label)
                         : fmt::format("{}  ", style->label);
  }
  text += ". idle\n";
  const bool shows_stages = std::any_of(timeline.ranks.begin(), timeline.ranks.end(),
                                        [](const auto& rank) { return chunks_of(rank).size() > 1; });
  return shows_stages ? text + "      2F0: the forward of microbatch 0 through stage 2\n" : text;
}

size_t longest_label(const Timeline& timeline) {
  size_t longest = 0;
  for (const auto& rank : timeline.ranks) {
    const size_t num_chunks = chunks_of(rank).size();
    for (const TimelineEvent& event : rank) {
      if (event.stream == Stream::kCompute && style_of(event.action.kind) != nullptr)
        longest = std::max(longest, label_of(event.action, num_chunks).size());
    }
  }
  return longest;
}

}  // namespace weft
