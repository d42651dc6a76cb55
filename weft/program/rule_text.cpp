#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/program/rule.h"

namespace weft {
namespace {

constexpr size_t kMostRuleDims = 16;
constexpr size_t kMostOperands = 8;
constexpr size_t kLongestName = 40;

class RuleParser {
 public:
  explicit RuleParser(std::string_view text) : text_(text) {}

  Result<Rule> run() {
    const size_t arrow = text_.find("->");
    if (arrow == std::string_view::npos)
      return Error{.problem = fmt::format("the rule {} has no '->'", in_quotes(text_)),
                   .advice = "A rule is written like 'b s h, f h -> b s f'."};
    std::string_view left = text_.substr(0, arrow);
    while (true) {
      const size_t comma = left.find(',');
      WEFT_TRY(RuleTerm term, parse_term(left.substr(0, comma)));
      rule_.operands.push_back(std::move(term));
      if (rule_.operands.size() > kMostOperands) return refuse(fmt::format("more than {} operands", kMostOperands));
      if (comma == std::string_view::npos) break;
      left = left.substr(comma + 1);
    }
    WEFT_TRY(rule_.result, parse_term(text_.substr(arrow + 2)));
    for (size_t dim = 0; dim < rule_.dims.size(); ++dim) {
      if (!has_dim(rule_.result, dim)) rule_.dims[dim].kind = DimKind::kSum;
    }
    // Parts of an inner dim do not lie together in the rows that it is a part of.
    for (const RuleTerm& operand : rule_.operands) keep_inner_whole(operand);
    keep_inner_whole(rule_.result);
    return rule_;
  }

 private:
  void keep_inner_whole(const RuleTerm& term) {
    for (const std::vector<size_t>& parts : term) {
      for (size_t i = 1; i < parts.size(); ++i) rule_.dims[parts[i]].kind = DimKind::kWhole;
    }
  }

  Error refuse(const std::string& what) const {
    return {.problem = fmt::format("the rule {} has {}", in_quotes(text_), what),
            .advice = "A rule is written like 'b s h, f h -> b s f'."};
  }

  Result<RuleTerm> parse_term(std::string_view text) {
    RuleTerm term;
    std::vector<size_t> seen;
    bool is_inside = false;
    size_t i = 0;
    while (i < text.size()) {
      const char c = text[i];
      if (c == ' ') {
        ++i;
      } else if (c == '(' || c == ')') {
        if ((c == '(') == is_inside || (c == ')' && term.back().empty())) return refuse("a bracket too many");
        if (c == '(') term.emplace_back();
        is_inside = c == '(';
        ++i;
      } else {
        size_t end = i;
        while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
          ++end;
        if (end - i > kLongestName) return refuse(fmt::format("a dim of more than {} letters", kLongestName));
        if (end == i) return refuse(fmt::format("{} where a dim is expected", in_quotes(text.substr(i, 1))));
        const std::string_view name = text.substr(i, end - i);
        std::optional<size_t> dim = rule_.find(name);
        if (!dim) {
          dim = rule_.dims.size();
          rule_.dims.push_back({std::string(name)});
          if (rule_.dims.size() > kMostRuleDims) return refuse(fmt::format("more than {} dims", kMostRuleDims));
        }
        if (std::find(seen.begin(), seen.end(), *dim) != seen.end())
          return refuse(fmt::format("the dim {} twice in one tensor", in_quotes(name)));
        seen.push_back(*dim);
        if (!is_inside) term.emplace_back();
        term.back().push_back(*dim);
        i = end;
      }
    }
    if (is_inside) return refuse("a bracket that is not closed");
    if (term.size() > Layout::kMostDims) return refuse(fmt::format("a tensor of more than {} dims", Layout::kMostDims));
    return term;
  }

  std::string_view text_;
  Rule rule_;
};

std::string term_text(const Rule& rule, const RuleTerm& term) {
  std::string text;
  for (const std::vector<size_t>& parts : term) {
    std::string names;
    for (const size_t dim : parts) names += (names.empty() ? "" : " ") + rule.dims[dim].name;
    text += (text.empty() ? "" : " ") + (parts.size() > 1 ? "(" + names + ")" : names);
  }
  return text;
}

}  // namespace

std::string Rule::text() const {
  std::string text;
  for (const RuleTerm& operand : operands) text += (text.empty() ? "" : ", ") + term_text(*this, operand);
  const std::string after = term_text(*this, result);
  return text + " ->" + (after.empty() ? "" : " ") + after;
}

Result<Rule> parse_rule(std::string_view text) {
  return RuleParser(text).run();
}

std::string text_of(const Rule& rule, Choice choice) {
  if (choice.kind == Choice::Kind::kSame) return "same";
  if (choice.kind == Choice::Kind::kCut) return "cut " + rule.dims[choice.index].name;
  return rule.linear.size() > 1 ? fmt::format("through {}", choice.index) : "through";
}

Result<Choice> parse_choice(const Rule& rule, std::string_view text) {
  std::vector<std::string> known;
  for (const Choice choice : choices_of(rule)) {
    known.push_back(text_of(rule, choice));
    if (known.back() == text || (choice.kind == Choice::Kind::kCut && rule.dims[choice.index].name == text))
      return choice;
  }
  // Of several factors the first is the activation.
  if (text == "through" && !rule.linear.empty()) return Choice::through(0);
  const std::string_view dim = text.starts_with("cut ") ? text.substr(4) : text;
  if (const auto found = rule.find(dim))
    return Error{.problem = fmt::format("the dim {} of the rule {} is whole and cannot be cut", in_quotes(dim),
                                        in_quotes(rule.text())),
                 .advice = fmt::format("Possible are {}.", joined_or(known))};
  return Error{.problem = fmt::format("{} is no choice of the rule {}", in_quotes(text), in_quotes(rule.text())),
               .advice = fmt::format("Possible are {}.", joined_or(known))};
}

}  // namespace weft
