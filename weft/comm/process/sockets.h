#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

/// A file descriptor that is closed at the end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }

  int get() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  void close();

 private:
  int number_ = -1;
};

/// Where to reach a listening process: the addresses of its host and a port.
struct ListenAddress {
  std::vector<uint32_t> hosts;  ///< IPv4, in network order
  uint16_t port = 0;
};

/// Listens on a port, 0: a free one, of this host alone or of all its networks. Throws std::system_error.
std::pair<Descriptor, ListenAddress> listen_for_ranks(bool is_local, uint16_t port = 0);
/// Tries the addresses in turn. Throws std::runtime_error if none answers.
Descriptor connect_to(const ListenAddress& address);
/// The same, but not open if none answers.
Descriptor try_to_connect(const ListenAddress& address);
/// The IPv4 addresses of a host's name, in network order; empty if it has none.
std::vector<uint32_t> addresses_of(const std::string& host);

/// Writes everything, or returns false: the other side is gone.
bool write_all(int descriptor, std::string_view bytes);
/// Appends what there is; false at the end of the stream. Waits if there is nothing.
bool read_some(int descriptor, std::string& bytes);

}  // namespace weft
