#include "weft/schedule/validate.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "weft/schedule/cell_table.h"
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
      check_progress();
    }
    return problem_;
  }

 private:
  bool fail(int32_t rank, size_t position, std::string message) {
    if (!problem_) problem_ = ScheduleProblem{rank, position, std::move(message)};
    return false;
  }

  const Action& at(int32_t rank, size_t position) const { return schedule_.rows[static_cast<size_t>(rank)][position]; }
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
    std::set<int32_t> needed;
    for (size_t m = 0; m < num_microbatches; ++m) {
      if (encoder.first_macro[m] < 0 || encoder.end_macro[m] > encoder.num_macro_batches) {
        return fail(0, 0,
                    fmt::format("microbatch {} needs macro batches that encoder {} does not have", m, encoder.name));
      }
      for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k) needed.insert(k);
    }
    if (static_cast<int32_t>(needed.size()) == encoder.num_macro_batches) return true;
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
    const bool runs_here = std::any_of(encoder.groups.begin(), encoder.groups.end(), [&](const auto& group) {
      return std::find(group.begin(), group.end(), rank) != group.end();
    });
    return runs_here ? true : fail(rank, i, fmt::format("encoder {} does not run on this rank", encoder.name));
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

  /// Encoder actions: each once per macro batch on every rank that runs the encoder, EB after EF, and the ranks of a
  /// group in the same order.
  bool check_encoders() {
    std::vector<std::vector<std::vector<Action>>> orders(schedule_.rows.size());
    for (auto& of_rank : orders) of_rank.resize(schedule_.encoders.size());
    const bool fine = for_each([&](int32_t rank, size_t i, const Action& a) {
      if (!is_encoder_compute(a.kind)) return true;
      auto& order = orders[static_cast<size_t>(rank)][static_cast<size_t>(a.stage)];
      const auto comes = [&](ActionKind kind) {
        return std::find(order.begin(), order.end(), Action{kind, a.stage, a.microbatch}) != order.end();
      };
      if (comes(a.kind)) return fail(rank, i, "comes twice");
      const bool is_backward = a.kind == ActionKind::kEncodeBackward;
      if (is_backward && !comes(ActionKind::kEncodeForward)) return fail(rank, i, "runs before its forward");
      if (is_backward && !schedule_.encoders[static_cast<size_t>(a.stage)].is_trained) {
        return fail(rank, i, "is a backward of a frozen encoder");
      }
      order.push_back(a);
      return check_live(rank, i, a, order);
    });
    if (!fine) return false;
    for (size_t e = 0; e < schedule_.encoders.size(); ++e) {
      const ScheduledEncoder& encoder = schedule_.encoders[e];
      const size_t expected = static_cast<size_t>(encoder.num_macro_batches) * (encoder.is_trained ? 2 : 1);
      for (const auto& group : encoder.groups) {
        for (const int32_t rank : group) {
          const auto& order = orders[static_cast<size_t>(rank)][e];
          const size_t end = schedule_.rows[static_cast<size_t>(rank)].size();
          if (order.size() != expected) {
            return fail(rank, end,
                        fmt::format("runs {} of the {} actions of encoder {}", order.size(), expected, encoder.name));
          }
          if (order != orders[static_cast<size_t>(group.front())][e]) {
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
  bool check_live(int32_t rank, size_t i, const Action& a, const std::vector<Action>& order) {
    const ScheduledEncoder& encoder = schedule_.encoders[static_cast<size_t>(a.stage)];
    if (encoder.live_macro_batches == 0 || !encoder.keeps_activations()) return true;
    const auto is_forward = [](const Action& done) { return done.kind == ActionKind::kEncodeForward; };
    const auto forwards = std::count_if(order.begin(), order.end(), is_forward);
    const auto live = 2 * forwards - static_cast<std::ptrdiff_t>(order.size());
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

  /// The sending stage of a transfer, so that both ends of one have the same key.
  static Action sent(const Action& a) {
    if (a.kind == ActionKind::kRecvForward) return {ActionKind::kSendForward, a.stage - 1, a.microbatch};
    if (a.kind == ActionKind::kRecvBackward) return {ActionKind::kSendBackward, a.stage + 1, a.microbatch};
    return a;
  }

  /// Transfers exist exactly where a tensor crosses ranks, and both ends of a channel list the same ones in the same
  /// order.
  bool check_channels() {
    std::map<Channel, std::vector<std::pair<size_t, Action>>> sends, recvs;
    const bool fine = for_each([&](int32_t rank, size_t i, const Action& a) {
      if (!is_transfer(a.kind)) return true;
      const bool is_forward = a.kind == ActionKind::kSendForward || a.kind == ActionKind::kRecvForward;
      const Action s = sent(a);
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

  /// Plays the rows with unbuffered channels: a SEND and its RECV happen together, an encoder action on the ranks of
  /// its group together, everything else when its inputs exist.
  bool check_progress() {
    next_.assign(schedule_.rows.size(), 0);
    forward_ = gradient_ = CellTable<uint8_t>(schedule_, 0);
    encoded_.assign(schedule_.encoders.size(), {});
    for (size_t e = 0; e < encoded_.size(); ++e)
      encoded_[e].assign(static_cast<size_t>(schedule_.encoders[e].num_macro_batches), 0);
    unread_ = encoded_;
    for (int32_t m = 0; m < schedule_.num_microbatches; ++m) count_needs(unread_, m, 1);
    without_gradient_ = unread_;
    sent_rows_ = sent_gradients_ = encoded_;
    bool has_moved = true;
    while (has_moved) {
      has_moved = false;
      for (int32_t rank = 0; rank < schedule_.num_ranks(); ++rank) {
        while (step(rank)) has_moved = true;
      }
    }
    for (int32_t rank = 0; rank < schedule_.num_ranks(); ++rank) {
      if (here(rank) != nullptr)
        return fail(rank, next_[static_cast<size_t>(rank)], "waits for ever: the rows deadlock");
    }
    return true;
  }

  const Action* here(int32_t rank) const {
    const auto& row = schedule_.rows[static_cast<size_t>(rank)];
    return next_[static_cast<size_t>(rank)] < row.size() ? &row[next_[static_cast<size_t>(rank)]] : nullptr;
  }

  bool step(int32_t rank) {
    const Action* a = here(rank);
    if (a == nullptr) return false;
    if (is_encoder_compute(a->kind)) return step_encoder(rank, *a);
    if (is_row_transfer(a->kind)) return step_rows(rank, *a);
    if (is_encoder_transfer(a->kind)) return step_encoded(rank, *a);
    if (is_transfer(a->kind)) {
      const Channel channel = channel_of(*a);
      const int32_t peer = channel.from == rank ? channel.to : channel.from;
      const Action* b = here(peer);
      if (b == nullptr || !is_transfer(b->kind) || is_send(a->kind) == is_send(b->kind) || sent(*a) != sent(*b))
        return false;
      ++next_[static_cast<size_t>(peer)];
    } else if (a->kind == ActionKind::kForward) {
      const bool is_entry = a->stage == schedule_.entry_stage;
      if (a->stage > 0 && forward_.at(a->stage - 1, a->microbatch) == 0) return false;
      if (is_entry && !is_encoded(a->microbatch)) return false;
      forward_.at(a->stage, a->microbatch) = 1;
      if (is_entry) count_needs(unread_, a->microbatch, -1);
    } else if (makes_gradient(a->kind)) {
      if (a->stage + 1 < schedule_.num_stages() && gradient_.at(a->stage + 1, a->microbatch) == 0) return false;
      gradient_.at(a->stage, a->microbatch) = 1;
      if (a->stage == schedule_.entry_stage) count_needs(without_gradient_, a->microbatch, -1);
    }
    ++next_[static_cast<size_t>(rank)];
    return true;
  }

  /// Rows and gradients of a macro batch are sent without waiting, and received when all who make them have sent them.
  bool step_rows(int32_t rank, const Action& a) {
    const ScheduledEncoder& encoder = schedule_.encoders[static_cast<size_t>(a.stage)];
    const auto e = static_cast<size_t>(a.stage), k = static_cast<size_t>(a.microbatch);
    int32_t num_makers = 0;
    for (int32_t group = 0; group < encoder.num_groups(); ++group) {
      if (encoder.is_last_stage(group))
        num_makers += static_cast<int32_t>(encoder.groups[static_cast<size_t>(group)].size());
    }
    if (a.kind == ActionKind::kSendRows) ++sent_rows_[e][k];
    if (a.kind == ActionKind::kSendRowGrads) ++sent_gradients_[e][k];
    if (a.kind == ActionKind::kRecvRows && sent_rows_[e][k] < num_makers) return false;
    if (a.kind == ActionKind::kRecvRowGrads && sent_gradients_[e][k] == 0) return false;
    ++next_[static_cast<size_t>(rank)];
    return true;
  }

  /// The same between stages of an encoder's own pipeline: received when all ranks of the sending stage have sent.
  bool step_encoded(int32_t rank, const Action& a) {
    const ScheduledEncoder& encoder = schedule_.encoders[static_cast<size_t>(a.stage)];
    const size_t group = group_of(encoder, rank);
    if (is_send(a.kind)) {
      ++num_sent_[{a.kind, a.stage, a.microbatch, group}];
    } else {
      const bool is_forward = a.kind == ActionKind::kRecvEncoded;
      const ActionKind send = is_forward ? ActionKind::kSendEncoded : ActionKind::kSendEncodedGrads;
      const size_t sender = is_forward ? group - 1 : group + 1;
      if (num_sent_[{send, a.stage, a.microbatch, sender}] < std::ssize(encoder.groups[sender])) return false;
    }
    ++next_[static_cast<size_t>(rank)];
    return true;
  }

  static size_t group_of(const ScheduledEncoder& encoder, int32_t rank) {
    const auto holds_rank = [&](const auto& group) {
      return std::find(group.begin(), group.end(), rank) != group.end();
    };
    return static_cast<size_t>(std::find_if(encoder.groups.begin(), encoder.groups.end(), holds_rank) -
                               encoder.groups.begin());
  }

  /// Whether every encoder has run, on all its groups, what the microbatch needs.
  bool is_encoded(int32_t microbatch) const {
    for (size_t e = 0; e < schedule_.encoders.size(); ++e) {
      const ScheduledEncoder& encoder = schedule_.encoders[e];
      for (int32_t k = encoder.first_macro[static_cast<size_t>(microbatch)];
           k < encoder.end_macro[static_cast<size_t>(microbatch)]; ++k) {
        if (encoded_[e][static_cast<size_t>(k)] < encoder.num_groups() / encoder.num_stages) return false;
      }
    }
    return true;
  }

  bool step_encoder(int32_t rank, const Action& action) {
    const ScheduledEncoder& encoder = schedule_.encoders[static_cast<size_t>(action.stage)];
    const size_t group = group_of(encoder, rank);
    const bool may_run = action.kind == ActionKind::kEncodeForward ? may_encode(encoder, action, group)
                                                                   : has_gradient(encoder, action, group);
    if (!may_run) return false;
    const bool all_here = std::all_of(encoder.groups[group].begin(), encoder.groups[group].end(), [&](int32_t member) {
      const Action* theirs = here(member);
      return theirs != nullptr && *theirs == action;
    });
    if (!all_here) return false;
    for (const int32_t member : encoder.groups[group]) ++next_[static_cast<size_t>(member)];
    ran_.insert({action.kind, action.stage, action.microbatch, group});
    if (action.kind == ActionKind::kEncodeForward) {
      ++num_encoded_[{action.stage, group}];
      if (encoder.is_last_stage(static_cast<int32_t>(group))) {
        ++encoded_[static_cast<size_t>(action.stage)][static_cast<size_t>(action.microbatch)];
      }
    }
    return true;
  }

  /// EF: the encoder's stage before has run, and outputs that nobody has read yet leave room for one more.
  bool may_encode(const ScheduledEncoder& encoder, const Action& a, size_t group) {
    if (!encoder.is_first_stage(static_cast<int32_t>(group)) &&
        !ran_.contains({a.kind, a.stage, a.microbatch, group - 1}))
      return false;
    if (encoder.live_macro_batches == 0 || encoder.keeps_activations()) return true;
    const auto& unread = unread_[static_cast<size_t>(a.stage)];
    const auto num_read = static_cast<int32_t>(std::count(unread.begin(), unread.end(), 0));
    return num_encoded_[{a.stage, group}] - num_read < encoder.live_macro_batches;
  }

  /// EB: every gradient has come back, or the encoder's next stage has sent its own.
  bool has_gradient(const ScheduledEncoder& encoder, const Action& a, size_t group) const {
    if (encoder.is_last_stage(static_cast<int32_t>(group))) {
      return without_gradient_[static_cast<size_t>(a.stage)][static_cast<size_t>(a.microbatch)] == 0;
    }
    return ran_.contains({a.kind, a.stage, a.microbatch, group + 1});
  }

  /// Adds to the count of each macro batch that a microbatch needs.
  void count_needs(std::vector<std::vector<int32_t>>& counts, int32_t microbatch, int32_t change) const {
    for (size_t e = 0; e < schedule_.encoders.size(); ++e) {
      const ScheduledEncoder& encoder = schedule_.encoders[e];
      const auto m = static_cast<size_t>(microbatch);
      for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k)
        counts[e][static_cast<size_t>(k)] += change;
    }
  }

  // The state of check_progress: how far each row is, and what exists.
  std::vector<size_t> next_;
  CellTable<uint8_t> forward_;
  CellTable<uint8_t> gradient_;
  std::vector<std::vector<int32_t>> encoded_;  // per encoder and macro batch: replicas that have run it
  std::vector<std::vector<int32_t>> unread_,
      without_gradient_;  // the same: microbatches whose entry stage has yet to run F, and B or I
  std::vector<std::vector<int32_t>> sent_rows_, sent_gradients_;  // the same: ranks that have sent them
  std::map<std::tuple<ActionKind, int32_t, int32_t, size_t>, int32_t>
      num_sent_;  // inside encoders' pipelines, by kind, encoder, macro batch and group: ranks that have sent
  std::set<std::tuple<ActionKind, int32_t, int32_t, size_t>>
      ran_;                                                    // encoder actions: kind, encoder, macro batch, group
  std::map<std::pair<int32_t, size_t>, int32_t> num_encoded_;  // per encoder and group

  const Schedule& schedule_;
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
