#include "weft/base/document.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "weft/base/document_builder.h"
#include "weft/base/document_readers.h"
#include "weft/base/file.h"
#include "weft/base/foreign_document.h"
#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

/// A byte that YAML does not allow in a text; its parser makes other letters of some of them.
std::optional<size_t> first_control_byte(std::string_view text) {
  const auto is_control = [](unsigned char c) { return c < 0x20 && c != '\t' && c != '\n' && c != '\r'; };
  const auto found = std::find_if(text.begin(), text.end(), is_control);
  if (found == text.end()) return std::nullopt;
  return static_cast<size_t>(found - text.begin());
}

/// Feeds a text to a builder and returns what is wrong with its syntax.
using TextReader = std::string (*)(std::string_view text, DocumentBuilder& builder);

Result<Document> parse_with(TextReader read, std::string_view text, std::string source, Syntax syntax,
                            const DocumentLimits& limits, std::vector<std::string>* repeated = nullptr) {
  if (text.size() > limits.max_bytes) {
    return Error{.source = std::move(source),
                 .problem = "is larger than the " + format_bytes(static_cast<double>(limits.max_bytes)) + " allowed"};
  }
  const char* name = syntax == Syntax::kJson ? "JSON" : "YAML";
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return Error{.source = std::move(source),
                 .problem = fmt::format("is not valid {}: the file is empty", name),
                 .advice = "Check that this is the file you meant."};
  }
  if (const auto at = syntax == Syntax::kYaml ? first_not_utf8(text) : std::nullopt) {
    return Error{.source = std::move(source),
                 .problem = fmt::format("is not UTF-8: byte {} begins no character", *at + 1),
                 .advice = "Write it in UTF-8, or check that this is the file you meant."};
  }
  if (const auto at = syntax == Syntax::kYaml ? first_control_byte(text) : std::nullopt) {
    return Error{.source = std::move(source),
                 .problem = fmt::format("is not valid YAML: byte {} is a control character ({:#04x})", *at + 1,
                                        static_cast<unsigned char>(text[*at])),
                 .advice = "Take it out, or check that this is the file you meant."};
  }
  DocumentBuilder builder(limits, repeated);
  // The parsers' messages can quote any byte of the text.
  const std::string problem = printable(read(text, builder), 200);
  if (builder.failed() && problem.empty()) {
    return Error{.source = std::move(source), .field = builder.path(), .problem = builder.problem()};
  }
  if (!problem.empty()) {
    const bool is_malformed = problem.starts_with("is not valid");
    // A text that was cut off has no field that is to blame.
    return Error{.source = std::move(source),
                 .field = problem.starts_with(kTextEnds) ? "" : builder.path(),
                 .problem = problem,
                 .advice = is_malformed ? std::string("Check that the file is complete and is ") + name + "." : ""};
  }
  if (builder.empty()) {
    return Error{.source = std::move(source),
                 .problem = fmt::format("holds no {} value", name),
                 .advice = "Check that this is the file you meant."};
  }
  return Document{.source = std::move(source), .root = builder.take()};
}

}  // namespace

Syntax syntax_of(const std::filesystem::path& path, std::string_view text) {
  if (path.extension() == ".json") return Syntax::kJson;
  if (path.extension() == ".yaml" || path.extension() == ".yml") return Syntax::kYaml;
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool opens_json = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  return opens_json ? Syntax::kJson : Syntax::kYaml;
}

Result<Document> parse_document(std::string_view text, std::string source, Syntax syntax,
                                const DocumentLimits& limits) {
  return parse_with(syntax == Syntax::kJson ? read_json : read_yaml, text, std::move(source), syntax, limits);
}

Result<Document> parse_foreign_document(std::string_view text, std::string source, Syntax syntax,
                                        const DocumentLimits& limits, std::vector<std::string>* repeated) {
  return parse_with(syntax == Syntax::kJson ? read_json : read_foreign_yaml, text, std::move(source), syntax, limits,
                    repeated);
}

Result<Document> read_document(const std::filesystem::path& path, const DocumentLimits& limits) {
  WEFT_TRY(const std::string text, read_file(path, limits.max_bytes));
  return parse_document(text, path.string(), syntax_of(path, text), limits);
}

}  // namespace weft
