#include "weft/exchange/json_edit.h"

#include <algorithm>

#include <fmt/format.h>

namespace weft {
namespace {

/// A member of an object: where its key begins, and its value's place.
struct Span {
  size_t key = 0;
  size_t begin = 0;
  size_t end = 0;
};

/// Walks a JSON text by its brackets and quotes. The text was read as JSON before, so that nothing is checked here but
/// the end.
class JsonWalk {
 public:
  explicit JsonWalk(const std::string& text) : text_(text) {}

  size_t skip_space(size_t at) const {
    const size_t next = text_.find_first_not_of(" \t\r\n", at);
    return next == std::string::npos ? text_.size() : next;
  }

  size_t end_of_string(size_t at) const {
    for (size_t i = at + 1; i < text_.size(); ++i) {
      if (text_[i] == '\\') {
        ++i;
      } else if (text_[i] == '"') {
        return i + 1;
      }
    }
    return text_.size();
  }

  size_t end_of_value(size_t at) const {
    if (at >= text_.size()) return at;
    if (text_[at] == '"') return end_of_string(at);
    if (text_[at] != '{' && text_[at] != '[') {
      const size_t end = text_.find_first_of(",]} \t\r\n", at);
      return end == std::string::npos ? text_.size() : end;
    }
    size_t depth = 0;
    for (size_t i = at; i < text_.size();) {
      if (text_[i] == '"') {
        i = end_of_string(i);
        continue;
      }
      if (text_[i] == '{' || text_[i] == '[') ++depth;
      if ((text_[i] == '}' || text_[i] == ']') && --depth == 0) return i + 1;
      ++i;
    }
    return text_.size();
  }

  /// The value of a member of the object that begins there; of several the last.
  std::optional<Span> member(size_t object, const std::string& key) const {
    std::optional<Span> found;
    size_t at = skip_space(object + 1);
    while (at < text_.size() && text_[at] == '"') {
      const size_t key_begin = at, key_end = end_of_string(at);
      const bool is_it = text_.substr(at + 1, key_end - at - 2) == key;
      at = skip_space(key_end);
      if (at >= text_.size() || text_[at] != ':') return std::nullopt;
      at = skip_space(at + 1);
      const Span span{key_begin, at, end_of_value(at)};
      if (is_it) found = span;
      at = skip_space(span.end);
      if (at < text_.size() && text_[at] == ',') at = skip_space(at + 1);
    }
    return found;
  }

 private:
  const std::string& text_;
};

}  // namespace

std::optional<std::string> with_json_value(const std::string& text, const std::vector<std::string>& path,
                                           const std::string& value) {
  const JsonWalk walk(text);
  size_t at = walk.skip_space(0);
  for (size_t depth = 0; depth < path.size(); ++depth) {
    if (at >= text.size() || text[at] != '{') return std::nullopt;
    if (const auto member = walk.member(at, path[depth])) {
      if (depth + 1 == path.size())
        return text.substr(0, member->begin) + value + text.substr(std::min(member->end, text.size()));
      at = member->begin;
      continue;
    }
    // What is missing goes before the object's first member, spaced as that is.
    std::string added = value;
    for (size_t i = path.size(); i-- > depth + 1;) added = fmt::format("{{\"{}\": {}}}", path[i], added);
    added = fmt::format("\"{}\": {}", path[depth], added);
    const size_t first = walk.skip_space(at + 1);
    const bool is_empty = first >= text.size() || text[first] == '}';
    const std::string space = text.substr(at + 1, first - at - 1);
    return text.substr(0, at + 1) + (is_empty ? added : space + added + "," + (space.empty() ? " " : space)) +
           text.substr(first);
  }
  return std::nullopt;
}

std::optional<std::string> without_json_value(const std::string& text, const std::vector<std::string>& path) {
  const JsonWalk walk(text);
  size_t at = walk.skip_space(0);
  for (size_t depth = 0; depth < path.size(); ++depth) {
    if (at >= text.size() || text[at] != '{') return std::nullopt;
    const auto member = walk.member(at, path[depth]);
    if (!member) return std::nullopt;
    if (depth + 1 < path.size()) {
      at = member->begin;
      continue;
    }
    const size_t next = walk.skip_space(member->end);
    // With the comma and the space behind it; of the last member, those before it.
    if (next < text.size() && text[next] == ',')
      return text.substr(0, member->key) + text.substr(walk.skip_space(next + 1));
    const size_t previous = text.find_last_not_of(" \t\r\n", member->key - 1);
    const size_t begin = text[previous] == ',' ? previous : previous + 1;
    return text.substr(0, begin) + text.substr(member->end);
  }
  return std::nullopt;
}

}  // namespace weft
