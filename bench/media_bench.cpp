// Pictures to patches and sound to features, on one core: weft_media_bench KIND FILE ROUNDS prints the processor time
// of each round in milliseconds. KIND is patches (of the decoded picture), picture (decoding included), features (of
// the decoded sound) or sound. bench/media_bench.py runs it beside transformers.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "weft/prepare/decode_image.h"
#include "weft/prepare/log_mel.h"
#include "weft/prepare/patches.h"
#include "weft/prepare/waveform.h"

namespace {

using namespace weft;

double processor_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

template <typename T>
T value_of(Result<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "weft_media_bench: %s\n", result.error().message().c_str());
  std::exit(2);
}

/// Into new memory every time, as transformers does.
float patches_of(const Pixels& picture) {
  const PatchRules rules;
  const PixelSize size = value_of(resized_size(rules, {picture.height, picture.width}, "picture"));
  const int64_t num_patches = patch_grid(rules, size, 1).num_patches();
  std::vector<float> values(static_cast<size_t>(num_patches * rules.values_per_patch()));
  const Pixels* frame = &picture;
  prepare_patches({&frame, 1}, rules, size, {0, num_patches}, values);
  return values.back();
}

template <typename Work>
void measure(int rounds, Work work) {
  float kept = 0;
  for (int i = 0; i < rounds; ++i) {
    const double begin = processor_ms();
    kept += work();
    std::printf("%.4f\n", processor_ms() - begin);
  }
  std::fprintf(stderr, "%g\n", static_cast<double>(kept));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: weft_media_bench patches|picture|features|sound FILE ROUNDS\n");
    return 2;
  }
  const std::string_view kind = argv[1];
  const std::filesystem::path file = argv[2];
  const int rounds = std::atoi(argv[3]);
  const LogMel mel(MelRules{});
  if (kind == "patches") {
    const Pixels picture = value_of(read_image(file));
    measure(rounds, [&] { return patches_of(picture); });
  } else if (kind == "picture") {
    measure(rounds, [&] { return patches_of(value_of(read_image(file))); });
  } else if (kind == "features") {
    const Waveform sound = resampled(value_of(read_audio(file)), MelRules::kRateHz);
    measure(rounds, [&] { return mel.features(sound.samples).back(); });
  } else if (kind == "sound") {
    measure(rounds,
            [&] { return mel.features(resampled(value_of(read_audio(file)), MelRules::kRateHz).samples).back(); });
  } else {
    std::fprintf(stderr, "weft_media_bench: unknown kind %s\n", argv[1]);
    return 2;
  }
  return 0;
}
