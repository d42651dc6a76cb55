#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace weft {

/// Names the sequence of numbers that a fresh weight is made of: by its name and a run's seed.
uint64_t fresh_weight_key(std::string_view name, uint64_t seed);

/// Elements [first, first + to.size()) of a fresh weight: numbers of the standard normal distribution, times
/// `deviation`. Each depends on the key and its own index alone, so that any part can be drawn without the rest and is
/// the same, to the last bit, in whatever pieces it is drawn.
void draw_fresh_elements(uint64_t key, int64_t first, float deviation, std::span<float> to);

}  // namespace weft
