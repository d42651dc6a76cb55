#include "weft/families/plain_decoder.h"

namespace weft {

Json plain_decoder_config(const DecoderSizes& sizes) {
  return {{"model_type", "gpt2"},        {"n_embd", sizes.width},          {"n_head", sizes.heads},
          {"n_layer", sizes.layers},     {"n_positions", sizes.positions}, {"vocab_size", sizes.vocabulary},
          {"tie_word_embeddings", false}};
}

}  // namespace weft
