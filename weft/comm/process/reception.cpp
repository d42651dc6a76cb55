#include "weft/comm/process/reception.h"

#include <algorithm>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <random>
#include <stdexcept>
#include <sys/socket.h>
#include <thread>

#include <fmt/format.h>

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// What a rank says first.
struct Hello {
  uint64_t token = 0;
  int64_t rank = 0;
};

/// What rank 0 answers.
struct Welcome {
  uint64_t token = 0;
  uint64_t run = 0;
};

/// Reads exactly one, and nothing of what comes after it.
template <typename T>
std::optional<T> read_value(int descriptor, milliseconds patience) {
  T value;
  size_t have = 0;
  pollfd waiting{.fd = descriptor, .events = POLLIN};
  while (have < sizeof(T)) {
    if (poll(&waiting, 1, static_cast<int>(patience.count())) != 1) return {};
    const ssize_t count = recv(descriptor, reinterpret_cast<char*>(&value) + have, sizeof(T) - have, 0);
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) return {};
    if (count > 0) have += static_cast<size_t>(count);
  }
  return value;
}

template <typename T>
bool write_value(int descriptor, const T& value) {
  return write_all(descriptor, {reinterpret_cast<const char*>(&value), sizeof(value)});
}

}  // namespace

Reception::Reception(bool is_local) {
  auto [made, address] = listen_for_ranks(is_local);
  listener_ = std::move(made);
  invitation_ = {.token = std::random_device()() * 0x100000001ull + std::random_device()(),
                 .num_hosts = static_cast<uint32_t>(std::min<size_t>(address.hosts.size(), 32)),
                 .port = address.port};
  std::copy_n(address.hosts.begin(), invitation_.num_hosts, invitation_.hosts);
}

Reception::Reception(uint16_t port, uint64_t token) {
  listener_ = listen_for_ranks(false, port).first;
  invitation_ = {.token = token, .port = port};
}

std::vector<RankConnection> Reception::receive(int64_t size, uint64_t run, milliseconds patience) {
  std::vector<RankConnection> visitors;
  const auto until = Clock::now() + patience;
  while (static_cast<int64_t>(visitors.size()) < size - 1) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
    pollfd waiting{.fd = listener_.get(), .events = POLLIN};
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left, 1 << 30))) != 1) {
      throw std::runtime_error(fmt::format("{} of {} other ranks came to rank 0 over TCP within {:g} s",
                                           visitors.size(), size - 1, std::chrono::duration<double>(patience).count()));
    }
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) continue;
    const int on = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const auto hello = read_value<Hello>(socket.get(), milliseconds(5000));
    if (!hello || hello->token != invitation_.token) continue;  // a stranger
    const bool is_known = std::any_of(visitors.begin(), visitors.end(),
                                      [&](const RankConnection& one) { return one.rank == hello->rank; });
    if (hello->rank < 1 || hello->rank >= size || is_known) {
      throw std::runtime_error(fmt::format("rank {} came to rank 0{}, expected each of 1 to {} once", hello->rank,
                                           is_known ? " twice" : "", size - 1));
    }
    visitors.push_back({.rank = hello->rank, .socket = std::move(socket)});
  }
  // Only now, so that whoever is welcome knows that all are there.
  for (const RankConnection& visitor : visitors)
    write_value(visitor.socket.get(), Welcome{.token = invitation_.token, .run = run});
  return visitors;
}

std::vector<RankConnection> visit(const Invitation& invitation, int64_t rank) {
  Descriptor socket = connect_to({.hosts = {invitation.hosts, invitation.hosts + invitation.num_hosts},
                                  .port = static_cast<uint16_t>(invitation.port)});
  write_value(socket.get(), Hello{.token = invitation.token, .rank = rank});
  if (!read_value<Welcome>(socket.get(), std::chrono::seconds(60)))
    throw std::runtime_error("rank 0 answered over TCP, but let nobody in within 60 s");
  std::vector<RankConnection> connections;
  connections.push_back({.rank = 0, .socket = std::move(socket)});
  return connections;
}

Result<Visit> visit(const std::string& host, uint16_t port, uint64_t token, int64_t rank, milliseconds patience) {
  const auto until = Clock::now() + patience;
  const auto refuse = [&](const std::string& problem) {
    return Error{.kind = ErrorKind::kJob,
                 .source = fmt::format("{}:{}", host, port),
                 .problem = fmt::format("rank {}: {} (waited {:g} s)", rank, problem,
                                        std::chrono::duration<double>(patience).count()),
                 .advice =
                     "Give all ranks the MASTER_ADDR and MASTER_PORT of rank 0's host, with a free port, and start "
                     "all of them."};
  };
  std::string last = "the host has no IPv4 address";
  while (Clock::now() < until) {
    const std::vector<uint32_t> hosts = addresses_of(host);
    Descriptor socket;
    if (!hosts.empty()) {
      last = "nobody listens there";
      socket = try_to_connect({.hosts = hosts, .port = port});
    }
    if (socket.is_open()) {
      last = "what listens there is not rank 0 of this run, or rank 0 waits for others";
      write_value(socket.get(), Hello{.token = token, .rank = rank});
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
      const auto welcome = read_value<Welcome>(socket.get(), std::clamp(left, milliseconds(1), milliseconds(1 << 30)));
      if (welcome && welcome->token == token) {
        Visit result{.connections = {}, .run = welcome->run};
        result.connections.push_back({.rank = 0, .socket = std::move(socket)});
        return result;
      }
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
  return refuse(last);
}

}  // namespace weft
