// libFuzzer's entry to any of the targets, so that one program can be carried to another machine: the environment
// variable WEFT_FUZZ_READER is the target's name.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/targets.h"

namespace {

const weft::FuzzTarget& wanted_target() {
  const char* name = std::getenv("WEFT_FUZZ_READER");
  const auto target = std::find_if(
      std::begin(weft::kFuzzTargets), std::end(weft::kFuzzTargets),
      [&](const weft::FuzzTarget& known) { return name != nullptr && std::string_view(name) == known.name; });
  if (target != std::end(weft::kFuzzTargets)) return *target;
  std::fprintf(stderr, "WEFT_FUZZ_READER is '%s'; give one of", name != nullptr ? name : "");
  for (const weft::FuzzTarget& known : weft::kFuzzTargets) std::fprintf(stderr, " %s", known.name);
  std::fprintf(stderr, "\n");
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const weft::FuzzTarget& target = wanted_target();
  return target.run(data, size);
}
