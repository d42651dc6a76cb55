#include "weft/engine/metrics_hook.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace weft {
namespace {

Error cannot_start(const std::string& command, int reason) {
  return {.kind = ErrorKind::kJob,
          .source = "on_metrics",
          .problem = fmt::format("'{}' cannot be started: {}", command, std::strerror(reason)),
          .advice = "Check the command, or leave it out."};
}

}  // namespace

Result<std::unique_ptr<MetricsHook>> MetricsHook::start(const std::string& command) {
  // A socket, since writing to a pipe that nobody reads any more would end the run.
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return cannot_start(command, errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Ctrl-C is for the run, which ends the command's input when it has ended itself.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::string shell = "sh", flag = "-c", text = command;
  char* arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
  pid_t process = -1;
  const int failed = posix_spawn(&process, "/bin/sh", &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    return cannot_start(command, failed);
  }
  return std::unique_ptr<MetricsHook>(new MetricsHook(process, ends[0]));
}

std::optional<std::string> MetricsHook::send(const std::string& line) {
  if (has_ended_) return std::nullopt;
  const bool has_rest = !unsent_.empty();
  std::string bytes = has_rest ? unsent_ : line;
  const auto put = [&]() -> ssize_t {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  };
  ssize_t sent = put();
  if (has_rest && sent == std::ssize(bytes)) {
    unsent_.clear();
    bytes = line;
    sent = put();
  }
  if (sent == std::ssize(bytes)) return std::nullopt;
  if (sent >= 0 || errno == EAGAIN || errno == EWOULDBLOCK) {
    // A line whose beginning went must be finished; one of which nothing went is left out.
    if (sent > 0 || has_rest) unsent_ = sent > 0 ? bytes.substr(static_cast<size_t>(sent)) : unsent_;
    if (std::exchange(is_behind_, true)) return std::nullopt;
    return "on_metrics does not keep up with the run: it misses some lines, which metrics.jsonl has";
  }
  has_ended_ = true;
  return "on_metrics has ended, and gets no more lines";
}

MetricsHook::~MetricsHook() {
  close(socket_);
  constexpr int kTries = 100;
  for (int tries = 0; tries < kTries; ++tries) {
    if (waitpid(process_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace weft
