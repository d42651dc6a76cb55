#pragma once

#include <optional>
#include <string>

#include "weft/exchange/refusals.h"

namespace weft {

/// Arguments as they stand on a command line.
class ArgumentLine {
 public:
  void add(const std::string& argument) { text_ += (text_.empty() ? "" : " ") + argument; }
  void add(const std::string& flag, int64_t value) { add(flag + " " + std::to_string(value)); }

  /// One line, with its end.
  std::string text() const { return text_ + "\n"; }

 private:
  std::string text_;
};

// What Megatron-LM and the systems built on it (MindSpeed-MM) share.

/// Recomputation as Megatron's three flags have it: the same for every stage of a module.
struct MegatronRecompute {
  enum class Kind { kNone, kSelective, kBlock } kind = Kind::kNone;
  int64_t num_layers = 0;  ///< with kBlock: the first so many of every chunk, or all of a chunk that has fewer
};

/// Nothing, with a refusal, where the counts differ more than those flags can say.
std::optional<MegatronRecompute> megatron_recompute(const ModulePlan& module, Refusals& refusals);

/// --bf16 and the like.
void add_precision(const PrecisionPlan& precision, ArgumentLine& line, Refusals& refusals);

/// The distributed optimizer, overlap and buckets of ZeRO 0 and 1.
void add_data_parallel(const Plan& plan, ArgumentLine& line);

/// How many gradients a bucket of the plan holds.
int64_t bucket_elements(const Plan& plan);

}  // namespace weft
