#include "tests/support/meaning/random_rows.h"

#include <algorithm>

namespace weft {
namespace {

class RowsDrawer {
 public:
  RowsDrawer(const RandomRowsShape& shape, std::mt19937_64& random) : shape_(shape), random_(random) {}

  Schedule draw() {
    Schedule schedule{.num_microbatches = shape_.num_microbatches};
    for (int32_t stage = 0; stage < shape_.num_stages; ++stage)
      schedule.rank_of_stage.push_back(stage < shape_.num_ranks ? stage : below(shape_.num_ranks));
    for (size_t i = schedule.rank_of_stage.size(); i > 1; --i)
      std::swap(schedule.rank_of_stage[i - 1],
                schedule.rank_of_stage[static_cast<size_t>(below(static_cast<int32_t>(i)))]);
    schedule.rows.resize(static_cast<size_t>(shape_.num_ranks));
    const int32_t splits_one_in = 1 + below(3);  // 1: every backward is split
    done_.assign(static_cast<size_t>(shape_.num_stages * shape_.num_microbatches), Done{});
    for (Done& done : done_) done.is_split = below(3) != 0 && below(splits_one_in) == 0;
    // Backwards are more often taken, so that not everything is in flight.
    while (true) {
      std::vector<Action> forwards, others;
      list_ready(forwards, others);
      if (forwards.empty() && others.empty()) return schedule;
      const auto& ready = forwards.empty() || (!others.empty() && below(3) > 0) ? others : forwards;
      const Action action = ready[static_cast<size_t>(below(static_cast<int32_t>(ready.size())))];
      run(action);
      schedule.rows[static_cast<size_t>(schedule.rank_of_stage[static_cast<size_t>(action.stage)])].push_back(action);
    }
  }

 private:
  struct Done {
    bool forward = false, input = false, weight = false, is_split = false;
  };

  int32_t below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(n)); }
  Done& at(int32_t stage, int32_t microbatch) {
    return done_[static_cast<size_t>(stage * shape_.num_microbatches + microbatch)];
  }

  void list_ready(std::vector<Action>& forwards, std::vector<Action>& others) {
    for (int32_t s = 0; s < shape_.num_stages; ++s) {
      for (int32_t m = 0; m < shape_.num_microbatches; ++m) {
        const Done& done = at(s, m);
        if (!done.forward && (s == 0 || at(s - 1, m).forward)) forwards.push_back({ActionKind::kForward, s, m});
        const bool has_gradient = s + 1 == shape_.num_stages || at(s + 1, m).input;
        if (done.forward && !done.input && has_gradient)
          others.push_back({done.is_split ? ActionKind::kBackwardInput : ActionKind::kBackward, s, m});
        if (done.input && !done.weight) others.push_back({ActionKind::kBackwardWeight, s, m});
      }
    }
  }

  void run(const Action& action) {
    Done& done = at(action.stage, action.microbatch);
    done.forward |= action.kind == ActionKind::kForward;
    done.input |= makes_gradient(action.kind);
    done.weight |= action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight;
  }

  const RandomRowsShape& shape_;
  std::mt19937_64& random_;
  std::vector<Done> done_;
};

}  // namespace

Schedule random_rows(const RandomRowsShape& shape, std::mt19937_64& random) {
  return RowsDrawer(shape, random).draw();
}

}  // namespace weft
