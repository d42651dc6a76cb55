#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "weft/comm/comm_options.h"
#include "weft/comm/cuda/cuda_device.h"
#include "weft/comm/operation.h"
#include "weft/comm/work.h"

namespace weft {

/// Operations in which a rank has only itself to talk to: the collectives of a group of one, and messages of a rank to
/// itself. They are copies: of GPU memory on the caller's stream, of the host's at once.
class OwnCopies : public std::enable_shared_from_this<OwnCopies> {
 public:
  explicit OwnCopies(const CommOptions& options) : timeout_(options.timeout) {}
  std::unique_ptr<WorkState> start(const Operation& operation);

 private:
  /// A message that was sent or is to be received, and waits for its other side.
  struct Message;
  class MessageWork;

  std::unique_ptr<WorkState> start_message(const Operation& operation);
  void copy(const ConstBuffer& in, const Buffer& out);

  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<CudaDevice>> devices_;
  std::deque<std::shared_ptr<Message>> sends_, recvs_;  ///< one of them is empty
};

}  // namespace weft
