#include "weft/comm/process/watch.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <poll.h>
#include <pthread.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/check.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

/// After SIGTERM: how long news of who died may take, before the signal itself is the reason.
constexpr auto kNewsPatience = std::chrono::milliseconds(200);
/// A launcher that has sent SIGTERM sends SIGKILL a second later; what there is to say is said before.
constexpr auto kAfterSigterm = std::chrono::milliseconds(450);

constexpr char kFailed = 'F', kLeft = 'L', kGoodbye = 'G', kNotice = 'N';

struct FrameHead {
  int64_t about = 0;
  uint32_t length = 0;
  char kind = 0;
  char padding[3] = {};
};
/// What no frame of ours exceeds; a longer one is not ours.
constexpr uint32_t kMostFrameBytes = 64u << 20;

std::string frame(char kind, int64_t about, const std::string& text) {
  const FrameHead head{.about = about, .length = static_cast<uint32_t>(text.size()), .kind = kind};
  return std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + text;
}

std::string packed(const OperationCounts& counts) {
  std::string bytes;
  for (const auto& [key, count] : counts) {
    bytes.append(reinterpret_cast<const char*>(&key), sizeof(key));
    bytes.append(reinterpret_cast<const char*>(&count), sizeof(count));
  }
  return bytes;
}

OperationCounts unpacked(const std::string& bytes) {
  OperationCounts counts;
  for (size_t at = 0; at + 16 <= bytes.size(); at += 16) {
    uint64_t key = 0, count = 0;
    std::memcpy(&key, bytes.data() + at, 8);
    std::memcpy(&count, bytes.data() + at + 8, 8);
    counts[key] = count;
  }
  return counts;
}

void signal_event(int descriptor) {
  const uint64_t one = 1;
  // An event that is already pending is as good.
  [[maybe_unused]] const ssize_t written = write(descriptor, &one, sizeof(one));
}

// A signal handler reaches nothing but what is global.
std::atomic<int> sigterm_event{-1};
std::atomic<bool> has_sigterm{false};
using SignalHandler = void (*)(int);
std::atomic<SignalHandler> program_handler{nullptr};

void on_sigterm(int signal) {
  const int kept = errno;
  has_sigterm = true;
  if (const int event = sigterm_event; event >= 0) signal_event(event);
  if (const SignalHandler handler = program_handler) handler(signal);
  errno = kept;
}

}  // namespace

Watch::Watch(int64_t rank, std::vector<RankConnection> connections, Options options)
    : rank_(rank), options_(std::move(options)) {
  for (RankConnection& connection : connections) connections_.push_back({{std::move(connection)}, {}, false});
  wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  WEFT_CHECK(wake_.is_open(), "no event descriptor: {}", std::strerror(errno));
  sigterm_event = wake_.get();
  struct sigaction action {};
  action.sa_handler = on_sigterm;
  action.sa_flags = SA_RESTART;
  struct sigaction before {};
  sigaction(SIGTERM, nullptr, &before);
  ends_itself_ = before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN;
  program_handler = ends_itself_ ? before.sa_handler : nullptr;
  sigaction(SIGTERM, &action, nullptr);
  thread_ = std::thread([this] { listen(); });
  pthread_setname_np(thread_.native_handle(), "weft watch");
}

Watch::~Watch() {
  sigterm_event = -1;
  std::signal(SIGTERM, ends_itself_ ? program_handler.load() : SIG_DFL);
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  signal_event(wake_.get());
  thread_.join();
}

std::optional<RankNews> Watch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Watch::announce(const RankNews& news) {
  fail(news);
  pass_on(kFailed, news.rank, news.how, -1);
}

void Watch::leave(const OperationCounts& counts) {
  hear(rank_, kLeft, rank_, packed(counts));
}

std::optional<uint64_t> Watch::started_by_left(int64_t rank, uint64_t key) const {
  const std::lock_guard lock(mutex_);
  const auto left = left_.find(rank);
  if (left == left_.end()) return {};
  const auto count = left->second.find(key);
  return count == left->second.end() ? 0 : count->second;
}

void Watch::post(uint64_t key, const std::string& notice) {
  hear(rank_, kNotice, static_cast<int64_t>(key), notice);
}

std::optional<std::string> Watch::posted(uint64_t key) const {
  const std::lock_guard lock(mutex_);
  const auto found = notices_.find(key);
  if (found == notices_.end()) return {};
  return found->second;
}

void Watch::say_goodbye() {
  stand_down();
  pass_on(kGoodbye, rank_, "", -1);
}

void Watch::stand_down() {
  const std::lock_guard lock(mutex_);
  has_stood_down_ = true;
}

void Watch::fail(const RankNews& news) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = news;
    end_at_ = Clock::now() + options_.grace;
  }
  has_failed_ = true;
  signal_event(wake_.get());
}

void Watch::pass_on(char kind, int64_t about, const std::string& text, int64_t except) {
  const std::string bytes = frame(kind, about, text);
  const std::lock_guard lock(write_mutex_);
  for (Connection& connection : connections_) {
    if (connection.rank == except || !connection.socket.is_open()) continue;
    // Whoever cannot be written to is gone, which its connection's end tells.
    write_all(connection.socket.get(), bytes);
  }
}

void Watch::hear(int64_t from, char kind, int64_t about, const std::string& text) {
  if (kind == kFailed) fail({.rank = about, .how = text});
  if (kind == kLeft) {
    const std::lock_guard lock(mutex_);
    left_[about] = unpacked(text);
    num_left_ = static_cast<int64_t>(left_.size());
  }
  if (kind == kNotice) {
    const std::lock_guard lock(mutex_);
    notices_[static_cast<uint64_t>(about)] = text;
  }
  // Rank 0 tells everyone; the others' only connection is to it.
  if (kind != kGoodbye && (rank_ == 0 || from == rank_)) pass_on(kind, about, text, from);
}

void Watch::handle(Connection& connection) {
  const bool is_open = read_some(connection.socket.get(), connection.received);
  std::string& bytes = connection.received;
  FrameHead head;
  while (bytes.size() >= sizeof(head)) {
    std::memcpy(&head, bytes.data(), sizeof(head));
    if (head.length > kMostFrameBytes || bytes.size() < sizeof(head) + head.length) break;
    const std::string text = bytes.substr(sizeof(head), head.length);
    bytes.erase(0, sizeof(head) + head.length);
    if (head.kind == kGoodbye) connection.said_goodbye = true;
    hear(connection.rank, head.kind, head.about, text);
  }
  if (is_open) return;
  {
    const std::lock_guard lock(write_mutex_);
    connection.socket.close();
  }
  if (connection.said_goodbye) return;
  const RankNews news{.rank = connection.rank, .how = "ended without a word (it was killed, or it exited)"};
  hear(connection.rank, kFailed, news.rank, news.how);
}

std::optional<std::chrono::milliseconds> Watch::until_next_deadline() {
  const std::lock_guard lock(mutex_);
  std::optional<Clock::time_point> next;
  if (!has_stood_down_) {
    next = end_at_;
    if (asked_to_end_ && !failure_) next = *asked_to_end_ + kNewsPatience;
  }
  if (!next) return {};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

void Watch::meet_deadlines() {
  const auto now = Clock::now();
  bool is_unexplained = false;
  std::optional<RankNews> ending;
  {
    const std::lock_guard lock(mutex_);
    // A program that ends itself is left to it, unless a rank has died: then the launcher has sent the signal.
    if (has_sigterm && !asked_to_end_ && (!ends_itself_ || failure_)) asked_to_end_ = now;
    if (asked_to_end_)
      end_at_ = std::min(end_at_.value_or(*asked_to_end_ + kAfterSigterm), *asked_to_end_ + kAfterSigterm);
    is_unexplained = asked_to_end_ && !failure_ && now >= *asked_to_end_ + kNewsPatience;
    if (end_at_ && now >= *end_at_ && failure_ && !has_stood_down_) ending = failure_;
  }
  if (is_unexplained) fail({.rank = rank_, .how = "was asked to end (SIGTERM), as were others perhaps"});
  if (ending) {
    stand_down();
    options_.end_process(*ending);
  }
}

void Watch::listen() {
  std::vector<pollfd> waiting;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (is_ending_) return;
    }
    waiting.assign(1, {.fd = wake_.get(), .events = POLLIN});
    for (const Connection& connection : connections_)
      waiting.push_back({.fd = connection.socket.get(), .events = POLLIN});
    const auto patience = until_next_deadline();
    const int timeout_ms = patience ? static_cast<int>(patience->count()) : -1;
    if (poll(waiting.data(), waiting.size(), timeout_ms) < 0 && errno != EINTR) return;
    uint64_t ignored = 0;
    while (read(wake_.get(), &ignored, sizeof(ignored)) > 0) {
    }
    for (size_t i = 0; i < connections_.size(); ++i) {
      if ((waiting[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) handle(connections_[i]);
    }
    meet_deadlines();
  }
}

}  // namespace weft
