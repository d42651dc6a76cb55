// Runs a fuzz target over files: weft_fuzz_replay TARGET FOLDER_OR_FILE ... Ends abnormally where the fuzzer would.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/fuzz/targets.h"

#ifdef WEFT_REPLAYS_CHECKPOINTS
constexpr auto& kTargets = weft::kCheckpointTargets;
#else
constexpr auto& kTargets = weft::kFuzzTargets;
#endif

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: weft_fuzz_replay TARGET FOLDER_OR_FILE ...\n");
    return 2;
  }
  const std::string name = argv[1];
  const auto target = std::find_if(std::begin(kTargets), std::end(kTargets),
                                   [&](const weft::FuzzTarget& known) { return name == known.name; });
  if (target == std::end(kTargets)) {
    std::fprintf(stderr, "weft_fuzz_replay: %s is not a target\n", name.c_str());
    return 2;
  }
  int num_files = 0;
  const auto replay = [&](const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    const std::string bytes = text.str();
    std::fprintf(stderr, "%s\n", path.c_str());
    target->run(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    ++num_files;
  };
  for (int i = 2; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      replay(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (entry.is_regular_file()) replay(entry.path());
    }
  }
  std::printf("%d files replayed\n", num_files);
  return num_files > 0 ? 0 : 1;
}
