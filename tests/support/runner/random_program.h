#pragma once

#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/program/program_builder.h"
#include "weft/program/run_strategy.h"

namespace weft {

using Random = std::mt19937_64;

inline int64_t between(Random& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
}

/// A random chain of operators over rows, with branches, a lookup in front and a loss behind some of them.
class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : random_(seed), code_("random") {
    code_.dim("b", between(random_, 1, 3)), code_.dim("s", between(random_, 1, 5));
    code_.dim("h", between(random_, 2, 6));
    const int64_t inner = between(random_, 2, 5), heads = between(random_, 1, 3), queries = between(random_, 1, 2);
    code_.dim("f", inner), code_.dim("p", 2 * inner, 2), code_.dim("v", between(random_, 3, 7));
    attention_ = {.heads = heads * queries, .kv_heads = heads, .head_dim = 2};
    attention_.mask = static_cast<Mask>(random_() % 4);
    const int64_t window = between(random_, 1, 3);
    if (attention_.mask == Mask::kSliding || attention_.mask == Mask::kWindowed) attention_.window = window;
    if (random_() % 3 == 0) attention_.dropout = 0.3;
    code_.dim("e", between(random_, 1, 4)), code_.dim("c", 1);
    code_.dim("k", heads * (queries + 2) * 2, (queries + 2) * 2), code_.dim("o", heads * queries * 2, queries * 2);
  }

  Program make() {
    if (random_() % 3 == 0) {
      rows_ = code_.lookup("table", "b s, v h -> b s h", code_.data("ids", "b s"), weight("v h"));
    } else {
      rows_ = code_.input("x", "b s h");
    }
    const int64_t count = between(random_, 2, 5);
    for (number_ = 0; number_ < count; ++number_) add_layer(random_() % 13);
    if (random_() % 2 == 0) {
      const size_t logits = code_.einsum("logits", "b s h, v h -> b s v", {rows_, weight("v h")});
      code_.cross_entropy("loss", "b s v, b s -> b s", logits, code_.data("targets", "b s"));
    }
    const Result<Program> program = code_.finish();
    EXPECT_TRUE(program.ok()) << program.error().message();
    return *program;
  }

 private:
  std::string name(const char* base) { return fmt::format("{}{}", base, number_); }
  size_t weight(const char* dims) { return code_.weight(fmt::format("w{}", num_weights_++), dims); }
  OperatorOptions does() { return {.calculation = {.function = static_cast<Activation>(random_() % 7)}}; }

  void add_layer(uint64_t kind) {
    const size_t before = rows_;
    switch (kind) {
      case 0: {  // an MLP
        const size_t up = code_.einsum(name("up"), "b s h, f h -> b s f", {rows_, weight("f h")});
        const size_t biased = code_.sum_of(name("bias"), "b s f, f -> b s f", {up, weight("f")});
        const size_t act = code_.elementwise(name("act"), "b s f -> b s f", {biased}, does());
        rows_ = code_.einsum(name("down"), "b s f, h f -> b s h", {act, weight("h f")});
        break;
      }
      case 1: {  // a gated one, packed
        const size_t up = code_.einsum(name("up"), "b s h, f h -> b s f", {rows_, weight("p h")}, {.as = "b s p"});
        OperatorOptions gate = does();
        gate.as = "b s f";
        const size_t act = code_.elementwise(name("act"), "b s f -> b s f", {up}, gate);
        rows_ = code_.einsum(name("down"), "b s f, h f -> b s h", {act, weight("h f")});
        break;
      }
      case 2: {  // a gated one, of two products
        const size_t gate = code_.einsum(name("gate"), "b s h, f h -> b s f", {rows_, weight("f h")});
        const size_t up = code_.einsum(name("up"), "b s h, f h -> b s f", {rows_, weight("f h")});
        const size_t act = code_.elementwise(name("act"), "b s f, b s f -> b s f", {gate, up}, does());
        rows_ = code_.einsum(name("down"), "b s f, h f -> b s h", {act, weight("h f")});
        break;
      }
      case 3: {
        const size_t packed = code_.einsum(name("qkv"), "b s h, k h -> b s k", {rows_, weight("k h")});
        const size_t mixed =
            code_.attention(name("mix"), "b s k -> b s k", packed, {.as = "b s o", .attention = attention_});
        rows_ = code_.einsum(name("out"), "b s o, h o -> b s h", {mixed, weight("h o")});
        break;
      }
      case 4:
        rows_ = code_.norm(name("rms"), "b s h, h -> b s h", {rows_, weight("h")}, {.calculation = {.epsilon = 1e-2}});
        return;
      case 5:
        rows_ = code_.norm(name("layer"), "b s h, h, h -> b s h", {rows_, weight("h"), weight("h")},
                           {.calculation = {.epsilon = 1e-2}});
        return;
      case 6:
        rows_ = code_.softmax(name("softmax"), "b s h -> b s h", rows_);
        return;
      case 7:
        rows_ = code_.dropout(name("drop"), "b s h -> b s h", rows_, 0.3);
        return;
      case 8:
        rows_ = code_.add(OperatorKind::kScale, name("scale"), "b s h -> b s h", {rows_},
                          {.calculation = {.factor = -0.7}});
        return;
      case 9: {  // there and back, with all rows seeing each other
        const size_t turned = code_.reshape(name("turned"), "b s h -> h b s", rows_);
        const size_t seen = code_.einsum(name("seen"), "h b s, b t h -> b s t", {turned, rows_}, {.as = "b s s"});
        const size_t sums = code_.add(OperatorKind::kSum, name("sums"), "b s t -> b s", {seen});
        rows_ = code_.add(OperatorKind::kMultiply, name("weighed"), "b s h, b s -> b s h", {rows_, sums});
        break;
      }
      case 11: {  // experts, some of which have no rows
        const size_t logits = code_.einsum(name("router"), "b s h, e h -> b s e", {rows_, weight("e h")});
        const size_t route =
            code_.add(OperatorKind::kSoftmax, name("route"), "b s e -> b s e", {logits},
                      {.calculation = {.top = between(random_, 1, 2), .is_normalized = random_() % 2 == 0}});
        const size_t sent = code_.add(OperatorKind::kDispatch, name("dispatch"), "b s h, b s e -> e (b s) h",
                                      {rows_, route}, {.as = "e c h"});
        const size_t up = code_.einsum(name("up"), "e c h, e f h -> e c f", {sent, weight("e f h")});
        const size_t act = code_.elementwise(name("act"), "e c f -> e c f", {up}, does());
        const size_t down = code_.einsum(name("down"), "e c f, e h f -> e c h", {act, weight("e h f")});
        rows_ = code_.add(OperatorKind::kCombine, name("combine"), "e (b s) h, b s e -> b s h", {down, route});
        break;
      }
      default: {  // rows as one
        const size_t gains = weight("h");
        rows_ = code_.add(OperatorKind::kMultiply, name("gain"), "b s h, h -> b s h", {rows_, gains});
        break;
      }
    }
    if (random_() % 2 == 0) rows_ = code_.sum_of(name("sum"), "b s h, b s h -> b s h", {before, rows_});
  }

  Random random_;
  ProgramBuilder code_;
  Attention attention_;
  size_t rows_ = 0;
  int64_t number_ = 0;
  int64_t num_weights_ = 0;
};

inline AxisState random_state(Random& random, size_t num_dims, bool has_gradient) {
  const uint64_t kind = random() % (num_dims + (has_gradient ? 3 : 1));
  if (kind < num_dims) return AxisState::shard(kind);
  return kind == num_dims       ? AxisState::replicated()
         : kind == num_dims + 1 ? AxisState::partial()
                                : AxisState::replicated_partial_grad();
}

/// Any that is legal, good or not.
inline RunStrategy random_strategy(const Program& program, const AxisGrid& grid, Random& random) {
  RunStrategy strategy;
  for (const Operator& op : program.operators) {
    const std::vector<Choice> choices = choices_of(op.rule);
    std::vector<Choice>& own = strategy.operators.emplace_back();
    for (size_t axis = 0; axis < grid.num_axes(); ++axis) own.push_back(choices[random() % choices.size()]);
  }
  for (const ProgramValue& value : program.values) {
    std::vector<AxisState>& own = strategy.sources.emplace_back();
    if (value.role == ProgramValue::Role::kResult) continue;
    for (size_t axis = 0; axis < grid.num_axes(); ++axis)
      own.push_back(random_state(random, value.dims.size(), value.role != ProgramValue::Role::kData));
  }
  return strategy;
}

inline RunStrategy on_one_rank(const Program& program) {
  RunStrategy strategy;
  for (size_t op = 0; op < program.operators.size(); ++op) strategy.operators.push_back({Choice::same()});
  for (const ProgramValue& value : program.values)
    strategy.sources.push_back(value.role == ProgramValue::Role::kResult
                                   ? std::vector<AxisState>{}
                                   : std::vector<AxisState>{AxisState::replicated()});
  return strategy;
}

}  // namespace weft
