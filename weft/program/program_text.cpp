#include "weft/program/program_text.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/text.h"
#include "weft/program/operator_rules.h"
#include "weft/program/program_builder.h"

namespace weft {
namespace {

constexpr size_t kMostBytes = 4u << 20;
constexpr std::array kKinds = {
    OperatorKind::kEinsum,       OperatorKind::kAdd,      OperatorKind::kMultiply,  OperatorKind::kElementwise,
    OperatorKind::kScale,        OperatorKind::kDropout,  OperatorKind::kReshape,   OperatorKind::kSum,
    OperatorKind::kNorm,         OperatorKind::kSoftmax,  OperatorKind::kAttention, OperatorKind::kLookup,
    OperatorKind::kCrossEntropy, OperatorKind::kDispatch, OperatorKind::kCombine,   OperatorKind::kCustom};
const std::vector<std::string>& mask_names() {
  static const std::vector<std::string> names{"full", "causal", "sliding", "windowed"};
  return names;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

class ProgramParser {
 public:
  ProgramParser(std::string_view text, std::string source)
      : text_(text), source_(std::move(source)), code_("program") {}

  Result<Program> run() {
    int64_t number = 0;
    bool has_begun = false;
    while (begin_ <= text_.size() && !code_.failed()) {
      const std::string_view line = next_line();
      ++number;
      code_.set_source(fmt::format("{}: line {}", source_, number));
      if (line.empty()) continue;
      if (!has_begun) {
        if (!read_head(line)) break;
        has_begun = true;
      } else {
        read_line(line);
      }
    }
    if (!has_begun)
      code_.fail("", "is no program: it does not begin with 'weft_program 1'", "Add that line, with a name.");
    if (!code_.failed()) code_.set_source(source_);
    WEFT_TRY(Program program, code_.finish());
    if (!name_.empty()) program.name = name_;
    return program;
  }

 private:
  bool read_head(std::string_view line) {
    const auto words = words_of(line);
    if (words.size() < 2 || words.size() > 3 || words[0] != "weft_program" || words[1] != "1") {
      code_.fail("", fmt::format("begins with {}, expected is 'weft_program 1 NAME'", in_quotes(line)),
                 "Is it a program?");
      return false;
    }
    if (words.size() == 3) name_ = printable(words[2]);
    return true;
  }

  /// Without its comment.
  std::string_view next_line() {
    const size_t end = std::min(text_.find('\n', begin_), text_.size());
    const std::string_view line = text_.substr(begin_, end - begin_);
    begin_ = end + 1;
    return trimmed(line.substr(0, line.find('#')));
  }

  bool is_made_later(std::string_view name) {
    while (begin_ <= text_.size()) {
      const std::string_view line = next_line();
      const size_t equals = line.find('=');
      if (equals != std::string_view::npos && trimmed(line.substr(0, equals)) == name) return true;
    }
    return false;
  }

  void read_line(std::string_view line) {
    const size_t equals = line.find('=');
    const auto words = words_of(line);
    if (equals != std::string_view::npos) return read_operator(line, equals);
    if (words[0] == "dim") return read_dim(words);
    if (words[0] == "input" || words[0] == "data" || words[0] == "weight") return read_leaf(line, words[0]);
    if (words[0] == "repeat" && words.size() == 3) {
      const auto count = number(words[1]);
      const auto value = find(words[2]);
      if (count && value) code_.begin_repeat(*count, *value);
      return;
    }
    if (words[0] == "end" && words.size() == 2) {
      if (const auto value = find(words[1])) code_.end_repeat(*value);
      return;
    }
    code_.fail("", fmt::format("{} is no statement", in_quotes(line)),
               "Statements are dim, input, data, weight, NAME = KIND(...) : RULE, repeat N VALUE and end VALUE.");
  }

  std::optional<int64_t> number(std::string_view word) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc() && end == word.data() + word.size()) return value;
    code_.fail("", fmt::format("{} is no whole number", in_quotes(word)), "Write it in digits.");
    return std::nullopt;
  }

  std::optional<double> real(const std::string& name, std::string_view word) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc() && end == word.data() + word.size()) return value;
    code_.fail(name, fmt::format("{} is no number", in_quotes(word)), "Write it like 0.125 or 1e-6.");
    return std::nullopt;
  }

  std::optional<size_t> find(std::string_view name, std::string_view reader = "") {
    if (const auto value = code_.find_value(name)) return value;
    std::vector<std::string> known;
    for (const ProgramValue& value : code_.program().values) known.push_back(value.name);
    code_.fail(printable(reader),
               fmt::format("{} is not there yet{}", in_quotes(name), is_made_later(name) ? ", but made later" : ""),
               fmt::format("A tensor stands before what reads it.{}", did_you_mean(name, known)));
    return std::nullopt;
  }

  void read_dim(const std::vector<std::string_view>& words) {
    const bool has_unit = words.size() == 5 && words[3] == "unit";
    if (words.size() != 3 && !has_unit)
      return code_.fail("dim", "is written like 'dim q 4096' or 'dim q 4096 unit 128'", "Correct the line.");
    const auto length = number(words[2]);
    const auto unit = has_unit ? number(words[4]) : 1;
    if (length && unit) code_.dim(words[1], *length, *unit);
  }

  void read_leaf(std::string_view line, std::string_view role) {
    const size_t open = line.find('['), close = line.find(']');
    if (open == std::string_view::npos || close != line.size() - 1)
      return code_.fail(role, fmt::format("is written like '{} x [b s h]'", role), "Correct the line.");
    const std::string_view name = trimmed(line.substr(role.size(), open - role.size()));
    const std::string_view dims = line.substr(open + 1, close - open - 1);
    if (role == "input") code_.input(name, dims);
    if (role == "data") code_.data(name, dims);
    if (role == "weight") code_.weight(name, dims);
  }

  void read_operator(std::string_view line, size_t equals) {
    const std::string_view name = trimmed(line.substr(0, equals));
    const std::string_view rest = trimmed(line.substr(equals + 1));
    const size_t open = rest.find('('), close = rest.find(')');
    const size_t colon = rest.find(':');
    if (colon == std::string_view::npos && trimmed(rest.substr(0, open)) == name_of(OperatorKind::kCustom))
      return code_.fail(printable(name), "is custom and declares no rule",
                        "A custom operator says what its tensors' dims are, and which of them ranks cannot cut: 'y = "
                        "custom(x, g) : b s h, h -> b s h ; whole h ; calls NAME'.");
    if (open == std::string_view::npos || close == std::string_view::npos || colon == std::string_view::npos ||
        close < open || colon < close)
      return code_.fail(printable(name), "is written like 'y = einsum(x, w) : b s h, f h -> b s f'",
                        "Correct the line.");
    const std::string_view kind_name = trimmed(rest.substr(0, open));
    std::optional<OperatorKind> kind;
    std::vector<std::string> known;
    for (const OperatorKind candidate : kKinds) {
      known.emplace_back(name_of(candidate));
      if (name_of(candidate) == kind_name) kind = candidate;
    }
    if (!kind)
      return code_.fail(printable(name), fmt::format("{} is no kind of operator", in_quotes(kind_name)),
                        fmt::format("Known are {}.{}", joined_or(known), did_you_mean(kind_name, known)));
    std::vector<size_t> operands;
    std::string_view list = rest.substr(open + 1, close - open - 1);
    while (true) {
      const size_t comma = list.find(',');
      const auto value = find(trimmed(list.substr(0, comma)), name);
      if (!value) return;
      operands.push_back(*value);
      if (comma == std::string_view::npos || operands.size() > 8) break;
      list = list.substr(comma + 1);
    }
    std::string_view tail = rest.substr(colon + 1);
    const std::string_view rule = trimmed(tail.substr(0, tail.find(';')));
    OperatorOptions options;
    while (tail.find(';') != std::string_view::npos) {
      tail = tail.substr(tail.find(';') + 1);
      read_option(printable(name), trimmed(tail.substr(0, tail.find(';'))), options);
    }
    code_.add(*kind, name, rule, operands, options);
  }

  void read_option(const std::string& name, std::string_view option, OperatorOptions& options) {
    const auto words = words_of(option);
    const std::string_view key = words.empty() ? std::string_view() : words[0];
    if (key == "as") {
      options.as = trimmed(option.substr(2));
    } else if (key == "whole" || key == "inside") {
      auto& dims = key == "whole" ? options.whole : options.inside;
      dims.insert(dims.end(), words.begin() + 1, words.end());
    } else if (key == "linear") {
      options.linear.emplace_back();
      for (size_t i = 1; i < words.size(); ++i) {
        if (const auto operand = number(words[i])) options.linear.back().push_back(static_cast<size_t>(*operand));
      }
    } else if (key == "heads" && words.size() == 4) {
      const auto heads = number(words[1]), kv_heads = number(words[2]), head_dim = number(words[3]);
      if (!heads || !kv_heads || !head_dim) return;
      if (*heads < 1 || *kv_heads < 1 || *head_dim < 1 || *heads > 1'000'000 || *kv_heads > *heads ||
          *head_dim > 1'000'000)
        return code_.fail(name, fmt::format("has {} heads, {} of keys, of {} elements", *heads, *kv_heads, *head_dim),
                          "Each is at least 1, and there are no more heads of keys than of queries.");
      options.attention.heads = *heads;
      options.attention.kv_heads = *kv_heads;
      options.attention.head_dim = *head_dim;
    } else if (key == "mask" && (words.size() == 2 || words.size() == 3)) {
      const auto& masks = mask_names();
      const auto found = std::find(masks.begin(), masks.end(), words[1]);
      if (found == masks.end())
        return code_.fail(name, fmt::format("{} is no mask", in_quotes(words[1])),
                          fmt::format("Known are {}.", joined_or(masks)));
      options.attention.mask = static_cast<Mask>(found - masks.begin());
      if (words.size() == 2) return;
      if (!has_windows(options.attention.mask))
        return code_.fail(name, fmt::format("has a window of {} rows, but a mask without windows", in_quotes(words[2])),
                          "Leave out the number, or write 'mask sliding N' or 'mask windowed N'.");
      options.attention.window = number(words[2]).value_or(0);
    } else if (key == "does" && words.size() == 2) {
      options.calculation.function = find_activation(words[1]);
      if (!options.calculation.function)
        code_.fail(
            name, fmt::format("{} is no function of elements", in_quotes(words[1])),
            fmt::format("Known are {}.{}", joined_or(activation_names()), did_you_mean(words[1], activation_names())));
    } else if (key == "factor" && words.size() == 2) {
      if (const auto value = real(name, words[1])) options.calculation.factor = *value;
    } else if (key == "drops" && words.size() == 2) {
      if (const auto value = real(name, words[1])) options.calculation.dropout = *value;
    } else if (key == "epsilon" && words.size() == 2) {
      if (const auto value = real(name, words[1])) options.calculation.epsilon = *value;
    } else if (key == "top" && (words.size() == 2 || (words.size() == 3 && words[2] == "normalized"))) {
      if (const auto value = number(words[1])) options.calculation.top = *value;
      options.calculation.is_normalized = words.size() == 3;
    } else if (key == "calls" && words.size() == 2) {
      options.calculation.calls = printable(words[1]);
    } else if (key == "fused" && words.size() == 1) {
      options.is_fused = true;
    } else {
      code_.fail(
          name, fmt::format("{} is no option of an operator", in_quotes(option)),
          "Options are 'as DIMS', 'whole DIMS', 'inside DIMS', 'linear OPERANDS', 'heads N N N', 'mask NAME', "
          "'does FUNCTION', 'factor X', 'drops P', 'epsilon X', 'top N [normalized]', 'calls NAME' and 'fused'.");
    }
  }

  std::string_view text_;
  size_t begin_ = 0;  ///< of the line that is read next
  std::string source_;
  std::string name_;
  ProgramBuilder code_;
};

std::string dims_text(const Program& program, const std::vector<size_t>& dims) {
  std::string text;
  for (const size_t dim : dims) text += (text.empty() ? "" : " ") + program.dims[dim].name;
  return text;
}

/// What an operator says besides its rule.
std::string options_text(const Operator& op) {
  std::string text;
  const Result<Rule> usual = complete_rule(op.kind, *parse_rule(op.rule.text()));
  for (size_t dim = 0; dim < op.rule.dims.size(); ++dim) {
    const DimKind kind = op.rule.dims[dim].kind;
    if (kind != usual->dims[dim].kind) text += fmt::format(" ; {} {}", name_of(kind), op.rule.dims[dim].name);
  }
  if (op.kind == OperatorKind::kCustom) {
    for (const std::vector<size_t>& together : op.rule.linear) {
      text += " ; linear";
      for (const size_t operand : together) text += fmt::format(" {}", operand);
    }
  }
  const Attention& a = op.attention;
  if (a.heads > 0) text += fmt::format(" ; heads {} {} {}", a.heads, a.kv_heads, a.head_dim);
  if (a.mask != Mask::kFull || a.window > 0) {
    text += " ; mask " + mask_names()[static_cast<size_t>(a.mask)];
    if (a.window > 0) text += fmt::format(" {}", a.window);
  }
  if (a.dropout != 0) text += fmt::format(" ; drops {}", a.dropout);
  const Calculation& does = op.calculation;
  const Calculation plain;
  if (does.function) text += fmt::format(" ; does {}", name_of(*does.function));
  if (does.factor != plain.factor) text += fmt::format(" ; factor {}", does.factor);
  if (does.dropout != plain.dropout) text += fmt::format(" ; drops {}", does.dropout);
  if (does.epsilon != plain.epsilon) text += fmt::format(" ; epsilon {}", does.epsilon);
  if (does.top != 0) text += fmt::format(" ; top {}{}", does.top, does.is_normalized ? " normalized" : "");
  if (!does.calls.empty()) text += " ; calls " + does.calls;
  return text;
}

std::string operator_text(const Program& program, const Operator& op) {
  std::string operands;
  for (const size_t value : op.operands) operands += (operands.empty() ? "" : ", ") + program.values[value].name;
  std::string text = fmt::format("{} = {}({}) : {}", op.name, name_of(op.kind), operands, op.rule.text());
  std::string named;
  for (const std::vector<size_t>& parts : op.rule.result)
    named += (named.empty() ? "" : " ") + (parts.size() == 1 ? op.rule.dims[parts[0]].name : "");
  const std::string dims = dims_text(program, program.values[op.result].dims);
  if (dims != named) text += " ; as " + dims;
  text += options_text(op);
  if (op.is_fused) text += " ; fused";
  return text;
}

/// A name as one word of a line, which is what is read.
std::string name_word(std::string name) {
  constexpr size_t kLongestName = 1020;
  if (!is_printable(name)) name = printable(name, kLongestName);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

}  // namespace

Result<Program> parse_program(std::string_view text, const std::string& source) {
  if (text.size() > kMostBytes)
    return Error{.source = source,
                 .problem = fmt::format("has {} bytes, at most {} are allowed", with_commas(std::ssize(text)),
                                        with_commas(kMostBytes)),
                 .advice = "Write layers that are alike as a repeat."};
  return ProgramParser(text, source).run();
}

Result<Program> read_program_file(const std::filesystem::path& path) {
  WEFT_TRY(const std::string text, read_file(path, kMostBytes + 1));
  return parse_program(text, path.string());
}

std::string nameless_text(const Operator& op, const std::string& operands) {
  return fmt::format("{}({}) : {}{}", name_of(op.kind), operands, op.rule.text(), options_text(op));
}

std::string program_text(const Program& program) {
  std::string text = fmt::format("weft_program 1 {}\n", name_word(program.name));
  for (const ProgramDim& dim : program.dims)
    text += fmt::format("dim {} {}{}\n", dim.name, dim.length, dim.unit > 1 ? fmt::format(" unit {}", dim.unit) : "");
  std::vector<bool> is_written(program.values.size(), false);
  const auto write_leaf = [&](size_t value) {
    const ProgramValue& leaf = program.values[value];
    if (leaf.role == ProgramValue::Role::kResult || is_written[value]) return;
    is_written[value] = true;
    const char* role = leaf.role == ProgramValue::Role::kInput  ? "input"
                       : leaf.role == ProgramValue::Role::kData ? "data"
                                                                : "weight";
    text += fmt::format("{} {} [{}]\n", role, leaf.name, dims_text(program, leaf.dims));
  };
  // In the order of the values, so that reading numbers them alike.
  size_t next_value = 0;
  for (size_t i = 0; i < program.operators.size(); ++i) {
    for (; next_value <= program.operators[i].result; ++next_value) write_leaf(next_value);
    for (const Repeat& repeat : program.repeats) {
      if (repeat.begin == i)
        text += fmt::format("repeat {} {}\n", repeat.count, program.values[repeat.carried_in].name);
    }
    text += operator_text(program, program.operators[i]) + "\n";
    for (const Repeat& repeat : program.repeats) {
      if (repeat.end == i + 1) text += fmt::format("end {}\n", program.values[repeat.carried_out].name);
    }
  }
  for (; next_value < program.values.size(); ++next_value) write_leaf(next_value);
  return text;
}

}  // namespace weft
