#pragma once

#include <optional>
#include <vector>

#include "weft/meaning/step_routes.h"
#include "weft/simulate/flights.h"

namespace weft {

/// One rank's end of the bridge between an encoder and the llm, counted as pipeline/encoder_bridge has it.
class BridgeWalk {
 public:
  /// Nothing where no rows come from the rank or go to it.
  static std::optional<BridgeWalk> make(const Plan& plan, const StepLoad& load, size_t encoder, int64_t rank,
                                        ByteCount& count, Flights& flights);

  void send_rows(int64_t macro, const CountedTensor& rows);
  void receive_rows(int64_t macro);
  CountedTensor take_rows(int64_t microbatch);
  /// Of what a microbatch takes in, which may be a part of what a macro batch has here.
  int64_t bytes_taken(int64_t microbatch) const;
  void give_gradient(int64_t microbatch, const CountedTensor& gradient);
  void send_gradients(int64_t macro);
  void receive_gradients(int64_t macro);
  CountedTensor take_gradient(int64_t macro) {
    return std::exchange(macros_[static_cast<size_t>(macro)].back.result, {});
  }

 private:
  /// Rows of a microbatch that lie together in what this rank takes of a macro batch.
  struct Run {
    int64_t macro = 0;
    int64_t count = 0;
  };
  struct Way {
    CountedTensor own;     ///< what was sent, where this rank needs some of it itself
    CountedTensor result;  ///< what comes
  };
  struct Macro {
    Way there;
    Way back;
    CountedTensor gradient;
    int64_t num_unread = 0;
  };

  BridgeWalk(StepRoutes routes, int64_t row_bytes, ByteCount& count, Flights& flights)
      : routes_(std::move(routes)), row_bytes_(row_bytes), count_(&count), flights_(&flights) {}
  CountedTensor make_rows(int64_t rows) const { return {*count_, rows * row_bytes_}; }
  void send(const OwnRoute& route, const CountedTensor& rows, Way& way);
  void receive(const OwnRoute& route, Way& way);

  StepRoutes routes_;
  int64_t row_bytes_;
  ByteCount* count_;
  Flights* flights_;
  std::vector<Macro> macros_;
  std::vector<std::vector<Run>> runs_;  ///< by microbatch
};

}  // namespace weft
