// How soon a model can run: its parameters made, its weights of about 1 GiB opened, checked and loaded, against read()
// of the same bytes, all from the page cache, in turn in one run (1.5 times wanted). The buffer of read() is reused,
// which flatters it; one with a new buffer, as loading needs, is beside it.
//   weft_load_bench [FOLDER]   where the files are made for the while (default: here)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <ATen/Parallel.h>

#include "bench/must.h"
#include "weft/base/check.h"
#include "weft/models/load_weights.h"
#include "weft/models/network.h"
#include "weft/spec/model_reader.h"
#include "weft/weights/safetensors_writer.h"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

double milliseconds(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void write_config(const std::filesystem::path& folder, int layers) {
  std::ofstream(folder / "config.json")
      << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, "hidden_size": 2048,
             "intermediate_size": 5632, "num_hidden_layers": )"
      << layers << R"(, "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 4096,
             "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true})";
}

/// Weights of small finite numbers, in any of the two types.
void write_weights(const std::filesystem::path& folder, WeightType type) {
  WholeParameters maker(at::TensorOptions().dtype(at::kBFloat16));
  (void)must(Network::create(must(read_model_file(folder)), maker));
  const int64_t element_bytes = type == WeightType::kBf16 ? 2 : 4;
  std::vector<WeightEntry> entries;
  int64_t largest = 0;
  for (const ParameterPtr& parameter : maker.all()) {
    for (const WeightPiece& piece : parameter->spec.pieces) {
      int64_t elements = 1;
      for (const int64_t size : piece.shape) elements *= size;
      largest = std::max(largest, elements * element_bytes);
      entries.push_back({.info = {piece.name, type, piece.shape}});
    }
  }
  std::vector<std::byte> bytes(static_cast<size_t>(largest));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 % 61);
  for (WeightEntry& entry : entries) {
    int64_t size = element_bytes;
    for (const int64_t count : entry.info.shape) size *= count;
    entry.bytes = std::span(bytes).first(static_cast<size_t>(size));
  }
  const auto error = write_safetensors(folder / "model.safetensors", entries, {});
  WEFT_CHECK(!error, "{}", error->message());
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

void compare(const std::filesystem::path& folder, const char* what, at::ScalarType type) {
  const std::filesystem::path path = folder / "model.safetensors";
  const size_t size = std::filesystem::file_size(path);
  std::vector<std::byte> buffer(size);
  std::vector<double> load, reused, fresh;
  for (int round = 0; round < 9; ++round) {
    std::optional<Network> network;  // freed outside the clock
    load.push_back(milliseconds([&] {
      WholeParameters maker(at::TensorOptions().dtype(type));
      network = must(Network::create(must(read_model_file(folder)), maker));
      const auto error = load_weights(must(WeightFolder::open(folder)), maker.all(), network->numbers().files);
      WEFT_CHECK(!error, "{}", error->message());
    }));
    reused.push_back(milliseconds([&] { by_read(path, buffer); }));
    void* memory = nullptr;
    fresh.push_back(milliseconds([&] {
      memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      by_read(path, {static_cast<std::byte*>(memory), size});
    }));
    munmap(memory, size);
  }
  std::printf("%s, %.2f GiB, %d threads: %.0f ms; read() %.0f ms, ratio %.2f; into a new buffer %.0f ms, ratio %.2f\n",
              what, static_cast<double>(size) / (1 << 30), at::get_num_threads(), median(load), median(reused),
              median(load) / median(reused), median(fresh), median(load) / median(fresh));
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder = std::filesystem::path(argc > 1 ? argv[1] : ".") / "load_bench";
  std::filesystem::create_directories(folder);
  write_config(folder, 10);
  write_weights(folder, WeightType::kBf16);
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    compare(folder, "bf16 as bf16", at::kBFloat16);
    compare(folder, "bf16 as fp32", at::kFloat);
  }
  write_config(folder, 4);
  write_weights(folder, WeightType::kF32);
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    compare(folder, "fp32 as fp32", at::kFloat);
  }
  std::filesystem::remove_all(folder);
  return 0;
}
