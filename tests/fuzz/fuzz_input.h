#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "weft/base/document.h"

namespace weft {

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// The input as a document, in the syntax that its first character suggests; small limits keep the fuzzer fast.
inline Result<Document> document_of(const uint8_t* data, size_t size) {
  const std::string_view text = as_text(data, size);
  return parse_document(text, "input", syntax_of("input", text), {.max_bytes = 1 << 16, .max_values = 10'000});
}

/// What a fuzz target claims of every input; a false claim ends the run like a crash.
inline void claim(bool holds) {
  if (!holds) std::abort();
}

/// Every refusal is one line that a person can read.
template <typename T>
void claim_good_message(const Result<T>& result) {
  const std::string message = result.error().message();
  claim(!message.empty() && message.size() < 2000 && message.find('\n') == std::string::npos);
}

}  // namespace weft
