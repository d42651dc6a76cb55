#pragma once

#include <algorithm>
#include <string_view>

#include "weft/program/module.h"

namespace weft {

// A low-rank adapter of a product is two products of its own, which stand behind it in the block: one down to the
// adapter's rank and one up again, and the sum of both results. Their names are the product's with these endings.
inline constexpr std::string_view kAdapterDown = ".lora_a";
inline constexpr std::string_view kAdapterUp = ".lora_b";
inline constexpr std::string_view kAdapterSum = ".lora_sum";

inline bool is_adapter(const Op& op) {
  return op.name.ends_with(kAdapterDown) || op.name.ends_with(kAdapterUp) || op.name.ends_with(kAdapterSum);
}

inline bool has_adapters(const Block& block) {
  return std::any_of(block.ops.begin(), block.ops.end(), is_adapter);
}

/// Whether weights of an operator have gradients where its block is trained: adapters' alone, where it has some.
inline bool has_gradient(const Block& block, const Op& op) {
  return is_adapter(op) || !has_adapters(block);
}

/// Whether the operator behind this one, at a place of a block, is its adapter's first.
inline bool is_adapted(const Block& block, size_t op) {
  return op + 1 < block.ops.size() && !is_adapter(block.ops[op]) && block.ops[op + 1].name.ends_with(kAdapterDown);
}

/// What weight files call an adapter's weights, behind the name of the weight that it is of.
inline constexpr std::string_view kAdapterDownName = ".lora_A";
inline constexpr std::string_view kAdapterUpName = ".lora_B";

inline bool is_adapter_weight(std::string_view name) {
  return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight");
}

/// Whether gradients of a whole copy are summands of all tensor-parallel ranks': it works on whole rows, beside
/// products that are cut.
inline bool sees_divided_product(const Op& op) {
  return is_router(op) || (is_adapter(op) && op.split() == TensorSplit::kWhole && op.has_whole_rows);
}

}  // namespace weft
