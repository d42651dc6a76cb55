#include <charconv>
#include <cmath>
#include <cstdlib>
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
  if (digits.starts_with("0x")) {
    if (const auto value = whole_number<int64_t>(digits.substr(2), 16)) return *value;
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

/// yaml-cpp's events, forwarded to the builder. Throws Stop once the builder, or this, has refused something.
class YamlEvents final : public YAML::EventHandler {
 public:
  explicit YamlEvents(DocumentBuilder& builder) : builder_(builder) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { on_scalar(mark, "", nullptr); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& text) override {
    const bool is_plain = tag == "?" || tag.empty();
    on_scalar(mark, text, is_plain ? plain_scalar(text) : Json(text));
  }
  // An alias could unfold a small text into an endless tree, and no specification needs one.
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse(mark, "aliases (*name) are not supported"); }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(mark, /*is_map=*/false);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(mark, /*is_map=*/true);
  }
  void OnMapEnd() override { close(); }

  const std::string& refused() const { return refused_; }

 private:
  struct Level {
    bool is_map;
    bool at_key;
  };

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
  std::vector<Level> levels_;
  std::string refused_;
};

}  // namespace

std::string read_yaml(std::string_view text, DocumentBuilder& builder) {
  YamlEvents events(builder);
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

}  // namespace weft
