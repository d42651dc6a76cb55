#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/exchange/refusals.h"

namespace weft {

/// Arguments as they stand on a command line, or in a YAML file of the same keys.
class ArgumentLine {
 public:
  struct Argument {
    std::string key;
    std::string value;  ///< empty: a flag
  };

  void add(std::string key) { arguments_.push_back({std::move(key), ""}); }
  void add(std::string key, int64_t value) { arguments_.push_back({std::move(key), std::to_string(value)}); }
  void add(std::string key, std::string value) { arguments_.push_back({std::move(key), std::move(value)}); }

  const std::vector<Argument>& arguments() const { return arguments_; }
  /// One line, with its end.
  std::string text() const;

 private:
  std::vector<Argument> arguments_;
};

// What Megatron-LM and the systems built on it (MindSpeed-MM, MindSpeed-RL) share.

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
/// The inverse: megabytes of that many gradients.
double bucket_mb(int64_t elements, Precision reduce);

/// --context-parallel-algo, for a module with cp above 1.
void add_mindspeed_context(const ModulePlan& module, ArgumentLine& line);

}  // namespace weft
