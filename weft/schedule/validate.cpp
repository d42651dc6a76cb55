#include "weft/schedule/validate.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "weft/schedule/cell_table.h"
#include "weft/schedule/find_deadlock.h"
#include "weft/schedule/grid.h"
#include "weft/schedule/row_transfer_checks.h"

namespace weft {
namespace {

class Validator {
 public:
  explicit Validator(const Schedule& schedule) : schedule_(schedule) {
    for (const auto& row : schedule.rows) {
      is_lowered_ |= std::any_of(row.begin(), row.end(), [](const Action& a) { return moves_tensors(a.kind); });
    }
  }

  std::optional<ScheduleProblem> run() {
    if (check_encoder_shapes() && check_cells() && check_counts() && check_local_order() && check_encoders() &&
        check_row_transfers() && (!is_lowered_ || check_channels())) {
      problem_ = find_deadlock(schedule_);
    }
    return problem_;
  }

 private:
  bool fail(int32_t rank, size_t position, std::string message) {
    if (!problem_) problem_ = ScheduleProblem{rank, position, std::move(message)};
    return false;
  }

  const Action& at(int32_t rank, size_t position) const { return schedule_.rows[static_cast<size_t>(rank)][position]; }
  bool runs_on(int32_t encoder, int32_t rank) const {
    return groups_[static_cast<size_t>(encoder)][static_cast<size_t>(rank)] >= 0;
  }
  int32_t rank_of(int32_t stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }

  template <typename F>
  bool for_each(F visit) {
    for (int32_t rank = 0; rank < schedule_.num_ranks(); ++rank) {
      for (size_t i = 0; i < schedule_.rows[static_cast<size_t>(rank)].size(); ++i) {
        if (!visit(rank, i, at(rank, i))) return false;
      }
    }
    return true;
  }

  /// Every action names a stage of its rank and a microbatch that exists.
  bool check_cells() {
    return for_each([&](int32_t rank, size_t i, const Action& a) {
      if (is_encoder(a.kind)) return check_encoder_cell(rank, i, a);
      if (a.stage < 0 || a.stage >= schedule_.num_stages()) {
        return fail(rank, i, fmt::format("there are only {} stages", schedule_.num_stages()));
      }
      if (rank_of(a.stage) != rank)
        return fail(rank, i, fmt::format("stage {} lives on rank {}", a.stage, rank_of(a.stage)));
      if (has_microbatch(a.kind) && (a.microbatch < 0 || a.microbatch >= schedule_.num_microbatches)) {
        return fail(rank, i, fmt::format("there are only {} microbatches", schedule_.num_microbatches));
      }
      return true;
    });
  }

  /// The lists that say who runs an encoder and who needs its macro batches make sense.
  bool check_encoder_shapes() {
    for (const ScheduledEncoder& encoder : schedule_.encoders) {
      const auto wrong = [&](const std::string& what) {
        return fail(0, 0, fmt::format("encoder {} {}", encoder.name, what));
      };
      if (encoder.num_stages < 1 || encoder.groups.empty() || encoder.num_groups() % encoder.num_stages != 0) {
        return wrong(fmt::format("has {} groups for {} stages", encoder.groups.size(), encoder.num_stages));
      }
      if (encoder.live_macro_batches < 0) return wrong("has a negative number of live macro batches");
      std::set<int32_t> ranks;
      for (const auto& group : encoder.groups) {
        if (group.empty()) return wrong("has a group without ranks");
        for (const int32_t rank : group) {
          if (rank < 0 || rank >= schedule_.num_ranks())
            return wrong(fmt::format("runs on rank {}, which has no row", rank));
          if (!ranks.insert(rank).second) return wrong(fmt::format("has rank {} twice", rank));
        }
      }
      if (!check_macro_ranges(encoder)) return false;
      groups_.push_back(groups_of_ranks(encoder, schedule_.num_ranks()));
    }
    return true;
  }

  bool check_macro_ranges(const ScheduledEncoder& encoder) {
    const auto num_microbatches = static_cast<size_t>(schedule_.num_microbatches);
    if (encoder.first_macro.size() != num_microbatches || encoder.end_macro.size() != num_microbatches) {
      return fail(0, 0,
                  fmt::format("encoder {} lists macro batches for {} microbatches, there are {}", encoder.name,
                              encoder.first_macro.size(), num_microbatches));
    }
    std::vector<bool> is_needed(static_cast<size_t>(std::max(0, encoder.num_macro_batches)), false);
    for (size_t m = 0; m < num_microbatches; ++m) {
      if (encoder.first_macro[m] < 0 || encoder.end_macro[m] > encoder.num_macro_batches) {
        return fail(0, 0,
                    fmt::format("microbatch {} needs macro batches that encoder {} does not have", m, encoder.name));
      }
      for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k) is_needed[static_cast<size_t>(k)] = true;
    }
    const bool needs_all = std::find(is_needed.begin(), is_needed.end(), false) == is_needed.end();
    if (needs_all && encoder.num_macro_batches >= 0) return true;
    return fail(0, 0,
                fmt::format("no microbatch needs some of the {} macro batches of encoder {}", encoder.num_macro_batches,
                            encoder.name));
  }

  bool check_encoder_cell(int32_t rank, size_t i, const Action& a) {
    if (a.stage < 0 || a.stage >= static_cast<int32_t>(schedule_.encoders.size())) {
      return fail(rank, i, fmt::format("there are only {} encoders", schedule_.encoders.size()));
    }
    const ScheduledEncoder& encoder = schedule_.encoders[static_cast<size_t>(a.stage)];
    if (has_microbatch(a.kind) && (a.microbatch < 0 || a.microbatch >= encoder.num_macro_batches)) {
      return fail(rank, i, fmt::format("there are only {} macro batches", encoder.num_macro_batches));
    }
    if (!is_encoder_compute(a.kind)) return true;
    return runs_on(a.stage, rank) ? true
                                  : fail(rank, i, fmt::format("encoder {} does not run on this rank", encoder.name));
  }

  /// Each action at most once; F and (B or I and W) exactly once.
  bool check_counts() {
    CellTable<uint16_t> seen(schedule_, 0);
    std::set<std::pair<ActionKind, int32_t>> whole_stage;
    const bool fine = for_each([&](int32_t rank, size_t i, const Action& a) {
      if (is_encoder(a.kind)) return true;
      if (!has_microbatch(a.kind)) {
        return whole_stage.insert({a.kind, a.stage}).second ? true : fail(rank, i, "comes twice");
      }
      const auto bit = static_cast<uint16_t>(1u << static_cast<unsigned>(a.kind));
      uint16_t& mask = seen.at(a.stage, a.microbatch);
      if (mask & bit) return fail(rank, i, "comes twice");
      mask = static_cast<uint16_t>(mask | bit);
      return true;
    });
    if (!fine) return false;
    for (int32_t stage = 0; stage < schedule_.num_stages(); ++stage) {
      for (int32_t microbatch = 0; microbatch < schedule_.num_microbatches; ++microbatch) {
        if (!has_all(stage, microbatch, seen.at(stage, microbatch))) return false;
      }
    }
    return true;
  }

  /// `seen` has a bit for every kind of action of the microbatch.
  bool has_all(int32_t stage, int32_t microbatch, uint16_t seen) {
    const auto has = [&](ActionKind kind) { return (seen >> static_cast<unsigned>(kind) & 1) != 0; };
    const bool b = has(ActionKind::kBackward);
    const bool in = has(ActionKind::kBackwardInput);
    const bool w = has(ActionKind::kBackwardWeight);
    const size_t end = schedule_.rows[static_cast<size_t>(rank_of(stage))].size();
    const auto missing = [&](ActionKind kind) {
      return fail(rank_of(stage), end, fmt::format("{} is missing", to_text({kind, stage, microbatch})));
    };
    if (!has(ActionKind::kForward)) return missing(ActionKind::kForward);
    if (b && (in || w)) {
      return fail(rank_of(stage), end,
                  fmt::format("stage {}, microbatch {} has both B and a split backward", stage, microbatch));
    }
    if (!b && !in && !w) return missing(ActionKind::kBackward);
    if (!b && !in) return missing(ActionKind::kBackwardInput);
    if (!b && !w) return missing(ActionKind::kBackwardWeight);
    return true;
  }

  /// What one rank can see of the order: F before the backward before W, data received before it is used and made
  /// before it is sent, and reduction and update after everything that adds to the gradient.
  bool check_local_order() {
    CellTable<uint16_t> done(schedule_, 0);
    std::vector<int32_t> gradients(static_cast<size_t>(schedule_.num_stages()), 0);
    std::vector<uint8_t> reduced(static_cast<size_t>(schedule_.num_stages()), 0), updated = reduced;
    const auto has = [&](const Action& a, ActionKind kind) {
      return (done.at(a.stage, a.microbatch) >> static_cast<unsigned>(kind) & 1) != 0;
    };
    return for_each([&](int32_t rank, size_t i, const Action& a) {
      if (is_encoder(a.kind)) return true;
      const auto stage = static_cast<size_t>(a.stage);
      const bool receives_input = is_lowered_ && a.stage > 0 && schedule_.crosses_ranks(a.stage - 1);
      const bool receives_gradient =
          is_lowered_ && a.stage + 1 < schedule_.num_stages() && schedule_.crosses_ranks(a.stage);
      switch (a.kind) {
        case ActionKind::kForward:
          if (receives_input && !has(a, ActionKind::kRecvForward))
            return fail(rank, i, "runs before its input is received");
          break;
        case ActionKind::kBackward:
        case ActionKind::kBackwardInput:
          if (!has(a, ActionKind::kForward)) return fail(rank, i, "runs before its forward");
          if (receives_gradient && !has(a, ActionKind::kRecvBackward)) {
            return fail(rank, i, "runs before its output's gradient is received");
          }
          break;
        case ActionKind::kBackwardWeight:
          if (!has(a, ActionKind::kBackwardInput)) return fail(rank, i, "runs before its input gradient (I)");
          break;
        case ActionKind::kSendForward:
          if (!has(a, ActionKind::kForward)) return fail(rank, i, "sends what is not made yet");
          break;
        case ActionKind::kSendBackward:
          if (!has(a, ActionKind::kBackward) && !has(a, ActionKind::kBackwardInput)) {
            return fail(rank, i, "sends what is not made yet");
          }
          break;
        case ActionKind::kReduceGrad:
          if (gradients[stage] < schedule_.num_microbatches) {
            return fail(rank, i,
                        fmt::format("reduces after only {} of {} weight gradients", gradients[stage],
                                    schedule_.num_microbatches));
          }
          reduced[stage] = 1;
          return true;
        case ActionKind::kUpdate:
          if (gradients[stage] < schedule_.num_microbatches)
            return fail(rank, i, "updates before the last weight gradient");
          updated[stage] = 1;
          return true;
        default:
          break;
      }
      if (updated[stage] != 0) return fail(rank, i, "comes after the stage's update");
      const bool adds_gradient = a.kind == ActionKind::kBackward || a.kind == ActionKind::kBackwardWeight;
      if (adds_gradient && reduced[stage] != 0) return fail(rank, i, "adds to a gradient that was reduced already");
      gradients[stage] += adds_gradient ? 1 : 0;
      uint16_t& mask = done.at(a.stage, a.microbatch);
      mask = static_cast<uint16_t>(mask | 1u << static_cast<unsigned>(a.kind));
      return true;
    });
  }

  /// What one rank has run of an encoder.
  struct EncoderRow {
    std::vector<Action> order;
    std::vector<uint8_t> done;  ///< by macro batch: a bit for EF and one for EB
    int64_t live = 0;           ///< EF without their EB
  };

  static uint8_t bit_of(ActionKind kind) { return kind == ActionKind::kEncodeForward ? 1 : 2; }

  /// Encoder actions: each once per macro batch on every rank that runs the encoder, EB after EF, and the ranks of a
  /// group in the same order.
  bool check_encoders() {
    std::vector<std::vector<EncoderRow>> rows(schedule_.encoders.size());
    for (size_t e = 0; e < rows.size(); ++e) {
      rows[e].resize(schedule_.rows.size());
      const ScheduledEncoder& encoder = schedule_.encoders[e];
      for (int32_t rank = 0; rank < schedule_.num_ranks(); ++rank) {
        if (runs_on(static_cast<int32_t>(e), rank))
          rows[e][static_cast<size_t>(rank)].done.assign(static_cast<size_t>(encoder.num_macro_batches), 0);
      }
    }
    const bool fine = for_each([&](int32_t rank, size_t i, const Action& a) {
      if (!is_encoder_compute(a.kind)) return true;
      EncoderRow& row = rows[static_cast<size_t>(a.stage)][static_cast<size_t>(rank)];
      uint8_t& done = row.done[static_cast<size_t>(a.microbatch)];
      if ((done & bit_of(a.kind)) != 0) return fail(rank, i, "comes twice");
      const bool is_backward = a.kind == ActionKind::kEncodeBackward;
      if (is_backward && done == 0) return fail(rank, i, "runs before its forward");
      if (is_backward && !schedule_.encoders[static_cast<size_t>(a.stage)].is_trained) {
        return fail(rank, i, "is a backward of a frozen encoder");
      }
      done = static_cast<uint8_t>(done | bit_of(a.kind));
      row.order.push_back(a);
      row.live += is_backward ? -1 : 1;
      return check_live(rank, i, a, row.live);
    });
    if (!fine) return false;
    for (size_t e = 0; e < schedule_.encoders.size(); ++e) {
      const ScheduledEncoder& encoder = schedule_.encoders[e];
      const size_t expected = static_cast<size_t>(encoder.num_macro_batches) * (encoder.is_trained ? 2 : 1);
      for (const auto& group : encoder.groups) {
        for (const int32_t rank : group) {
          const auto& order = rows[e][static_cast<size_t>(rank)].order;
          const size_t end = schedule_.rows[static_cast<size_t>(rank)].size();
          if (order.size() != expected) {
            return fail(rank, end,
                        fmt::format("runs {} of the {} actions of encoder {}", order.size(), expected, encoder.name));
          }
          if (order != rows[e][static_cast<size_t>(group.front())].order) {
            return fail(
                rank, end,
                fmt::format("runs encoder {} in another order than rank {} of its group", encoder.name, group.front()));
          }
        }
      }
    }
    return true;
  }

  bool check_row_transfers() {
    if (!problem_) problem_ = find_row_transfer_problem(schedule_, is_lowered_);
    return !problem_;
  }

  /// No more macro batches between EF and EB than the encoder allows.
  bool check_live(int32_t rank, size_t i, const Action& a, int64_t live) {
    const ScheduledEncoder& encoder = schedule_.encoders[static_cast<size_t>(a.stage)];
    if (encoder.live_macro_batches == 0 || !encoder.keeps_activations()) return true;
    if (live <= encoder.live_macro_batches) return true;
    return fail(rank, i,
                fmt::format("makes {} macro batches alive, encoder {} may have {}", live, encoder.name,
                            encoder.live_macro_batches));
  }

  struct Channel {
    int32_t from;
    int32_t to;
    bool is_forward;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 stumbles over the default
    auto operator<=>(const Channel&) const = default;
  };

  Channel channel_of(const Action& a) const {
    switch (a.kind) {
      case ActionKind::kSendForward:
        return {rank_of(a.stage), rank_of(a.stage + 1), true};
      case ActionKind::kRecvForward:
        return {rank_of(a.stage - 1), rank_of(a.stage), true};
      case ActionKind::kSendBackward:
        return {rank_of(a.stage), rank_of(a.stage - 1), false};
      default:
        return {rank_of(a.stage + 1), rank_of(a.stage), false};
    }
  }

  /// Transfers exist exactly where a tensor crosses ranks, and both ends of a channel list the same ones in the same
  /// order.
  bool check_channels() {
    std::map<Channel, std::vector<std::pair<size_t, Action>>> sends, recvs;
    const bool fine = for_each([&](int32_t rank, size_t i, const Action& a) {
      if (!is_transfer(a.kind)) return true;
      const bool is_forward = a.kind == ActionKind::kSendForward || a.kind == ActionKind::kRecvForward;
      const Action s = sent_by(a);
      const int32_t other = is_forward ? s.stage + 1 : s.stage - 1;
      if (s.stage < 0 || other < 0 || s.stage >= schedule_.num_stages() || other >= schedule_.num_stages()) {
        return fail(rank, i, "has no stage at its other end");
      }
      if (rank_of(s.stage) == rank_of(other)) return fail(rank, i, "both stages live on this rank, nothing is sent");
      (is_send(a.kind) ? sends : recvs)[channel_of(a)].push_back({i, s});
      return true;
    });
    if (!fine) return false;
    for (const auto& [channel, list] : recvs) sends.try_emplace(channel);
    for (const auto& [channel, list] : sends) {
      const auto& other = recvs[channel];
      for (size_t k = 0; k < std::max(list.size(), other.size()); ++k) {
        if (k >= list.size()) {
          return fail(channel.to, other[k].first, fmt::format("rank {} never sends it", channel.from));
        }
        if (k >= other.size()) {
          return fail(channel.from, list[k].first, fmt::format("rank {} never receives it", channel.to));
        }
        if (list[k].second != other[k].second) {
          return fail(channel.to, other[k].first,
                      fmt::format("rank {} sends {} here: the two ends disagree on the order", channel.from,
                                  to_text(list[k].second)));
        }
      }
    }
    return check_transfer_counts();
  }

  bool check_transfer_counts() {
    std::vector<int32_t> sent_forward(static_cast<size_t>(schedule_.num_stages()), 0), sent_backward = sent_forward;
    for_each([&](int32_t, size_t, const Action& a) {
      if (a.kind == ActionKind::kSendForward) ++sent_forward[static_cast<size_t>(a.stage)];
      if (a.kind == ActionKind::kSendBackward) ++sent_backward[static_cast<size_t>(a.stage)];
      return true;
    });
    for (int32_t stage = 0; stage + 1 < schedule_.num_stages(); ++stage) {
      if (!schedule_.crosses_ranks(stage)) continue;
      if (sent_forward[static_cast<size_t>(stage)] != schedule_.num_microbatches ||
          sent_backward[static_cast<size_t>(stage) + 1] != schedule_.num_microbatches) {
        return fail(rank_of(stage), schedule_.rows[static_cast<size_t>(rank_of(stage))].size(),
                    fmt::format("stages {} and {} do not exchange every microbatch", stage, stage + 1));
      }
    }
    return true;
  }

  const Schedule& schedule_;
  std::vector<std::vector<int32_t>> groups_;  ///< by encoder and rank
  bool is_lowered_ = false;
  std::optional<ScheduleProblem> problem_;
};

}  // namespace

std::optional<ScheduleProblem> find_problem(const Schedule& schedule) {
  return Validator(schedule).run();
}

std::string show_problem(const Schedule& schedule, const ScheduleProblem& problem) {
  const auto& row = schedule.rows[static_cast<size_t>(problem.rank)];
  const std::string cell = problem.position < row.size() ? to_text(row[problem.position]) + " " : "";
  return fmt::format("rank {}, action {}: {}{}\n{}", problem.rank, problem.position, cell, problem.message,
                     row_grid(schedule, problem.rank, problem.position));
}

}  // namespace weft
