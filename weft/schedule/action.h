#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weft/base/result.h"

namespace weft {

/// What a rank does in one step of its row.
enum class ActionKind : uint8_t {
  kForward,           ///< F
  kBackward,          ///< B, the whole backward
  kBackwardInput,     ///< I, the input's gradient
  kBackwardWeight,    ///< W, the weights' gradients, any time after I
  kSendForward,       ///< SEND_F: this stage's output to the next stage
  kRecvForward,       ///< RECV_F: this stage's input from the stage before
  kSendBackward,      ///< SEND_B: this stage's input gradient to the stage before
  kRecvBackward,      ///< RECV_B: this stage's output gradient from the next stage
  kReduceGrad,        ///< REDUCE_GRAD: the stage's gradients over data-parallel ranks
  kUpdate,            ///< UPDATE: the stage's optimizer step
  kEncodeForward,     ///< EF: an encoder's forward of a macro batch
  kEncodeBackward,    ///< EB: an encoder's backward of a macro batch
  kEncodeReduce,      ///< ER: the encoder's gradients over its data-parallel ranks
  kEncodeUpdate,      ///< EU: the encoder's optimizer step
  kSendRows,          ///< SEND_R: a macro batch's rows, from the encoder's last stage to where the llm begins
  kRecvRows,          ///< RECV_R: the same there
  kSendRowGrads,      ///< SEND_G: their gradients back
  kRecvRowGrads,      ///< RECV_G: the same at the encoder's last stage
  kSendEncoded,       ///< SEND_EF: a macro batch's activations, to the next stage of the encoder's own pipeline
  kRecvEncoded,       ///< RECV_EF: the same there
  kSendEncodedGrads,  ///< SEND_EB: their gradients back
  kRecvEncodedGrads,  ///< RECV_EB: the same there
};

inline constexpr int kNumActionKinds = 22;

/// One action, printed as in PyTorch's pipelining: 2F0 is stage 2, forward, microbatch 0. For encoder actions `stage`
/// is the encoder's index and `microbatch` the macro batch: 0EF3. Actions of a whole stage or encoder have no
/// microbatch: 2REDUCE_GRAD.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int32_t stage = 0;
  int32_t microbatch = -1;

  bool operator==(const Action&) const = default;
};

/// F, B, I or W.
constexpr bool is_pipeline_compute(ActionKind kind) {
  return kind <= ActionKind::kBackwardWeight;
}
/// B or I: the stage's input gradient exists from then on.
constexpr bool makes_gradient(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
}
constexpr bool is_transfer(ActionKind kind) {
  return kind >= ActionKind::kSendForward && kind <= ActionKind::kRecvBackward;
}
constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kSendBackward || kind == ActionKind::kSendRows ||
         kind == ActionKind::kSendRowGrads || kind == ActionKind::kSendEncoded || kind == ActionKind::kSendEncodedGrads;
}
/// `stage` is an encoder's index.
constexpr bool is_encoder(ActionKind kind) {
  return kind >= ActionKind::kEncodeForward;
}
/// EF or EB.
constexpr bool is_encoder_compute(ActionKind kind) {
  return kind == ActionKind::kEncodeForward || kind == ActionKind::kEncodeBackward;
}
/// Between an encoder and the llm.
constexpr bool is_row_transfer(ActionKind kind) {
  return kind >= ActionKind::kSendRows && kind <= ActionKind::kRecvRowGrads;
}
/// Between two stages of an encoder's own pipeline.
constexpr bool is_encoder_transfer(ActionKind kind) {
  return kind >= ActionKind::kSendEncoded;
}
/// ER or EU.
constexpr bool ends_encoder(ActionKind kind) {
  return kind == ActionKind::kEncodeReduce || kind == ActionKind::kEncodeUpdate;
}
/// Of any kind of transfer.
constexpr bool moves_tensors(ActionKind kind) {
  return is_transfer(kind) || is_row_transfer(kind) || is_encoder_transfer(kind);
}
constexpr bool has_microbatch(ActionKind kind) {
  return kind != ActionKind::kReduceGrad && kind != ActionKind::kUpdate && !ends_encoder(kind);
}

/// The SEND of a pipeline's transfer, of which `transfer` is one of the two ends.
Action sent_by(const Action& transfer);

std::string_view name_of(ActionKind kind);
std::string to_text(const Action& action);

/// The inverse of to_text. The error's problem says what is wrong with the word.
Result<Action> parse_action(std::string_view word);

}  // namespace weft
