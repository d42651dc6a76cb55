#pragma once

#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>

#include "weft/base/result.h"

namespace weft {

/// A command of the user's own that gets lines of metrics on its standard input, beside the run: a line that it is too
/// slow for is left out, and a command that ends gets no more.
class MetricsHook {
 public:
  /// Starts the command in a shell.
  static Result<std::unique_ptr<MetricsHook>> start(const std::string& command);
  /// Ends its input and gives it some seconds to finish.
  ~MetricsHook();
  MetricsHook(const MetricsHook&) = delete;
  MetricsHook& operator=(const MetricsHook&) = delete;

  /// What there is to note, once: that it has ended, or that it does not keep up.
  std::optional<std::string> send(const std::string& line);

 private:
  MetricsHook(pid_t process, int socket) : process_(process), socket_(socket) {}

  pid_t process_;
  int socket_;
  std::string unsent_;  ///< of a line that went in part
  bool has_ended_ = false;
  bool is_behind_ = false;
};

}  // namespace weft
