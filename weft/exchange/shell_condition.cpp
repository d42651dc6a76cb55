#include "weft/exchange/shell_condition.h"

#include <charconv>

#include "weft/exchange/shell_pattern.h"

namespace weft {
namespace {

std::optional<std::string> known(const MarkedText& word) {
  if (word.is_unset) return "";
  if (!word.unknown.empty()) return std::nullopt;
  return word.text;
}

/// Numbers of double brackets are arithmetic, to which a 0 ahead says octal; these are not known.
std::optional<int64_t> whole(const MarkedText& word, TestKind kind) {
  const auto text = known(word);
  if (!text || (kind == TestKind::kDoubleBrackets && text->size() > 1 && text->front() == '0')) return std::nullopt;
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (code != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return value;
}

class ShellTest {
 public:
  ShellTest(const std::vector<MarkedText>& words, TestKind kind, size_t& work)
      : words_(words), kind_(kind), work_(work) {}

  Truth run() { return either(); }

 private:
  bool is(std::string_view a, std::string_view b = "") const {
    return at_ < words_.size() && words_[at_].unknown.empty() &&
           (words_[at_].text == a || (!b.empty() && words_[at_].text == b));
  }

  Truth either() {
    Truth truth = both();
    while (is("||", "-o")) {
      ++at_;
      const Truth other = both();
      truth = truth == Truth::kTrue || other == Truth::kTrue     ? Truth::kTrue
              : truth == Truth::kFalse && other == Truth::kFalse ? Truth::kFalse
                                                                 : Truth::kUnknown;
    }
    return truth;
  }

  Truth both() {
    Truth truth = one();
    while (is("&&", "-a")) {
      ++at_;
      const Truth other = one();
      truth = truth == Truth::kFalse || other == Truth::kFalse ? Truth::kFalse
              : truth == Truth::kTrue && other == Truth::kTrue ? Truth::kTrue
                                                               : Truth::kUnknown;
    }
    return truth;
  }

  Truth one() {
    bool is_negated = false;
    for (; is("!"); ++at_) is_negated = !is_negated;
    const Truth truth = at_ < words_.size() ? plain() : Truth::kFalse;
    return is_negated ? negated(truth) : truth;
  }

  Truth plain() {
    constexpr int kDeepest = 50;
    if (is("(") && depth_ < kDeepest) {
      ++depth_, ++at_;
      const Truth truth = either();
      --depth_;
      if (is(")")) ++at_;
      return truth;
    }
    if (at_ + 2 < words_.size()) {
      if (const auto truth = compared(words_[at_], words_[at_ + 1].text, words_[at_ + 2])) {
        at_ += 3;
        return *truth;
      }
    }
    const MarkedText& first = words_[at_++];
    if (first.unknown.empty() && first.text.size() == 2 && first.text[0] == '-' && at_ < words_.size()) {
      const auto text = known(words_[at_]);
      const char kind = first.text[1];
      ++at_;
      if (kind != 'z' && kind != 'n') return Truth::kUnknown;
      return text ? truth_of(text->empty() == (kind == 'z')) : Truth::kUnknown;
    }
    const auto text = known(first);
    return text ? truth_of(!text->empty()) : Truth::kUnknown;
  }

  std::optional<Truth> compared(const MarkedText& a, std::string_view op, const MarkedText& b) const {
    if (op == "=" || op == "==" || op == "!=") {
      const auto left = known(a), right = known(b);
      if (!left || !right) return Truth::kUnknown;
      const Truth truth =
          kind_ == TestKind::kDoubleBrackets ? fits_shell_pattern(*left, *right, work_) : truth_of(*left == *right);
      return op == "!=" ? negated(truth) : truth;
    }
    if (op == "=~" || op == "<" || op == ">") return Truth::kUnknown;
    if (op != "-eq" && op != "-ne" && op != "-lt" && op != "-le" && op != "-gt" && op != "-ge") return std::nullopt;
    const auto left = whole(a, kind_), right = whole(b, kind_);
    if (!left || !right) return Truth::kUnknown;
    if (op == "-eq") return truth_of(*left == *right);
    if (op == "-ne") return truth_of(*left != *right);
    if (op == "-lt") return truth_of(*left < *right);
    if (op == "-le") return truth_of(*left <= *right);
    if (op == "-gt") return truth_of(*left > *right);
    return truth_of(*left >= *right);
  }

  const std::vector<MarkedText>& words_;
  TestKind kind_;
  size_t& work_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Truth test_of(const std::vector<MarkedText>& words, TestKind kind, size_t& work) {
  return ShellTest(words, kind, work).run();
}

}  // namespace weft
