#include "weft/simulate/message_order.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Where an action is.
struct Spot {
  size_t row = 0;
  size_t index = 0;
};

using Message = std::pair<ActionKind, std::pair<int32_t, int32_t>>;  ///< SEND_F or SEND_B, with stage and microbatch

/// The message that an action waits for.
std::optional<Message> awaited(const Schedule& schedule, const Action& action) {
  const int32_t s = action.stage, m = action.microbatch;
  if (action.kind == ActionKind::kForward && s > 0 && schedule.crosses_ranks(s - 1))
    return Message{ActionKind::kSendForward, {s - 1, m}};
  const bool has_next = s + 1 < schedule.num_stages();
  if (is_pipeline_compute(action.kind) && makes_gradient(action.kind) && has_next && schedule.crosses_ranks(s))
    return Message{ActionKind::kSendBackward, {s + 1, m}};
  return std::nullopt;
}

}  // namespace

MessageOrder::MessageOrder(const Schedule& schedule, const std::function<bool(const Action&)>& is_sent) {
  const size_t num_rows = schedule.rows.size();
  std::map<Message, Spot> sent, taken;
  for (size_t row = 0; row < num_rows; ++row) {
    for (size_t index = 0; index < schedule.rows[row].size(); ++index) {
      const Action& action = schedule.rows[row][index];
      if (is_send(action.kind) && is_sent(action))
        sent[{action.kind, {action.stage, action.microbatch}}] = {row, index};
      if (const auto message = awaited(schedule, action)) taken[*message] = {row, index};
    }
  }
  // By row and action: how many actions of every row are known to be over once it is.
  std::vector<std::vector<std::vector<size_t>>> known(num_rows);
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t row = 0; row < num_rows; ++row) {
      const std::vector<Action>& actions = schedule.rows[row];
      while (known[row].size() < actions.size()) {
        const size_t index = known[row].size();
        std::vector<size_t> now = index > 0 ? known[row][index - 1] : std::vector<size_t>(num_rows, 0);
        if (const auto message = awaited(schedule, actions[index])) {
          const auto from = sent.find(*message);
          if (from != sent.end()) {
            const Spot& spot = from->second;
            if (known[spot.row].size() <= spot.index) break;
            const std::vector<size_t>& theirs = known[spot.row][spot.index];
            for (size_t r = 0; r < num_rows; ++r) now[r] = std::max(now[r], theirs[r]);
          }
        }
        now[row] = index + 1;
        known[row].push_back(std::move(now));
        moves = true;
      }
    }
  }
  taken_before_.resize(num_rows);
  for (size_t row = 0; row < num_rows; ++row) {
    const std::vector<Action>& actions = schedule.rows[row];
    WEFT_CHECK(known[row].size() == actions.size(), "row {} waits for what never comes", row);
    taken_before_[row].assign(actions.size(), actions.size());
    for (size_t index = 0; index < actions.size(); ++index) {
      const Action& action = actions[index];
      if (!is_send(action.kind)) continue;
      const auto at = taken.find({action.kind, {action.stage, action.microbatch}});
      if (at == taken.end()) continue;
      for (size_t later = index + 1; later < actions.size(); ++later) {
        if (known[row][later - 1][at->second.row] <= at->second.index) continue;
        taken_before_[row][index] = later;
        break;
      }
    }
  }
}

}  // namespace weft
