// weft_tokenizer_bench FOLDER FILE: megabytes of the file that are tokenized in a second of processor time, on one
// thread, with FOLDER/tokenizer.json. bench/tokenizer.py runs it beside Hugging Face's tokenizers.
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "weft/base/file.h"
#include "weft/data/text/tokenizer.h"

namespace {

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: weft_tokenizer_bench FOLDER FILE\n");
    return 2;
  }
  const auto tokenizer = weft::Tokenizer::read_folder(argv[1]);
  const auto text = weft::read_file(argv[2], size_t{1} << 30);
  if (!tokenizer || !text) {
    std::fprintf(stderr, "%s\n", (!tokenizer ? tokenizer.error() : text.error()).message().c_str());
    return 2;
  }
  double best = 0;
  size_t num_tokens = 0;
  for (int round = 0; round < 5; ++round) {
    weft::PieceCache cache;
    std::vector<int64_t> ids;
    const double begin = processor_seconds();
    // In parts as large as a document, as samples are.
    constexpr size_t kPart = 20'000;
    for (size_t i = 0; i < text->size(); i += kPart) {
      tokenizer->encode(std::string_view(*text).substr(i, kPart), cache, ids);
    }
    const double rate = static_cast<double>(text->size()) * 1e-6 / (processor_seconds() - begin);
    best = rate > best ? rate : best;
    num_tokens = ids.size();
  }
  std::printf("%.1f MB/s, %zu tokens\n", best, num_tokens);
  return 0;
}
