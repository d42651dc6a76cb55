#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "weft/base/document_builder.h"
#include "weft/base/document_readers.h"

namespace weft {
namespace {

/// nlohmann's event interface, forwarded to the builder; keeps the parser's own message on a syntax error.
class JsonEvents final : public nlohmann::json_sax<Json> {
 public:
  explicit JsonEvents(DocumentBuilder& builder) : builder_(builder) {}

  bool null() override { return builder_.scalar(nullptr); }
  bool boolean(bool value) override { return builder_.scalar(value); }
  bool number_integer(number_integer_t value) override { return builder_.scalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return builder_.scalar(value); }
  bool number_float(number_float_t value, const string_t&) override { return builder_.scalar(value); }
  bool string(string_t& value) override { return builder_.scalar(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return builder_.open_object(); }
  bool key(string_t& name) override { return builder_.key(std::move(name)); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return builder_.open_array(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    syntax_problem = error.what();
    return false;
  }

  std::string syntax_problem;

 private:
  bool close() {
    builder_.close();
    return true;
  }

  DocumentBuilder& builder_;
};

/// nlohmann says "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error while ...".
std::string readable(const std::string& what) {
  const size_t start = what.find("at line ");
  const size_t bracket = what.find("] ");
  std::string text = start != std::string::npos     ? what.substr(start)
                     : bracket != std::string::npos ? what.substr(bracket + 2)
                                                    : what;
  if (const size_t last = text.find("; last read: "); last != std::string::npos) {
    const size_t expected = text.rfind("; expected ");
    text = text.substr(0, last) + (expected != std::string::npos && expected > last ? text.substr(expected) : "");
  }
  return text;
}

}  // namespace

std::string read_json(std::string_view text, DocumentBuilder& builder) {
  // nlohmann takes a zero byte for the end of the text and would leave all that follows unread.
  if (text.find('\0') != std::string_view::npos) return "is not valid JSON: it holds a zero byte";
  JsonEvents events(builder);
  Json::sax_parse(text, &events);
  // Behind that, the parser quotes the text, which may hold any words.
  const std::string said = events.syntax_problem.substr(0, events.syntax_problem.find("; last read: "));
  for (const char* ending : {"unexpected end of input", "missing closing quote"}) {
    if (said.find(ending) == std::string::npos) continue;
    const size_t end = text.find_last_not_of(" \t\r\n");
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end + 1), '\n');
    return fmt::format("{} in line {}, before the value that it holds is complete", kTextEnds, line);
  }
  return events.syntax_problem.empty() ? "" : "is not valid JSON: " + readable(events.syntax_problem);
}

}  // namespace weft
