#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/comm/threads/pieces.h"

namespace weft {

/// One operation that thread ranks meet in: each posts what it asks for, the last one cuts it into pieces, and whoever
/// waits does pieces until none is left. It needs no thread of its own, and no rank waits for another that has posted
/// but is busy with something else.
class Meeting {
 public:
  enum class State : uint8_t {
    kGathering,  ///< someone has not posted yet
    kReady,      ///< pieces can be done
    kDone,
    kRefused,  ///< the ranks disagree
  };

  /// Begins anew, for so many.
  void reset(size_t num_roles);
  /// A role will not touch it again; whether it was the last one.
  bool release() { return num_users_.fetch_sub(1) == 1; }

  // Under the group's lock.
  /// Whether this was the last.
  bool post(size_t role, const Operation& operation);
  bool has_posted(size_t role) const { return has_posted_[role]; }
  bool all_posted() const { return num_posted_ == posted_.size(); }

  // By the last one to post.
  std::span<const Operation> posted() const { return posted_; }
  void refuse(std::string disagreement);
  void make_ready();
  /// Little enough that the last one to post does it at once. Where ranks share cores that is more: the others are
  /// woken once, when it is done, and not before that, to take a core from someone and find little left to do.
  bool is_small(bool has_core_per_rank) const;

  // By anyone.
  State state() const { return state_.load(); }
  /// Ends a wait, for good or bad.
  bool is_settled() const { return state() == State::kDone || state() == State::kRefused; }
  const std::string& disagreement() const { return disagreement_; }
  bool has_pieces_left() const {
    return state() == State::kReady && !is_abandoned() && next_piece_.load() < pieces_.size();
  }
  /// Does pieces until none is left; whether that made it done.
  bool help();
  /// No piece is begun any more, and none is being done when this returns: the role's buffers are free.
  void abandon(size_t role) noexcept;
  bool is_abandoned() const { return abandoned_by_.load() >= 0; }
  std::optional<size_t> abandoned_by() const;

 private:
  std::vector<Operation> posted_;
  std::vector<bool> has_posted_;
  size_t num_posted_ = 0;
  std::string disagreement_;

  std::vector<Piece> pieces_;
  int64_t num_bytes_ = 0;                                    ///< of all pieces
  alignas(64) std::atomic<State> state_{State::kGathering};  ///< waiting ranks look at this and nothing else
  alignas(64) std::atomic<size_t> next_piece_{0};
  std::atomic<size_t> num_done_{0};
  std::atomic<int> num_helpers_{0};
  std::atomic<int> num_users_{0};
  std::atomic<int> abandoned_by_{-1};
};

/// Owns meetings, and keeps those that are over for the next time: memory that one thread takes and another gives back
/// is slow, and meetings are many.
class MeetingPool {
 public:
  Meeting& take(size_t num_roles);
  void give(Meeting& meeting) { free_.push_back(&meeting); }

 private:
  std::deque<Meeting> all_;
  std::vector<Meeting*> free_;
};

/// The meetings of the same roles, in the order in which each role comes to them.
class MeetingQueue {
 public:
  explicit MeetingQueue(size_t num_roles) : next_(num_roles, 0) {}

  /// The next meeting of this role.
  Meeting& next(size_t role, MeetingPool& pool);
  /// Forgets meetings that all have come to; those who came hold them.
  void trim();

 private:
  std::deque<Meeting*> meetings_;
  uint64_t first_ = 0;          ///< the number of the front
  std::vector<uint64_t> next_;  ///< by role
};

}  // namespace weft
