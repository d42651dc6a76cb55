#include "weft/base/text.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "weft/base/utf8.h"

namespace weft {
namespace {

constexpr size_t kLongestGuess = 64;

/// Optimal string alignment distance: insertions, deletions, changes and swaps of neighbours cost 1.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last = last;
    last = row;
  }
  return last[b.size()];
}

/// The length of the well-formed, harmless UTF-8 character at the front, or 0: control characters, marks that reverse
/// the direction of text, and broken sequences have none.
size_t harmless_character(std::string_view text) {
  const size_t length = utf8_front(text).length;
  if (length == 0) return 0;
  const char32_t code = utf8_at(text, 0).code;
  const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x200e && code <= 0x200f) ||
                          (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return is_control ? 0 : length;
}

/// What differs only in case, or in - for _, is the same name.
std::string folded(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    const bool is_mark = c == '-' || c == '_' || c == ' ';
    if (!is_mark) plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

/// Names that people bring from other systems, with ours.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"lr", "learning_rate"},
    {"wd", "weight_decay"},
    {"warmup", "warmup_steps"},
    {"max_steps", "steps"},
    {"train_iters", "steps"},
    {"num_steps", "steps"},
    {"iterations", "steps"},
    {"interval", "interval_steps"},
    {"save_steps", "interval_steps"},
    {"save_interval", "interval_steps"},
    {"gpu", "cuda"},
    {"batch_size", "global_batch_samples"},
    {"global_batch", "global_batch_samples"},
    {"global_batch_size", "global_batch_samples"},
    {"micro_batch_size", "mbs"},
    {"micro_batch", "mbs"},
    {"num_microbatches", "microbatches"},
    {"micro_batches", "microbatches"},
    {"tensor_parallel", "tp"},
    {"tensor_model_parallel_size", "tp"},
    {"pipeline_parallel", "pp"},
    {"pipeline_model_parallel_size", "pp"},
    {"data_parallel", "dp"},
    {"context_parallel", "cp"},
    {"context_parallel_size", "cp"},
    {"expert_parallel", "ep"},
    {"expert_model_parallel_size", "ep"},
    {"zero_stage", "zero"},
    {"seq_len", "sequence_tokens"},
    {"seq_length", "sequence_tokens"},
    {"max_seq_len", "sequence_tokens"},
    {"gpus_per_node", "devices_per_node"},
    {"num_nodes", "nodes"},
    {"vit", "vision"},
    {"text", "llm"},
    {"bfloat16", "bf16"},
    {"float16", "fp16"},
    {"float32", "fp32"},
    {"adam", "adamw"},
    {"interleaved", "interleaved_1f1b"},
    {"vpp", "interleaved_1f1b"},
    {"zero_bubble", "zb_h1"},
    {"zbv", "zb_v"},
    {"--gpus", "--nodes"},
    {"--num-nodes", "--nodes"},
    {"--batch-size", "--global-batch"},
    {"--gbs", "--global-batch"},
    {"--output", "--out"},
    {"-o", "--out"},
    {"--timeout", "--time-limit"},
    {"--schedule", "--name"},
};

std::optional<std::string> known_by_alias(std::string_view typed, std::span<const std::string> known) {
  for (const auto& [alias, name] : kAliases) {
    if (folded(alias) != folded(typed)) continue;
    const auto found = std::find(known.begin(), known.end(), name);
    if (found != known.end()) return *found;
  }
  return std::nullopt;
}

/// Models that are not here and are called almost like some that are.
constexpr std::string_view kStrangers[] = {"llava", "gemma", "mistral", "minicpm"};

/// Whether so few letters differ that the one is a misspelling of the other. In a short word, another first letter or a
/// letter more makes another word (npu and cpu, tpp and pp).
bool is_misspelling(std::string_view typed, std::string_view word, size_t distance) {
  constexpr size_t kShort = 6, kShortest = 4;
  if (typed.size() >= kShort) return distance <= typed.size() / 3;
  if (distance != 1 || std::max(typed.size(), word.size()) < kShortest) return false;
  return typed.size() != word.size() || typed.front() == word.front();
}

}  // namespace

std::string printable(std::string_view text, size_t longest) {
  std::string shown;
  for (size_t i = 0; i < text.size();) {
    if (shown.size() >= longest) return shown + "...";
    const size_t length = harmless_character(text.substr(i));
    shown += length > 0 ? std::string(text.substr(i, length))
                        : fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
    i += std::max<size_t>(length, 1);
  }
  return shown;
}

std::string printable_line(std::string_view line) {
  return printable(line, std::string_view::npos);
}

std::string printable_lines(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    shown += printable_line(text.substr(0, end));
    if (end < text.size()) shown += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return shown;
}

bool is_printable(std::string_view text) {
  while (!text.empty()) {
    const size_t length = harmless_character(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string in_quotes(std::string_view text) {
  return "'" + printable(text) + "'";
}

std::string joined_or(std::span<const std::string> words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

std::optional<std::string> closest(std::string_view typed, std::span<const std::string> known) {
  if (typed.empty() || typed.size() > kLongestGuess) return std::nullopt;
  for (const std::string& word : known) {
    if (folded(word) == folded(typed)) return word;
  }
  if (auto name = known_by_alias(typed, known)) return name;
  const bool is_stranger =
      std::find(std::begin(kStrangers), std::end(kStrangers), folded(typed)) != std::end(kStrangers);
  if (typed.size() < 3 || is_stranger) return std::nullopt;
  std::optional<std::string> best;
  size_t best_distance = kLongestGuess;
  for (const std::string& word : known) {
    if (word.size() > kLongestGuess) continue;
    const size_t distance = edit_distance(typed, word);
    if (distance < best_distance && is_misspelling(typed, word, distance)) {
      best = word;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> known) {
  const std::optional<std::string> guess = closest(typed, known);
  return guess ? " Did you mean " + in_quotes(*guess) + "?" : "";
}

std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  const int64_t first = number < 0 ? 1 : 0;
  for (int64_t i = static_cast<int64_t>(digits.size()) - 3; i > first; i -= 3)
    digits.insert(static_cast<size_t>(i), ",");
  return digits;
}

}  // namespace weft
