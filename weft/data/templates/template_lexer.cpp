#include "weft/data/templates/template_lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/utf8.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_text.h"

namespace weft {
namespace {

/// As Jinja's \s* and rstrip, which take Unicode's blanks.
std::string_view without_blanks(std::string_view text, bool left, bool right) {
  return stripped(text, std::nullopt, left, right);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    // Line ends are one character, and the last is not part of the template.
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r') {
        source_ += '\n';
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      } else {
        source_ += source[i];
      }
    }
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  std::vector<TemplateToken> run() {
    while (at_ < source_.size()) lex_text();
    add(TemplateToken::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const { throw TemplateFault(problem, line_); }

  bool is_at(std::string_view text) const { return std::string_view(source_).substr(at_).starts_with(text); }

  size_t blanks_end() const {
    return source_.size() - without_blanks(std::string_view(source_).substr(at_), true, false).size();
  }

  void add(TemplateToken::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void move_to(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  /// Text up to the next tag, and that tag.
  void lex_text() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        tag = source_.size();
        break;
      }
      const char mark = source_[tag + 1];
      if (mark == '{' || mark == '%' || mark == '#') break;
      ++tag;
    }
    std::string text = source_.substr(at_, tag - at_);
    if (tag == source_.size()) {
      if (!text.empty()) add(TemplateToken::Kind::kText, std::move(text));
      move_to(tag);
      return;
    }
    const char mark = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign == '-') {
      text.resize(without_blanks(text, false, true).size());
    } else if (mark != '{' && sign != '+') {
      const size_t line_begin = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
      const bool begins_line = line_begin > 0 || starts_line_;
      if (begins_line && without_blanks(std::string_view(text).substr(line_begin), true, false).empty())
        text.resize(line_begin);
    }
    if (!text.empty()) add(TemplateToken::Kind::kText, std::move(text));
    move_to(tag + (sign == '-' || (sign == '+' && mark != '{') ? 3 : 2));
    if (mark == '#') {
      lex_comment();
    } else {
      lex_tag(mark == '%');
    }
  }

  /// After a tag's end: what its sign, or trim_blocks, takes of the text behind it.
  void trim_after(bool strips, bool trims_line) {
    const size_t begin = at_;
    size_t end = at_;
    if (strips) {
      end = blanks_end();
    } else if (trims_line && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    starts_line_ = end > begin && source_[end - 1] == '\n';
    move_to(end);
  }

  void lex_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("has a comment '{#' without its end '#}'");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    move_to(end + 2);
    trim_after(sign == '-', sign != '+');
  }

  void lex_tag(bool is_block) {
    add(is_block ? TemplateToken::Kind::kBlockBegin : TemplateToken::Kind::kVariableBegin, "");
    const std::string close = is_block ? "%}" : "}}";
    int open = 0;
    while (true) {
      move_to(blanks_end());
      if (at_ >= source_.size()) fail(fmt::format("ends inside a tag, before its '{}'", close));
      const bool strips = is_at("-" + close);
      const bool keeps = is_block && is_at("+" + close);
      // A brace that closes a dictionary is no end of the tag.
      if (strips || keeps || (is_at(close) && (is_block || open == 0))) {
        add(is_block ? TemplateToken::Kind::kBlockEnd : TemplateToken::Kind::kVariableEnd, "");
        move_to(at_ + close.size() + (strips || keeps ? 1 : 0));
        trim_after(strips, is_block && !keeps);
        return;
      }
      lex_word(open);
    }
  }

  void lex_word(int& open) {
    const char c = source_[at_];
    size_t end = at_ + 1;
    const auto is_digit = [&](size_t i) {
      return i < source_.size() && std::isdigit(static_cast<unsigned char>(source_[i])) != 0;
    };
    if (c == '\'' || c == '"') return lex_string(c);
    if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_') {
      while (end < source_.size() &&
             (std::isalnum(static_cast<unsigned char>(source_[end])) != 0 || source_[end] == '_'))
        ++end;
      add(TemplateToken::Kind::kName, source_.substr(at_, end - at_));
      return move_to(end);
    }
    if (is_digit(at_)) {
      while (is_digit(end)) ++end;
      TemplateToken::Kind kind = TemplateToken::Kind::kInteger;
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(end + 1)) {
        kind = TemplateToken::Kind::kFloat;
        ++end;
        while (is_digit(end)) ++end;
      }
      if (end < source_.size() && (source_[end] | 0x20) == 'e') {
        const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
        if (is_digit(end + 1 + sign)) {
          kind = TemplateToken::Kind::kFloat;
          end += 1 + sign;
          while (is_digit(end)) ++end;
        }
      }
      const bool begins_with_zero = c == '0' && source_.find_first_not_of('0', at_) < end;
      if (kind == TemplateToken::Kind::kInteger && begins_with_zero)
        fail(fmt::format("has the number {}, which begins with zero", in_quotes(source_.substr(at_, end - at_))));
      add(kind, source_.substr(at_, end - at_));
      return move_to(end);
    }
    static constexpr std::array<std::string_view, 6> kPairs = {"==", "!=", "<=", ">=", "//", "**"};
    for (const std::string_view pair : kPairs) {
      if (!is_at(pair)) continue;
      add(TemplateToken::Kind::kMark, std::string(pair));
      return move_to(at_ + 2);
    }
    if (std::string_view("+-*/%~<>=()[]{}.,:|").find(c) == std::string_view::npos)
      fail(fmt::format("has the unexpected character {}", in_quotes(std::string_view(source_).substr(at_, 1))));
    if (c == '(' || c == '[' || c == '{') ++open;
    if (c == ')' || c == ']' || c == '}') --open;
    add(TemplateToken::Kind::kMark, std::string(1, c));
    move_to(end);
  }

  void lex_string(char quote) {
    std::string text;
    size_t i = at_ + 1;
    const auto hexadecimal = [&](size_t digits) {
      if (i + digits >= source_.size()) fail("has a text that does not end");
      uint32_t code = 0;
      for (size_t d = 1; d <= digits; ++d) {
        const auto digit = static_cast<unsigned char>(source_[i + d]);
        if (std::isxdigit(digit) == 0) fail("has a broken escape in a text");
        code = code * 16 + static_cast<uint32_t>(std::isdigit(digit) != 0 ? digit - '0' : (digit | 0x20) - 'a' + 10);
      }
      if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) fail("has an escape for no character in a text");
      append_utf8(text, code);
      i += digits;
    };
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] != '\\' || i + 1 >= source_.size()) {
        text += source_[i];
        continue;
      }
      const char c = source_[++i];
      static constexpr std::string_view kNames = "ntrabfv\\'\"", kMeanings = "\n\t\r\a\b\f\v\\'\"";
      if (c == 'x' || c == 'u' || c == 'U') {
        hexadecimal(c == 'x' ? 2 : c == 'u' ? 4 : 8);
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        const size_t end = std::min(i + 3, source_.size());
        for (; i < end && source_[i] >= '0' && source_[i] <= '7'; ++i) {
          code = code * 8 + static_cast<uint32_t>(source_[i] - '0');
        }
        append_utf8(text, code);
        --i;
      } else if (c == 'N') {
        fail("has the escape '\\N' in a text, which is not known; write '\\u' and its number");
      } else if (c == '\n') {
        continue;
      } else if (const size_t known = kNames.find(c); known != std::string_view::npos) {
        text += kMeanings[known];
      } else {
        text += '\\';
        text += c;
      }
    }
    if (i >= source_.size()) fail("has a text that does not end");
    add(TemplateToken::Kind::kString, std::move(text));
    move_to(i + 1);
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;
  std::vector<TemplateToken> tokens_;
};

}  // namespace

std::vector<TemplateToken> lex_template(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace weft
