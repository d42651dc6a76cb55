#include "weft/search/improve_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "weft/exchange/target_limits.h"
#include "weft/meaning/check.h"
#include "weft/search/evaluate_candidate.h"
#include "weft/search/frame_bounds.h"
#include "weft/search/neighbours.h"

namespace weft {
namespace {

/// What is faster by less is not worth another plan.
constexpr double kLeastGain = 1e-5;
/// Plans that are slower than the best by more are no place to begin from.
constexpr double kFar = 1.2;

/// What of a plan changes little when it is improved: the pipeline's ranks, how each encoder is run, and whether ranks
/// share its samples.
struct EncoderKind {
  ModulePlacement placement = ModulePlacement::kColocated;
  EncoderForm form = EncoderForm::kBefore;
  bool shares_samples = false;
  auto operator<=>(const EncoderKind&) const = default;
};
struct PlanKind {
  int64_t pp = 1;
  std::array<EncoderKind, kMostEncoders> encoders;
  auto operator<=>(const PlanKind&) const = default;
};

PlanKind kind_of(const Candidate& c) {
  PlanKind kind{.pp = c.pp};
  for (size_t e = 0; e < kMostEncoders; ++e) {
    const EncoderChoice& choice = c.encoders[e];
    kind.encoders[e] = {.placement = choice.placement, .form = choice.form, .shares_samples = choice.cp > 1};
  }
  return kind;
}

/// Whether encoders are where they are, and run as they do there.
bool has_same_encoders(const Candidate& a, const Candidate& b) {
  return std::equal(
      a.encoders.begin(), a.encoders.end(), b.encoders.begin(), [](const EncoderChoice& x, const EncoderChoice& y) {
        return x.placement == y.placement && (x.form == y.form || x.placement == ModulePlacement::kInline);
      });
}

/// What a search knows of plans besides their time.
void finish(const Workbench& bench, FoundPlan& plan) {
  plan.bound_ms = plan.step_time_ms;
  plan.simplicity = simplicity_of(plan.candidate, bench.num_encoders());
  plan.simplicity.lacks_export = expressed_by(plan.plan).empty();
}

}  // namespace

class PlanClimb::Improver {
 public:
  Improver(Workbench& bench, const FoundPlan& found, DrawnObjective* drawn, bool holds_encoders)
      : bench_(bench),
        best_(found),
        drawn_(drawn),
        space_(widened(bench.space())),
        holds_encoders_(holds_encoders && bench.num_encoders() > 0) {}

  void climb(int64_t num_tries, const Deadline& deadline) {
    deadline_ = deadline;
    const int64_t end = num_tried_ + num_tries;
    const auto is_over = [&] { return num_tried_ >= end || deadline_.is_over(); };
    if (!has_begun_) {
      has_begun_ = true;
      place_again();
      turn_to_neighbours();
    }
    while (!has_ended() && !is_over()) {
      if (in_vain_ >= around_.size()) {
        holds_encoders_ = false;
        turn_to_neighbours();
      } else if (try_candidate(around_[next_++ % around_.size()])) {
        has_improved_ = true;
        turn_to_neighbours();
      } else {
        ++in_vain_;
      }
    }
  }

  bool has_ended() const { return has_begun_ && !holds_encoders_ && in_vain_ >= around_.size(); }
  bool has_improved() const { return has_improved_; }
  const FoundPlan& best() const { return best_; }

  std::vector<FoundPlan> look_far(const Deadline& deadline) {
    deadline_ = deadline;
    constexpr int64_t kMostTried = 500, kMostOfKind = 40, kMostSimulated = 8;
    FrameBounds bounds(bench_);
    struct Far {
      double bound_ms;
      Candidate candidate;
    };
    std::vector<Far> by_bound;
    for (Candidate& c : far_from(best_.candidate, bench_.plan(), space_)) {
      const double bound_ms = bounds.work_ms(c);
      if (bound_ms < kFar * best_.step_time_ms) by_bound.push_back({bound_ms, std::move(c)});
    }
    std::stable_sort(by_bound.begin(), by_bound.end(),
                     [](const Far& a, const Far& b) { return a.bound_ms < b.bound_ms; });
    std::map<PlanKind, FoundPlan> kinds;
    kinds.emplace(kind_of(best_.candidate), best_);
    for (const Far& far : by_bound) {
      if (num_tried_ >= kMostTried || deadline_.is_over()) break;
      if (far.bound_ms >= best_.step_time_ms || !try_candidate(far.candidate, /*is_probe=*/true)) continue;
      kinds.insert_or_assign(kind_of(best_.candidate), best_);
    }
    // Those that are behind the best, each compared with its own kind.
    const FoundPlan best = best_;
    const int64_t most_tried = num_tried_ + kMostTried;
    std::map<PlanKind, int64_t> num_tried, num_simulated;
    for (const Far& far : by_bound) {
      if (num_tried_ >= most_tried || deadline_.is_over()) break;
      // Placing a long chain of several modules takes long where little is ruled out.
      if (far.candidate.pp > 1 && bench_.inline_encoders(far.candidate) != 0) continue;
      const PlanKind kind = kind_of(far.candidate);
      const auto known = kinds.find(kind);
      const double limit_ms = known == kinds.end() ? kFar * best.step_time_ms : known->second.step_time_ms;
      if (far.bound_ms >= limit_ms || num_simulated[kind] == kMostSimulated || ++num_tried[kind] > kMostOfKind)
        continue;
      best_.step_time_ms = limit_ms;
      const int64_t simulated = num_simulated_;
      if (try_candidate(far.candidate, /*is_probe=*/true)) kinds.insert_or_assign(kind, best_);
      num_simulated[kind] += num_simulated_ - simulated;
    }
    std::vector<FoundPlan> found;
    for (auto& [kind, plan] : kinds) found.push_back(std::move(plan));
    std::stable_sort(found.begin(), found.end(),
                     [](const FoundPlan& a, const FoundPlan& b) { return a.step_time_ms < b.step_time_ms; });
    return found;
  }

 private:
  void turn_to_neighbours() {
    around_ = neighbours_of(best_.candidate, bench_.plan(), space_);
    if (holds_encoders_)
      std::erase_if(around_, [&](const Candidate& c) { return !has_same_encoders(c, best_.candidate); });
    in_vain_ = 0;
  }

  /// With several chunks a rank, where the space has a rule.
  void place_again() {
    if (best_.candidate.vpp > 1) has_improved_ |= try_candidate(best_.candidate);
  }

  /// Whether it is better.
  bool try_candidate(Candidate c, bool is_probe = false) {
    c.balance = Balance::kNone;
    if (!tried_.insert(c.text(bench_.plan())).second) return false;
    ++num_tried_;
    OpenFrame frame;
    frame.degrees = c;
    const double limit_ms = best_.step_time_ms * (1 - kLeastGain);
    Evaluation evaluation = evaluate_candidate(bench_, frame, c,
                                               {.limit_ms = limit_ms,
                                                .reassigned_limit_ms = limit_ms,
                                                .deadline = deadline_,
                                                .is_probe = is_probe,
                                                .moves_chunks = !is_probe,
                                                .looks_near = drawn_ != nullptr,
                                                .has_plan = true,
                                                .drawn = drawn_});
    if (evaluation.fate == Fate::kSimulated) ++num_simulated_;
    bool is_better = false;
    for (FoundPlan& found : evaluation.found) {
      if (found.step_time_ms >= best_.step_time_ms * (1 - kLeastGain)) continue;
      if (!check_plan(found.plan, PlanUse::kPrice).empty()) continue;
      best_ = std::move(found);
      is_better = true;
    }
    return is_better;
  }

  Workbench& bench_;
  FoundPlan best_;
  DrawnObjective* drawn_;
  PlanSpace space_;
  Deadline deadline_;
  std::set<std::string> tried_;
  int64_t num_tried_ = 0;
  int64_t num_simulated_ = 0;
  // The climb.
  std::vector<Candidate> around_;
  size_t next_ = 0, in_vain_ = 0;
  bool holds_encoders_ = false;
  bool has_begun_ = false, has_improved_ = false;
};

PlanClimb::PlanClimb(Workbench& bench, const FoundPlan& start, DrawnObjective* drawn, bool holds_encoders)
    : bench_(&bench), improver_(std::make_unique<Improver>(bench, start, drawn, holds_encoders)) {}
PlanClimb::~PlanClimb() = default;
PlanClimb::PlanClimb(PlanClimb&&) noexcept = default;
PlanClimb& PlanClimb::operator=(PlanClimb&&) noexcept = default;

void PlanClimb::go_on(int64_t num_tries, const Deadline& deadline) {
  improver_->climb(num_tries, deadline);
}

bool PlanClimb::has_ended() const {
  return improver_->has_ended();
}

double PlanClimb::best_ms() const {
  return improver_->best().step_time_ms;
}

FoundPlan PlanClimb::best() const {
  FoundPlan best = improver_->best();
  if (improver_->has_improved()) finish(*bench_, best);
  return best;
}

std::vector<FoundPlan> PlanClimb::look_far(const Deadline& deadline) {
  std::vector<FoundPlan> plans = improver_->look_far(deadline);
  for (FoundPlan& plan : plans) finish(*bench_, plan);
  return plans;
}

}  // namespace weft
