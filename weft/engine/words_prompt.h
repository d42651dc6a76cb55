#pragma once

#include "weft/data/text/tokenizer.h"
#include "weft/engine/predict_request.h"
#include "weft/models/inputs.h"
#include "weft/spec/model.h"

namespace weft {

/// A question in words as a model takes it in: written by its chat template, with its media decoded.
struct WordsPrompt {
  RawInputs raw;
  Tokenizer tokenizer;  ///< for what follows
};

/// Where a text has no place for media, they stand before it.
Result<WordsPrompt> read_words_prompt(const Model& model, const ModelNumbers& numbers, int64_t vocabulary,
                                      const PredictRequest& request);

}  // namespace weft
