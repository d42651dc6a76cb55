#include "weft/data/text/split_pattern.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

constexpr std::string_view kByteLevel =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
constexpr std::string_view kPrefix = "[^\\r\\n\\p{L}\\p{N}]?";
constexpr std::string_view kUpperClass = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]";
constexpr std::string_view kLowerClass = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]";
constexpr size_t kNoMatch = static_cast<size_t>(-1);

/// The alternatives between bars that are in no group and no class.
std::vector<std::string_view> alternatives_of(std::string_view pattern) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int groups = 0;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '(') {
      ++groups;
    } else if (c == ')') {
      --groups;
    } else if (c == '|' && groups == 0) {
      parts.push_back(pattern.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  parts.push_back(pattern.substr(begin));
  return parts;
}

bool take(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

/// "[\r\n/]*", as the bytes in it.
bool take_trailing_bytes(std::string_view& text, std::string& bytes) {
  if (take(text, "[\\r\\n]*")) {
    bytes = "\r\n";
  } else if (take(text, "[\\r\\n/]*")) {
    bytes = "\r\n/";
  }
  return text.empty();
}

/// "+", "" or "{1,3}".
bool take_count(std::string_view& text, uint32_t& most) {
  if (take(text, "+")) return true;
  if (take(text, "{1,")) {
    if (text.size() != 2 || text[0] < '1' || text[0] > '9' || text[1] != '}') return false;
    most = static_cast<uint32_t>(text[0] - '0');
    text = {};
    return true;
  }
  most = 1;
  return text.empty();
}

size_t match_contraction(std::string_view text, size_t begin) {
  if (begin + 1 >= text.size() || text[begin] != '\'') return kNoMatch;
  const auto lower = [&](size_t i) {
    return i < text.size() ? static_cast<char>(std::tolower(static_cast<unsigned char>(text[i]))) : '\0';
  };
  const char first = lower(begin + 1), second = lower(begin + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  if (text.substr(begin + 1).starts_with("\u017f")) return begin + 3;  // the long s is an s in another case
  const bool is_pair =
      (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return is_pair ? begin + 3 : kNoMatch;
}

}  // namespace

char32_t SplitPattern::utf8_code(std::string_view text, size_t offset) {
  return utf8_at(text, offset).code;
}

SplitPattern SplitPattern::of_byte_level() {
  return *parse(kByteLevel, "", "");
}

bool SplitPattern::parse_alternative(std::string_view pattern, Alternative& alternative) {
  constexpr uint8_t kLetter = Characters::kLetter, kMark = Characters::kMark, kNumber = Characters::kNumber,
                    kSpaces = Characters::kSpace;
  if (pattern == kContractions || pattern == "'(?i:[sdmt]|ll|ve|re)") {
    alternative.kind = Kind::kContraction;
    return true;
  }
  if (pattern == "\\s*[\\r\\n]+" || pattern == "\\s+(?!\\S)" || pattern == "\\s+") {
    alternative.kind = pattern == "\\s+"          ? Kind::kSpace
                       : pattern == "\\s+(?!\\S)" ? Kind::kTrailingSpace
                                                  : Kind::kLineEnds;
    return true;
  }
  if (pattern.size() > 1 && pattern[0] == '\'' &&
      std::all_of(pattern.begin() + 1, pattern.end(), [](unsigned char c) { return std::isalpha(c) != 0; })) {
    alternative.kind = Kind::kLiteral;
    alternative.text = pattern;
    return true;
  }
  if (take(pattern, kPrefix)) {
    if (pattern == "\\p{L}+" || pattern == "[\\p{L}\\p{M}]+") {
      alternative.kind = Kind::kPrefixedRun;
      alternative.properties = static_cast<uint8_t>(pattern == "\\p{L}+" ? kLetter : kLetter | kMark);
      return true;
    }
    if (!take(pattern, kUpperClass)) return false;
    const bool is_word = take(pattern, "*");
    if (!is_word && !take(pattern, "+")) return false;
    if (!take(pattern, kLowerClass) || !take(pattern, is_word ? "+" : "*")) return false;
    alternative.kind = is_word ? Kind::kCasedWord : Kind::kCapitals;
    if (take(pattern, kContractions)) {
      alternative.takes_contraction = true;
      if (!take(pattern, "?")) return false;
    }
    return pattern.empty();
  }
  alternative.kind = Kind::kRun;
  alternative.takes_space = take(pattern, " ?");
  if (take(pattern, "[^\\s\\p{L}\\p{N}]+")) {
    alternative.is_negated = true;
    alternative.properties = kSpaces | kLetter | kNumber;
    return take_trailing_bytes(pattern, alternative.text);
  }
  if (take(pattern, "[^\\s\\p{L}\\p{M}\\p{N}]+")) {
    alternative.is_negated = true;
    alternative.properties = kSpaces | kLetter | kMark | kNumber;
    return take_trailing_bytes(pattern, alternative.text);
  }
  if (take(pattern, "\\p{L}")) {
    alternative.properties = kLetter;
  } else if (take(pattern, "\\p{N}")) {
    alternative.properties = kNumber;
  } else {
    return false;
  }
  return take_count(pattern, alternative.most);
}

Result<SplitPattern> SplitPattern::parse(std::string_view pattern, const std::string& source,
                                         const std::string& field) {
  SplitPattern split;
  const std::vector<std::string_view> parts = alternatives_of(pattern);
  if (parts.size() > kMostAlternatives) {
    return Error{.source = source,
                 .field = field,
                 .problem = fmt::format("has {} alternatives, up to {} are known", parts.size(), kMostAlternatives),
                 .advice = "docs/manual/data.md lists the expressions that are known."};
  }
  for (const std::string_view part : parts) {
    Alternative alternative;
    if (!parse_alternative(part, alternative)) {
      return Error{.source = source,
                   .field = field,
                   .problem = fmt::format("splits text by an expression with the unknown part {}", in_quotes(part)),
                   .advice = "docs/manual/data.md lists the expressions that are known."};
    }
    split.alternatives_.push_back(std::move(alternative));
  }
  return split;
}

size_t SplitPattern::run_end(std::string_view text, size_t begin, uint8_t properties, bool negated,
                             uint32_t most) const {
  size_t end = begin;
  for (uint32_t count = 0; end < text.size() && count < most; ++count) {
    const Utf8Character next = utf8_at(text, end);
    if (characters_->has(next.code, properties) == negated) break;
    end += next.length;
  }
  return end;
}

size_t SplitPattern::match_run(const Alternative& alternative, std::string_view text, size_t begin) const {
  const auto run_from = [&](size_t start) {
    const size_t end = run_end(text, start, alternative.properties, alternative.is_negated, alternative.most);
    return end == start ? kNoMatch : end;
  };
  const bool has_space = alternative.takes_space && text[begin] == ' ';
  size_t end = has_space ? run_from(begin + 1) : kNoMatch;
  if (end == kNoMatch) end = run_from(begin);
  if (end == kNoMatch) return end;
  while (end < text.size() && alternative.text.find(text[end]) != std::string::npos) ++end;
  return end;
}

size_t SplitPattern::match_prefixed(const Alternative& alternative, std::string_view text, size_t begin) const {
  const Utf8Character first = utf8_at(text, begin);
  const bool may_prefix = first.code != '\r' && first.code != '\n' &&
                          !characters_->has(first.code, Characters::kLetter | Characters::kNumber);
  for (const bool takes_prefix : {true, false}) {
    if (takes_prefix && !may_prefix) continue;
    const size_t start = takes_prefix ? begin + first.length : begin;
    const size_t end = run_end(text, start, alternative.properties, false, UINT32_MAX);
    if (end > start) return end;
  }
  return kNoMatch;
}

size_t SplitPattern::match_cased(const Alternative& alternative, std::string_view text, size_t begin,
                                 Misses& misses) const {
  const auto is_upper = [&](size_t i) {
    const uint8_t p = properties_at(text, i);
    return (p & Characters::kMark) != 0 || ((p & Characters::kLetter) != 0 && (p & Characters::kLower) == 0);
  };
  const auto is_lower = [&](size_t i) {
    const uint8_t p = properties_at(text, i);
    return (p & Characters::kMark) != 0 || ((p & Characters::kLetter) != 0 && (p & Characters::kUpper) == 0);
  };
  const auto end_of = [&](size_t start, const auto& is_member) {
    while (start < text.size() && is_member(start)) start += utf8_at(text, start).length;
    return start;
  };
  const auto word_from = [&](size_t start) {
    if (alternative.kind == Kind::kCasedWord && misses.cased_word.has(start)) return kNoMatch;
    const size_t capitals = end_of(start, is_upper);
    const size_t end = end_of(capitals, is_lower);
    if (alternative.kind == Kind::kCapitals) return capitals > start ? end : kNoMatch;
    if (end > capitals) return end;
    // Capitals give back what may also be lower case: the last such letter ends the word.
    for (size_t i = capitals; i > start;) {
      i = utf8_before(text, i);
      if (is_lower(i)) return i + utf8_at(text, i).length;
    }
    misses.cased_word = {start, capitals};
    return kNoMatch;
  };
  const Utf8Character first = utf8_at(text, begin);
  const bool may_prefix = first.code != '\r' && first.code != '\n' &&
                          !characters_->has(first.code, Characters::kLetter | Characters::kNumber);
  size_t end = may_prefix ? word_from(begin + first.length) : kNoMatch;
  if (end == kNoMatch) end = word_from(begin);
  if (end == kNoMatch || !alternative.takes_contraction) return end;
  const size_t longer = match_contraction(text, end);
  return longer == kNoMatch ? end : longer;
}

size_t SplitPattern::match_line_ends(std::string_view text, size_t begin, Misses& misses) const {
  if (misses.line_ends.has(begin)) return kNoMatch;
  const size_t end = run_end(text, begin, Characters::kSpace, false, UINT32_MAX);
  const size_t last = text.substr(begin, end - begin).find_last_of("\r\n");
  if (last != std::string_view::npos) return begin + last + 1;
  misses.line_ends = {begin, end};
  return kNoMatch;
}

size_t SplitPattern::match(const Alternative& alternative, std::string_view text, size_t begin, Misses& misses) const {
  switch (alternative.kind) {
    case Kind::kContraction:
      return match_contraction(text, begin);
    case Kind::kLiteral:
      return text.substr(begin).starts_with(alternative.text) ? begin + alternative.text.size() : kNoMatch;
    case Kind::kRun:
      return match_run(alternative, text, begin);
    case Kind::kPrefixedRun:
      return match_prefixed(alternative, text, begin);
    case Kind::kCasedWord:
    case Kind::kCapitals:
      return match_cased(alternative, text, begin, misses);
    case Kind::kLineEnds:
      return match_line_ends(text, begin, misses);
    default:
      break;
  }
  const size_t end = run_end(text, begin, Characters::kSpace, false, UINT32_MAX);
  if (end == begin) return kNoMatch;
  if (alternative.kind == Kind::kSpace) return end;
  if (end == text.size()) return end;
  const size_t shorter = utf8_before(text, end);
  return shorter > begin ? shorter : kNoMatch;
}

size_t SplitPattern::piece_end(std::string_view text, size_t begin, Misses& misses) const {
  const auto match_at = [&](size_t at) {
    for (const Alternative& alternative : alternatives_) {
      if (const size_t end = match(alternative, text, at, misses); end != kNoMatch) return end;
    }
    return kNoMatch;
  };
  if (const size_t end = match_at(begin); end != kNoMatch) return end;
  size_t end = begin;
  do end += utf8_at(text, end).length;
  while (end < text.size() && match_at(end) == kNoMatch);
  return end;
}

}  // namespace weft
