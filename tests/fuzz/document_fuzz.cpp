#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"

using namespace weft;

/// Both syntaxes on every input; what JSON accepts must survive being written and read again.
int weft::fuzz_document(const uint8_t* data, size_t size) {
  const DocumentLimits limits{.max_bytes = 1 << 16, .max_values = 10'000};
  for (const Syntax syntax : {Syntax::kJson, Syntax::kYaml}) {
    const Result<Document> document = parse_document(as_text(data, size), "input", syntax, limits);
    if (!document) {
      claim_good_message(document);
      continue;
    }
    if (syntax == Syntax::kJson) {
      const Result<Document> again =
          parse_document(document->root.dump(), "again", Syntax::kJson, {.max_bytes = 1 << 20});
      claim(again.ok() && again->root == document->root);
    }
  }
  return 0;
}
