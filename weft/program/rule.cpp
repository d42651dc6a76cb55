#include "weft/program/rule.h"

#include <algorithm>

namespace weft {
namespace {

/// Where a term has a dim of the rule.
std::optional<size_t> place_in(const RuleTerm& term, size_t dim) {
  for (size_t i = 0; i < term.size(); ++i) {
    if (std::find(term[i].begin(), term[i].end(), dim) != term[i].end()) return i;
  }
  return std::nullopt;
}

}  // namespace

bool has_dim(const RuleTerm& term, size_t dim) {
  return place_in(term, dim).has_value();
}

std::string_view name_of(DimKind kind) {
  switch (kind) {
    case DimKind::kMap:
      return "map";
    case DimKind::kSum:
      return "sum";
    case DimKind::kInside:
      return "inside";
    case DimKind::kWhole:
      return "whole";
  }
  return "";
}

std::optional<size_t> Rule::find(std::string_view dim) const {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].name == dim) return i;
  }
  return std::nullopt;
}

std::vector<Choice> choices_of(const Rule& rule) {
  std::vector<Choice> choices{Choice::same()};
  for (size_t dim = 0; dim < rule.dims.size(); ++dim) {
    if (rule.dims[dim].kind != DimKind::kWhole) choices.push_back(Choice::cut(dim));
  }
  for (size_t set = 0; set < rule.linear.size(); ++set) choices.push_back(Choice::through(set));
  return choices;
}

bool is_cut_inside(const Rule& rule, Choice choice) {
  return choice.kind == Choice::Kind::kCut && rule.dims[choice.index].kind == DimKind::kInside;
}

ChoiceStates states_of(const Rule& rule, Choice choice) {
  ChoiceStates states;
  if (choice.kind == Choice::Kind::kSame) {
    states.operands.assign(rule.operands.size(), AxisState::replicated());
    states.result = AxisState::replicated();
    return states;
  }
  // Ranks do different work with whatever they hold whole, so its gradient is a sum over them.
  states.operands.assign(rule.operands.size(), AxisState::replicated_partial_grad());
  if (choice.kind == Choice::Kind::kThrough) {
    for (const size_t operand : rule.linear[choice.index]) states.operands[operand] = AxisState::partial();
    states.result = AxisState::partial();
    return states;
  }
  for (size_t i = 0; i < rule.operands.size(); ++i) {
    if (const auto place = place_in(rule.operands[i], choice.index)) states.operands[i] = AxisState::shard(*place);
  }
  if (const auto place = place_in(rule.result, choice.index)) {
    states.result = AxisState::shard(*place);
  } else {
    states.result = rule.dims[choice.index].kind == DimKind::kSum ? AxisState::partial() : AxisState::replicated();
  }
  return states;
}

}  // namespace weft
