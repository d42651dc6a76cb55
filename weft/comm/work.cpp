#include "weft/comm/work.h"

namespace weft {

Work& Work::operator=(Work&& other) noexcept {
  if (this == &other) return *this;
  drop();
  state_ = std::move(other.state_);
  record_ = other.record_;
  note_ = other.note_;
  return *this;
}

void Work::wait() {
  if (!state_) return;
  record_->note(RankPhase::kWaiting, note_);
  const std::unique_ptr<WorkState> state = std::move(state_);
  const auto start = std::chrono::steady_clock::now();
  state->wait();
  record_->add_waited(std::chrono::steady_clock::now() - start);
  record_->note(RankPhase::kFinished, note_);
}

bool Work::is_done() {
  return !state_ || state_->poll();
}

void Work::drop() noexcept {
  if (state_) state_->abandon();
  state_.reset();
}

}  // namespace weft
