#pragma once

#include <cstdint>
#include <vector>

#include "weft/data/conversations/conversation.h"
#include "weft/data/conversations/media_tokens.h"
#include "weft/data/conversations/model_text.h"

namespace weft {

/// What is learnt of a conversation.
enum class LossOn : uint8_t {
  kAssistant,  ///< every turn of the assistant, with the token that ends it
  kLastTurn,   ///< its last turn
  kEverything
};

/// The names "assistant", "last_turn" and "everything".
const std::vector<std::string>& loss_names();

struct EncodeSettings {
  LossOn loss = LossOn::kAssistant;
  int64_t cutoff_tokens = 0;  ///< longer conversations are cut there; 0: none is
  int64_t max_tokens = 0;     ///< as many as the model has positions; 0: any number
  bool asks = false;          ///< for an answer, which the text ends before: nothing is learnt
};

/// A conversation in tokens. A media token is repeated as often as its media have embeddings.
struct EncodedText {
  std::vector<int64_t> ids;
  std::vector<int64_t> targets;  ///< of each token the next one, or kNoTarget
  bool is_cut = false;
};

/// Bytes of the rendered text that are learnt. Where the template marks generations these count; else what the template
/// writes for an assistant's message after the text that asks for an answer.
Result<std::vector<TextRange>> learnt_ranges(const ChatTemplate& chat, const ChatTemplate::Request& request,
                                             const ChatTemplate::Rendering& rendering, LossOn loss);

/// `sizes` are of the conversation's media, in order. The error is about this sample alone: a template that refuses it,
/// media that would be cut through, more tokens than the model takes, nothing left to learn.
Result<EncodedText> encode_conversation(const ModelText& text, const ChatTemplate& chat, const MediaTokenRule& rule,
                                        const EncodeSettings& settings, const Conversation& conversation,
                                        const std::vector<MediaSize>& sizes, PieceCache& cache,
                                        const std::string& source);

}  // namespace weft
