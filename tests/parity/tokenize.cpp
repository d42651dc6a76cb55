// weft_tokenize FOLDER: texts from standard input, each after its length as four bytes, to standard output: of each its
// tokens after their number, and the text that they are decoded to after its length. check_tokenizers.py compares them.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "weft/data/text/tokenizer.h"

namespace {

void write(const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, stdout) != bytes) std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: weft_tokenize FOLDER\n");
    return 2;
  }
  const auto tokenizer = weft::Tokenizer::read_folder(argv[1]);
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message().c_str());
    return 2;
  }
  weft::PieceCache cache;
  std::string text;
  uint32_t length = 0;
  while (std::fread(&length, sizeof length, 1, stdin) == 1) {
    text.resize(length);
    if (std::fread(text.data(), 1, length, stdin) != length) return 1;
    std::vector<int64_t> ids;
    std::vector<size_t> begins;
    tokenizer->encode(text, cache, ids, &begins);
    const auto count = static_cast<uint32_t>(ids.size());
    write(&count, sizeof count);
    write(ids.data(), ids.size() * sizeof(int64_t));
    const std::string decoded = tokenizer->decode(ids);
    const auto size = static_cast<uint32_t>(decoded.size());
    write(&size, sizeof size);
    write(decoded.data(), decoded.size());
  }
  return 0;
}
