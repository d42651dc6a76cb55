#include "weft/comm/process/sockets.h"

#include <arpa/inet.h>
#include <cerrno>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace weft {
namespace {

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::vector<uint32_t> addresses_of_this_host() {
  std::vector<uint32_t> hosts;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) throw_errno("the addresses of this host");
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const bool is_usable = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_usable || one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    hosts.push_back(reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr);
  }
  freeifaddrs(first);
  return hosts;
}

bool connects(int descriptor, const sockaddr_in& address) {
  constexpr int kPatience_ms = 3000;
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd waiting{.fd = descriptor, .events = POLLOUT};
  if (poll(&waiting, 1, kPatience_ms) != 1) return false;
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    number_ = std::exchange(other.number_, -1);
  }
  return *this;
}

void Descriptor::close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

std::pair<Descriptor, ListenAddress> listen_for_ranks(bool is_local, uint16_t port) {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(is_local ? INADDR_LOOPBACK : INADDR_ANY)}};
  socklen_t length = sizeof(address);
  // A given port may still be known from the run before.
  const int on = 1;
  if (port != 0) setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!listener.is_open() || bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0 ||
      getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw_errno("listening for the other ranks");
  }
  ListenAddress where{.hosts = {htonl(INADDR_LOOPBACK)}, .port = ntohs(address.sin_port)};
  if (!is_local) where.hosts = addresses_of_this_host();
  return {std::move(listener), std::move(where)};
}

std::vector<uint32_t> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  std::vector<uint32_t> found;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &first) != 0) return found;
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next)
    found.push_back(reinterpret_cast<const sockaddr_in*>(one->ai_addr)->sin_addr.s_addr);
  freeaddrinfo(first);
  return found;
}

Descriptor try_to_connect(const ListenAddress& address) {
  for (const uint32_t host : address.hosts) {
    Descriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!connection.is_open()) throw_errno("a connection to rank 0");
    if (!connects(connection.get(), {.sin_family = AF_INET, .sin_port = htons(address.port), .sin_addr = {host}})) {
      continue;
    }
    const int on = 1;
    setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return connection;
  }
  return {};
}

Descriptor connect_to(const ListenAddress& address) {
  Descriptor connection = try_to_connect(address);
  if (connection.is_open()) return connection;
  throw std::runtime_error("rank 0 cannot be reached over TCP, by which ranks tell each other how they end");
}

bool write_all(int descriptor, std::string_view bytes) {
  constexpr int kPatience_ms = 2000;
  while (!bytes.empty()) {
    const ssize_t written = send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    pollfd waiting{.fd = descriptor, .events = POLLOUT};
    if (errno != EAGAIN || poll(&waiting, 1, kPatience_ms) != 1) return false;
  }
  return true;
}

bool read_some(int descriptor, std::string& bytes) {
  char chunk[4096];
  for (;;) {
    const ssize_t count = recv(descriptor, chunk, sizeof(chunk), 0);
    if (count > 0) {
      bytes.append(chunk, static_cast<size_t>(count));
      return true;
    }
    if (count < 0 && errno == EINTR) continue;
    return count < 0 && errno == EAGAIN;
  }
}

}  // namespace weft
