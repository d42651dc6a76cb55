// How soon weights can be used: a file of 1 GiB opened and every byte of it touched once through the map, against
// read() of the same bytes into a buffer, both from the page cache, in turn in one run (1.5 times wanted). The buffer
// is reused, which flatters read(); a new one for every round, as loading would need, is beside it.
//   weft_weights_bench [FOLDER]   where the file is made for the while (default: here)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "weft/weights/mapped_file.h"
#include "weft/weights/safetensors_file.h"
#include "weft/weights/safetensors_writer.h"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

constexpr int kTensors = 64;
constexpr int64_t kTensorBytes = 16 << 20;

double seconds(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// Kept, so that no touch is left out.
volatile uint64_t sink = 0;

void touch(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    sum += word;
  }
  sink = sink + sum;
}

bool write_example(const std::filesystem::path& path) {
  std::vector<std::byte> bytes(kTensorBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 % 251);
  std::vector<WeightEntry> entries;
  for (int i = 0; i < kTensors; ++i) {
    entries.push_back({.info = {"layer." + std::to_string(i), WeightType::kBf16, {kTensorBytes / 2}}, .bytes = bytes});
  }
  const auto error = write_safetensors(path, entries, {});
  if (error) std::printf("%s\n", error->message().c_str());
  return !error;
}

void through_the_map(const std::filesystem::path& path, bool announces) {
  const auto file = SafetensorsFile::open(path);
  for (const WeightEntry& entry : file->entries()) {
    if (announces) will_need(entry.bytes);
    touch(entry.bytes);
  }
}

void by_read(const std::filesystem::path& path, std::span<std::byte> buffer) {
  const int file = open(path.c_str(), O_RDONLY);
  size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t got = read(file, buffer.data() + done, buffer.size() - done);
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  close(file);
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path path = std::filesystem::path(argc > 1 ? argv[1] : ".") / "weights_bench.safetensors";
  if (!write_example(path)) return 1;
  const size_t size = std::filesystem::file_size(path);
  std::vector<std::byte> buffer(size);
  std::vector<double> map, announced, reused, fresh, open_only;
  for (int round = 0; round < 11; ++round) {
    open_only.push_back(seconds([&] { (void)SafetensorsFile::open(path); }));
    map.push_back(seconds([&] { through_the_map(path, false); }));
    reused.push_back(seconds([&] { by_read(path, buffer); }));
    announced.push_back(seconds([&] { through_the_map(path, true); }));
    fresh.push_back(seconds([&] {
      void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      by_read(path, {static_cast<std::byte*>(memory), size});
      munmap(memory, size);
    }));
  }
  std::filesystem::remove(path);
  std::printf("1 GiB in %d tensors, warm, medians of %zu rounds\n", kTensors, map.size());
  std::printf("open alone:                      %8.3f ms\n", 1e3 * median(open_only));
  std::printf("open and touch through the map:  %8.1f ms\n", 1e3 * median(map));
  std::printf("  the same, announced:           %8.1f ms\n", 1e3 * median(announced));
  std::printf("read() into a buffer used before:%8.1f ms: the map takes %.2f times as long\n", 1e3 * median(reused),
              median(map) / median(reused));
  std::printf("read() into a new buffer:        %8.1f ms: the map takes %.2f times as long\n", 1e3 * median(fresh),
              median(map) / median(fresh));
  return 0;
}
