#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "weft/base/document_builder.h"
#include "weft/base/document_readers.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

struct Stop {};  // leaves yaml-cpp's parser once the builder has refused something

template <typename T>
std::optional<T> whole_number(std::string_view text, int base = 10) {
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (code == std::errc() && end == text.data() + text.size()) return value;
  return std::nullopt;
}

std::optional<double> real_number(std::string_view text) {
  if (text.find_first_of("0123456789") == std::string_view::npos) return std::nullopt;  // "inf", "nan", "infinity"
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return std::nullopt;
  double value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return std::nullopt;
  if (code == std::errc::result_out_of_range) return std::strtod(std::string(text).c_str(), nullptr);  // infinity, or 0
  return code == std::errc() ? std::optional(value) : std::nullopt;
}

/// A plain scalar's type, by YAML 1.2's core schema: null, bool, int, float, else a string.
Json plain_scalar(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  std::string_view digits = text;
  if (digits.front() == '+') digits.remove_prefix(1);
  if (digits.size() < text.size() && digits.starts_with('-')) return text;  // one sign is a number's
  if (digits.starts_with("0x")) {
    const auto value = whole_number<uint64_t>(digits.substr(2), 16);  // without a sign behind the x
    if (value && *value <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(*value);
  }
  if (const auto value = whole_number<int64_t>(digits)) return *value;
  if (const auto value = whole_number<uint64_t>(digits)) return *value;
  if (const auto value = real_number(digits)) return *value;
  const std::string_view sign_free = digits.starts_with('-') ? digits.substr(1) : digits;
  if (sign_free == ".inf" || sign_free == ".Inf" || sign_free == ".INF")
    return text.front() == '-' ? -HUGE_VAL : HUGE_VAL;
  if (text == ".nan" || text == ".NaN" || text == ".NAN") return std::nan("");
  return text;
}

/// yaml-cpp writes the escapes \N and \_ as the bytes 0x85 and 0xa0 where their characters have two. Nothing else of
/// what it reads from UTF-8 is not UTF-8.
std::string mended(std::string_view text) {
  std::string whole;
  for (auto at = first_not_utf8(text); at; at = first_not_utf8(text)) {
    whole.append(text.substr(0, *at)).append({'\xc2', text[*at]});
    text.remove_prefix(*at + 1);
  }
  return whole.append(text);
}

/// yaml-cpp's events, forwarded to the builder. Throws Stop once the builder, or this, has refused something.
class YamlEvents final : public YAML::EventHandler {
 public:
  YamlEvents(DocumentBuilder& builder, bool is_foreign) : builder_(builder), is_foreign_(is_foreign) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { play(mark, {.kind = Event::kScalar}, anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& raw) override {
    check_tag(mark, tag);
    const std::string text = mended(raw);
    const bool is_plain = tag == "?" || tag.empty();
    play(mark, {.kind = Event::kScalar, .text = text, .value = is_plain ? plain_scalar(text) : Json(text)}, anchor);
  }
  // An alias could unfold a small text into an endless tree, and no specification of ours needs one.
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (!is_foreign_) refuse(mark, "aliases (*name) are not supported");
    const auto found = recordings_.find(anchor);
    if (found == recordings_.end() || found->second.is_open) refuse(mark, "an alias stands inside its own anchor");
    for (const Event& event : found->second.events) play(mark, event, 0);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    play(mark, {.kind = Event::kList}, anchor);
  }
  void OnSequenceEnd() override { play({}, {.kind = Event::kEnd}, 0); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    play(mark, {.kind = Event::kMap}, anchor);
  }
  void OnMapEnd() override { play({}, {.kind = Event::kEnd}, 0); }

  const std::string& refused() const { return refused_; }

 private:
  struct Level {
    bool is_map;
    bool at_key;
  };

  struct Event {
    enum Kind { kScalar, kList, kMap, kEnd } kind;
    std::string text = {};
    Json value = {};
  };
  /// What an anchor marks.
  struct Recording {
    std::vector<Event> events;
    size_t depth = 0;  ///< of levels around it
    bool is_open = true;
  };

  void play(const YAML::Mark& mark, const Event& event, YAML::anchor_t anchor) {
    if (is_foreign_) record(mark, event, anchor);
    if (event.kind == Event::kScalar) on_scalar(mark, event.text, event.value);
    if (event.kind == Event::kList || event.kind == Event::kMap) open(mark, event.kind == Event::kMap);
    if (event.kind == Event::kEnd) close();
    for (; !open_.empty() && levels_.size() <= open_.back()->depth; open_.pop_back()) open_.back()->is_open = false;
  }

  void record(const YAML::Mark& mark, const Event& event, YAML::anchor_t anchor) {
    constexpr size_t kMostRecorded = 1'000'000, kMostAnchors = 1'000;
    if (anchor != 0) {
      Recording& recording = recordings_[anchor] = {.events = {}, .depth = levels_.size()};
      open_.push_back(&recording);
    }
    if (recordings_.size() > kMostAnchors) refuse(mark, "it has more anchors than settings have");
    for (Recording* recording : open_) {
      recording->events.push_back(event);
      if (++num_recorded_ > kMostRecorded) refuse(mark, "its aliases unfold into more than settings hold");
    }
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.size() < 2 || tag.front() != '!') return;
    refuse(mark, fmt::format("the tag {} is not read; write what it stands for", tag));
  }

  bool expects_key() const { return !levels_.empty() && levels_.back().is_map && levels_.back().at_key; }

  void on_scalar(const YAML::Mark& mark, const std::string& text, Json value) {
    if (expects_key()) {
      levels_.back().at_key = false;
      go_on(mark, builder_.key(text));
    } else {
      go_on(mark, builder_.scalar(std::move(value)));
      after_value();
    }
  }

  void open(const YAML::Mark& mark, bool is_map) {
    if (expects_key())
      refuse(mark, "a list or mapping stands where a key is expected; a bracket or brace may be left open");
    go_on(mark, is_map ? builder_.open_object() : builder_.open_array());
    levels_.push_back({is_map, is_map});
  }

  void close() {
    builder_.close();
    levels_.pop_back();
    after_value();
  }

  void after_value() {
    if (!levels_.empty()) levels_.back().at_key = levels_.back().is_map;
  }

  void go_on(const YAML::Mark& mark, bool going) {
    if (!going) refuse(mark, builder_.problem());
  }

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& what) {
    refused_ = fmt::format("line {}: {}", mark.line + 1, what);
    throw Stop{};
  }

  DocumentBuilder& builder_;
  bool is_foreign_;
  std::map<YAML::anchor_t, Recording> recordings_;
  std::vector<Recording*> open_;  // those inside of which the reader is, the innermost last
  size_t num_recorded_ = 0;
  std::vector<Level> levels_;
  std::string refused_;
};

std::string read_events(std::string_view text, YamlEvents& events) {
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(events);
    if (events.refused().empty() && static_cast<bool>(parser)) {
      return "holds more than one YAML document, one is allowed";
    }
  } catch (const Stop&) {
    return events.refused();
  } catch (const YAML::Exception& error) {
    return fmt::format("is not valid YAML: line {}, column {}: {}", error.mark.line + 1, error.mark.column + 1,
                       error.msg);
  }
  return "";
}

}  // namespace

std::string read_yaml(std::string_view text, DocumentBuilder& builder) {
  YamlEvents events(builder, /*is_foreign=*/false);
  return read_events(text, events);
}

std::string read_foreign_yaml(std::string_view text, DocumentBuilder& builder) {
  YamlEvents events(builder, /*is_foreign=*/true);
  return read_events(text, events);
}

}  // namespace weft
