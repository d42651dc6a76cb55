#include "weft/schedule/action.h"

#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, kNumActionKinds> kNames = {
    "F",  "B",  "I",  "W",      "SEND_F", "RECV_F", "SEND_B", "RECV_B",  "REDUCE_GRAD", "UPDATE",  "EF",
    "EB", "ER", "EU", "SEND_R", "RECV_R", "SEND_G", "RECV_G", "SEND_EF", "RECV_EF",     "SEND_EB", "RECV_EB"};

/// Indices count from 0, and the number of stages or microbatches is one more.
constexpr int32_t kMostIndex = INT32_MAX - 1;

/// Takes the digits at the front of `word`, nothing when there are none or too many.
std::optional<int32_t> take_number(std::string_view& word) {
  int32_t number = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (code != std::errc() || word.starts_with('-') || number > kMostIndex) return std::nullopt;
  word.remove_prefix(static_cast<size_t>(end - word.data()));
  return number;
}

}  // namespace

Action sent_by(const Action& transfer) {
  const auto& [kind, stage, microbatch] = transfer;
  if (kind == ActionKind::kRecvForward) return {ActionKind::kSendForward, stage - 1, microbatch};
  if (kind == ActionKind::kRecvBackward) return {ActionKind::kSendBackward, stage + 1, microbatch};
  return transfer;
}

std::string_view name_of(ActionKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

std::string to_text(const Action& action) {
  std::string text = std::to_string(action.stage);
  text += name_of(action.kind);
  if (has_microbatch(action.kind)) text += std::to_string(action.microbatch);
  return text;
}

Result<Action> parse_action(std::string_view word) {
  const Error error{.problem = fmt::format("{} is not an action", in_quotes(word)),
                    .advice =
                        "An action is a stage, a kind (F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, REDUCE_GRAD, "
                        "UPDATE, EF, EB, ER, EU, SEND_R, RECV_R, SEND_G, RECV_G, SEND_EF, RECV_EF, SEND_EB, RECV_EB) "
                        "and a microbatch, like 2F0."};
  std::string_view rest = word;
  const std::optional<int32_t> stage = take_number(rest);
  if (!stage) return error;
  const std::string_view name = rest.substr(0, rest.find_first_of("0123456789"));
  rest.remove_prefix(name.size());
  for (size_t kind = 0; kind < kNames.size(); ++kind) {
    if (kNames[kind] != name) continue;
    Action action{.kind = static_cast<ActionKind>(kind), .stage = *stage};
    if (has_microbatch(action.kind)) {
      const std::optional<int32_t> microbatch = take_number(rest);
      if (!microbatch) return error;
      action.microbatch = *microbatch;
    }
    if (!rest.empty()) return error;
    return action;
  }
  return error;
}

}  // namespace weft
