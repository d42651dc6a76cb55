#pragma once

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/weights/safetensors_file.h"
#include "weft/weights/safetensors_writer.h"

namespace weft {

/// A tensor to be changed and written again.
struct StoredTensor {
  WeightType type = WeightType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;

  template <typename T>
  std::vector<T> values() const {
    std::vector<T> list(bytes.size() / sizeof(T));
    std::memcpy(list.data(), bytes.data(), bytes.size());
    return list;
  }
  template <typename T>
  void set(size_t index, T value) {
    std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
  }
};

inline StoredTensor integers(const std::vector<int64_t>& values, std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {std::ssize(values)};
  return {.type = WeightType::kI64,
          .shape = std::move(shape),
          .bytes = std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t))};
}

inline StoredTensor floats(const std::vector<int64_t>& shape, float value) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  const std::vector<float> values(static_cast<size_t>(count), value);
  return {.type = WeightType::kF32,
          .shape = shape,
          .bytes = std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))};
}

using StoredTensors = std::map<std::string, StoredTensor>;

inline StoredTensors read_stored(const std::filesystem::path& path) {
  StoredTensors tensors;
  const auto file = SafetensorsFile::open(path);
  EXPECT_TRUE(file.ok()) << file.error().message();
  for (const WeightEntry& entry : file->entries()) {
    tensors[entry.info.name] = {
        .type = entry.info.type,
        .shape = entry.info.shape,
        .bytes = std::string(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size())};
  }
  return tensors;
}

/// What a fixture's case gives a model, without what is expected of it.
inline StoredTensors read_case_inputs(const std::filesystem::path& path) {
  static const std::set<std::string> inputs = {"input_ids",          "lengths",        "pixel_values",
                                               "image_grid_thw",     "video_grid_thw", "pixel_values_videos",
                                               "second_per_grid_ts", "input_features", "audio_feature_lengths"};
  StoredTensors tensors = read_stored(path);
  std::erase_if(tensors, [](const auto& entry) { return !inputs.contains(entry.first); });
  return tensors;
}

inline void write_stored(const std::filesystem::path& path, const StoredTensors& tensors) {
  std::vector<WeightEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({.info = {.name = name, .type = tensor.type, .shape = tensor.shape},
                       .bytes = std::as_bytes(std::span(tensor.bytes)),
                       .owner = nullptr});
  }
  const auto error = write_safetensors(path, entries, std::nullopt);
  EXPECT_FALSE(error) << error->message();
}

}  // namespace weft
