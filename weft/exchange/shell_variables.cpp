#include "weft/exchange/shell_variables.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace weft {
namespace {

/// Arguments of a script have at most so many digits in their name: a list is made of them, up to the last.
constexpr size_t kMostDigits = 3;

bool names_argument(std::string_view name) {
  return !name.empty() && name.size() <= kMostDigits && name.front() != '0' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

MarkedText MarkedText::not_known(std::string why, char hole) {
  MarkedText text;
  text.add(hole, {});
  text.unknown = std::move(why);
  return text;
}

void MarkedText::add(const MarkedText& other) {
  is_unset = text.empty() && unknown.empty() && other.is_unset;
  text += other.text;
  places.insert(places.end(), other.places.begin(), other.places.end());
  if (unknown.empty()) unknown = other.unknown;
}

bool is_name_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_variable_name(std::string_view word) {
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word.front())) == 0 &&
         std::all_of(word.begin(), word.end(), is_name_letter);
}

MarkedText joined(const std::vector<MarkedText>& fields, Place place) {
  MarkedText text;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) text.add(' ', place);
    text.add(fields[i]);
  }
  return text;
}

std::string integer_mark(const std::string& name) {
  return "declare -i " + name;
}

ShellEnvironment::ShellEnvironment(const ShellVariables& given) {
  ShellValue arguments{.is_array = true};
  for (const auto& [name, text] : given) {
    MarkedText value;
    value.add(text, {0, 0});
    if (names_argument(name)) {
      const size_t number = std::stoul(name);
      while (arguments.items.size() < number) {
        arguments.items.push_back(MarkedText::not_known("an argument that is not given", MarkedText::kUnset));
        arguments.items.back().is_unset = true;
      }
      arguments.items[number - 1] = std::move(value);
    } else {
      values_[name] = {.items = {std::move(value)}};
      given_.push_back(name);
    }
  }
  values_[std::string(kShellArguments)] = std::move(arguments);
}

const ShellValue* ShellEnvironment::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

bool ShellEnvironment::is_given(std::string_view name) const {
  return name != kShellArguments && std::binary_search(given_.begin(), given_.end(), name);
}

void ShellEnvironment::remember(const std::string& name) {
  if (before_.empty()) return;
  const auto [at, is_new] = before_.back().try_emplace(name);
  if (!is_new) return;
  if (const auto found = values_.find(name); found != values_.end()) at->second = std::move(found->second);
}

void ShellEnvironment::set(const std::string& name, ShellValue value) {
  if (is_given(name)) return;
  remember(name);
  values_[name] = std::move(value);
}

void ShellEnvironment::unset(const std::string& name) {
  if (is_given(name) || name == kShellArguments) return;
  remember(name);
  values_.erase(name);
}

void ShellEnvironment::open() {
  before_.emplace_back();
}

void ShellEnvironment::keep() {
  Changes inner = std::move(before_.back());
  before_.pop_back();
  if (before_.empty()) return;
  if (before_.back().empty()) {
    before_.back() = std::move(inner);
  } else {
    before_.back().merge(inner);
  }
}

ShellEnvironment::Changes ShellEnvironment::take_back() {
  Changes changes = std::move(before_.back());
  before_.pop_back();
  for (auto& [name, value] : changes) {
    const auto now = values_.find(name);
    std::optional<ShellValue> changed;
    if (now != values_.end()) changed = std::move(now->second);
    if (value) {
      values_[name] = std::move(*value);
    } else if (now != values_.end()) {
      values_.erase(now);
    }
    value = std::move(changed);
  }
  return changes;
}

bool ShellEnvironment::unite(const Changes& others, const std::string& why) {
  std::vector<std::pair<std::string, ShellValue>> differ;
  bool is_new = false;
  const auto compare = [&](const std::string& name, const std::optional<ShellValue>& other) {
    const ShellValue* now = find(name);
    const bool is_same = now == nullptr || !other ? now == nullptr && !other : *now == *other;
    if (is_same) return;
    differ.emplace_back(name, ShellValue{.is_array = other ? other->is_array : now->is_array, .unknown = why});
    is_new |= !other || *other != differ.back().second;
  };
  for (const auto& [name, old] : before_.back()) {
    const auto other = others.find(name);
    compare(name, other == others.end() ? old : other->second);
  }
  for (const auto& [name, value] : others) {
    if (!before_.back().contains(name)) compare(name, value);
  }
  keep();
  for (auto& [name, value] : differ) set(name, std::move(value));
  return is_new;
}

}  // namespace weft
