#pragma once

#include "weft/program/transformer_block.h"

namespace weft {

/// What a language model begins with: the table of its vocabulary. `padding_id` is an entry that stays zero, or -1.
Block make_embedding(int64_t vocabulary, int64_t width, int64_t padding_id);

/// What it ends in: norm, logits and loss.
Block make_head(int64_t vocabulary, int64_t width, const Op& norm, bool is_tied);

}  // namespace weft
