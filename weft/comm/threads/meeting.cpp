#include "weft/comm/threads/meeting.h"

#include <thread>

#include "weft/base/check.h"

namespace weft {
namespace {

constexpr int64_t kSmallBytes = int64_t{32} << 10;
constexpr int64_t kSmallBytesOnSharedCores = int64_t{1} << 20;

}  // namespace

void Meeting::reset(size_t num_roles) {
  posted_.resize(num_roles);
  has_posted_.assign(num_roles, false);
  num_posted_ = 0;
  disagreement_.clear();
  pieces_.clear();
  num_bytes_ = 0;
  state_ = State::kGathering;
  next_piece_ = 0;
  num_done_ = 0;
  num_users_ = static_cast<int>(num_roles);
  abandoned_by_ = -1;
}

bool Meeting::post(size_t role, const Operation& operation) {
  WEFT_CHECK(!has_posted_[role], "a rank came to one operation twice");
  posted_[role] = operation;
  has_posted_[role] = true;
  return ++num_posted_ == posted_.size();
}

void Meeting::refuse(std::string disagreement) {
  disagreement_ = std::move(disagreement);
  state_ = State::kRefused;
}

void Meeting::make_ready() {
  cut_into_pieces(posted_, pieces_);
  int64_t count = 0;
  for (const Piece& piece : pieces_) count += piece.count;
  num_bytes_ = count * bytes_per_element(posted_.front().type());
  state_ = pieces_.empty() ? State::kDone : State::kReady;
}

bool Meeting::is_small(bool has_core_per_rank) const {
  return num_bytes_ <= (has_core_per_rank ? kSmallBytes : kSmallBytesOnSharedCores);
}

bool Meeting::help() {
  if (state() != State::kReady) return false;
  bool finished = false;
  // Announced before looking whether it was abandoned, as the one who abandons looks for helpers after saying so.
  ++num_helpers_;
  while (!is_abandoned()) {
    const size_t index = next_piece_.fetch_add(1);
    if (index >= pieces_.size()) break;
    do_piece(pieces_[index], posted_);
    if (num_done_.fetch_add(1) + 1 == pieces_.size()) {
      state_ = State::kDone;
      finished = true;
    }
  }
  --num_helpers_;
  return finished;
}

void Meeting::abandon(size_t role) noexcept {
  if (is_settled()) return;
  int nobody = -1;
  abandoned_by_.compare_exchange_strong(nobody, static_cast<int>(role));
  while (num_helpers_.load() > 0) std::this_thread::yield();
}

std::optional<size_t> Meeting::abandoned_by() const {
  const int role = abandoned_by_.load();
  return role < 0 ? std::nullopt : std::optional(static_cast<size_t>(role));
}

Meeting& MeetingPool::take(size_t num_roles) {
  if (free_.empty()) free_.push_back(&all_.emplace_back());
  Meeting& meeting = *free_.back();
  free_.pop_back();
  meeting.reset(num_roles);
  return meeting;
}

Meeting& MeetingQueue::next(size_t role, MeetingPool& pool) {
  const uint64_t number = next_[role]++;
  while (first_ + meetings_.size() <= number) meetings_.push_back(&pool.take(next_.size()));
  return *meetings_[number - first_];
}

void MeetingQueue::trim() {
  while (!meetings_.empty() && meetings_.front()->all_posted()) {
    meetings_.pop_front();
    ++first_;
  }
}

}  // namespace weft
