#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "weft/cost/operator_prices.h"
#include "weft/cost/transition_prices.h"
#include "weft/meaning/strategy.h"
#include "weft/program/program_uses.h"

namespace weft {

/// What of the cost decides.
struct ShardObjective {
  bool has_states = true;  ///< also what keeping weights costs; without, redistribution and computing alone
};

/// How a layout that an operator asks of an operand looks to its value, and to the value's gradient.
struct Need {
  size_t value = 0;
  size_t gradient = 0;

  bool operator==(const Need&) const = default;
};

/// A way of holding all weights of an operator.
struct StateOption {
  double ms = 0;
  double bytes = 0;
  std::vector<WeightPrice> weights;
};

/// One strategy of an operator with everything that follows from it.
struct OperatorOption {
  Choices choices;
  size_t result = 0;  ///< code of the result's layout
  std::vector<Need> needs;
  OperatorPrice price;
  std::vector<StateOption> states;  ///< none of them better than another in both time and memory; the fastest first
};

/// What a value costs between the operator that makes it and those that read it.
struct ValuePrice {
  double ms = 0;     ///< a microbatch
  double bytes = 0;  ///< kept for the backward
};

/// A program on a mesh as operators with options and the prices between them.
class ShardProblem {
 public:
  static Result<ShardProblem> create(Program program, ShardSetting setting, const ShardLimits& limits,
                                     ShardObjective objective = {});

  /// Operators times their layers, above which the choices of all do not fit into memory, or take minutes to list.
  static constexpr int64_t kMostPlaces = 10'000'000;

  const Program& program() const { return program_; }
  const ProgramUses& uses() const { return uses_; }
  const ShardSetting& setting() const { return setting_; }
  const std::vector<OperatorOption>& options(size_t op) const { return options_[op]; }
  /// Layouts that an input, or a weight of several operators, may have where it is held.
  const std::vector<size_t>& source_codes(size_t value) const { return source_codes_[value]; }
  bool is_source(size_t value) const { return !source_codes_[value].empty(); }
  const TransitionPrices& transitions(size_t value) const { return *transitions_[value]; }

  /// A microbatch's computing and communication inside, times the microbatches of a step.
  double option_ms(const OperatorOption& option) const;
  /// Whether anything lies between a value's maker and its readers.
  bool is_priced(size_t value) const;
  /// `readers` are (operator, option) of all who read it.
  ValuePrice price_value(size_t value, size_t made, const std::vector<std::pair<size_t, size_t>>& readers) const;
  /// What holding a source costs, a step: the update, and bytes.
  ValuePrice price_source(size_t value, size_t code) const;
  double microbatches() const { return static_cast<double>(setting_.microbatches); }

 private:
  ShardProblem(Program program, ShardSetting setting, ShardObjective objective)
      : program_(std::move(program)), uses_(program_), setting_(std::move(setting)), objective_(objective) {}

  std::optional<Error> add_operator(size_t op, const ShardLimits& limits);
  std::optional<OperatorOption> option_of(size_t op, const Choices& choices, const ShardLimits& limits) const;
  void add_sources(const ShardLimits& limits);
  std::vector<ProgramDim> dims_of(size_t value) const;

  Program program_;
  ProgramUses uses_;
  std::vector<bool> is_carried_out_;  ///< by value, of any repeat
  ShardSetting setting_;
  ShardObjective objective_;
  std::vector<std::vector<OperatorOption>> options_;
  std::vector<std::vector<size_t>> source_codes_;
  std::vector<std::shared_ptr<const TransitionPrices>> transitions_;
  std::vector<std::vector<bool>> keeps_;  ///< by operator and operand: needed in the backward
};

}  // namespace weft
