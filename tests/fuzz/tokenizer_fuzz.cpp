#include <algorithm>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/base/utf8.h"
#include "weft/data/text/tokenizer.h"

using namespace weft;

/// A tokenizer that is read takes any text, gives tokens that it has, in their order in the text, and gives the same
/// text back from a stream as at once.
int weft::fuzz_tokenizer(const uint8_t* data, size_t size) {
  const Result<Document> document = document_of(data, size);
  if (!document) return 0;
  const Result<Tokenizer> tokenizer = Tokenizer::read(*document);
  if (!tokenizer) {
    claim_good_message(tokenizer);
    return 0;
  }
  PieceCache cache;
  std::vector<int64_t> ids;
  std::vector<size_t> begins;
  tokenizer->encode(as_text(data, size), cache, ids, &begins);
  claim(begins.size() == ids.size() && std::is_sorted(begins.begin(), begins.end()));
  claim(begins.empty() || begins.back() <= with_replacements(as_text(data, size)).size());
  StreamDecoder stream(*tokenizer);
  std::string text;
  for (const int64_t id : ids) {
    claim(id >= 0 && id < tokenizer->size());
    text += stream.add(id);
  }
  text += stream.finish();
  claim(is_valid_utf8(text) && text == tokenizer->decode(ids));
  return 0;
}
