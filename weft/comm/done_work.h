#pragma once

#include "weft/comm/work.h"

namespace weft {

/// An operation that was done when it was started, as far as its caller can tell: what is ordered on the caller's
/// stream counts as done.
class DoneWork : public WorkState {
 public:
  bool poll() override { return true; }
  void wait() override {}
  void abandon() noexcept override {}
};

}  // namespace weft
