#include "weft/program/text_ends.h"

namespace weft {

Block make_embedding(int64_t vocabulary, int64_t width, int64_t padding_id) {
  return {.name = "embedding",
          .ops = {{.name = "embedding",
                   .shape = Lookup{.entries = vocabulary, .width = width, .zero_row = padding_id},
                   .in = Features::kVocabulary}}};
}

Block make_head(int64_t vocabulary, int64_t width, const Op& norm, bool is_tied) {
  return {.name = "head",
          .ops = {norm,
                  {.name = "logits",
                   .shape = Matmul{.in = width, .out = vocabulary, .is_tied = is_tied},
                   .out = Features::kVocabulary,
                   .saved = {.whole = width}},
                  {.name = "loss",
                   .shape = CrossEntropy{.classes = vocabulary},
                   .in = Features::kVocabulary,
                   .out = Features::kVocabulary,
                   .saved = {.divided = vocabulary, .whole_fp32 = 1},
                   .has_whole_rows = true}}};
}

}  // namespace weft
