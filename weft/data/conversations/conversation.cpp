#include "weft/data/conversations/conversation.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

constexpr size_t kMostMessages = 10'000;
constexpr size_t kMostFrames = 100'000;
constexpr std::array<MediaKind, 3> kMediaKinds = {MediaKind::kImage, MediaKind::kVideo, MediaKind::kAudio};

const std::string& column_of(const ColumnMap& columns, MediaKind kind) {
  return kind == MediaKind::kImage ? columns.images : kind == MediaKind::kVideo ? columns.videos : columns.audios;
}

class ConversationReader {
 public:
  ConversationReader(const Json& record, const ColumnMap& columns, const std::filesystem::path& folder,
                     const std::string& source, std::span<const MediaKind> placed)
      : record_(record), columns_(columns), folder_(folder), source_(source), placed_(placed) {}

  Result<Conversation> read() {
    conversation_.messages = Json::array();
    if (!record_.is_object()) return wrong("", "is not an object", "A record is an object with the conversation.");
    for (const MediaKind kind : kMediaKinds) {
      if (auto error = read_media(kind)) return *std::move(error);
    }
    if (auto error = add_system()) return *std::move(error);
    if (auto error = columns_.messages.empty() ? read_single_turns() : read_messages()) return *std::move(error);
    if (auto error = read_tools()) return *std::move(error);
    for (const MediaKind kind : kMediaKinds) {
      const size_t given = media_of(kind).size(), used = used_[kind];
      if (given == used) continue;
      return wrong("", fmt::format("has {} {} files and {} places for them", given, name_of(kind), used),
                   given > used ? fmt::format("Write <{}> where each stands.", name_of(kind))
                                : fmt::format("Give a file for each <{}>, or remove it.", name_of(kind)));
    }
    const bool has_answer = std::any_of(conversation_.messages.begin(), conversation_.messages.end(),
                                        [](const Json& message) { return message["role"] == "assistant"; });
    if (!has_answer)
      return wrong(columns_.messages, "has no turn of the assistant", "There is nothing to learn from it.");
    return std::move(conversation_);
  }

 private:
  Error wrong(std::string field, std::string problem, std::string advice) const {
    return Error{
        .source = source_, .field = std::move(field), .problem = std::move(problem), .advice = std::move(advice)};
  }

  const Json* column(const std::string& name) const {
    if (name.empty()) return nullptr;
    const auto it = record_.find(name);
    return it == record_.end() || it->is_null() ? nullptr : &*it;
  }

  /// JSON that a record holds as text, discarded where it is none.
  static Json parsed(const std::string& text) {
    Result<Document> document = parse_document(text, "", Syntax::kJson);
    return document ? std::move(document->root) : Json(Json::value_t::discarded);
  }

  const std::string& column_of(MediaKind kind) const { return weft::column_of(columns_, kind); }

  std::vector<MediaReference>& media_of(MediaKind kind) { return media_[kind]; }

  /// A path inside the folder.
  Result<std::filesystem::path> file_of(const Json& value, const std::string& field) const {
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      return wrong(field, fmt::format("is {}, a file's path is needed", describe_value(value)), "Give a path.");
    }
    const auto& text = value.get_ref<const std::string&>();
    if (text.find("://") != std::string::npos || text.starts_with("data:"))
      return wrong(field, fmt::format("is the address {}, files are read", in_quotes(text)), "Download the file.");
    if (text.find('\0') != std::string::npos) return wrong(field, "has a zero byte in its path", "Give a path.");
    const std::filesystem::path path = std::filesystem::path(text).lexically_normal();
    std::error_code unknown, no_root;
    const std::filesystem::path whole = std::filesystem::weakly_canonical(folder_ / path, unknown);
    const std::filesystem::path root = std::filesystem::weakly_canonical(folder_, no_root);
    if (unknown || no_root) {
      return wrong(field,
                   fmt::format("is {}, which cannot be looked up in {}: {}", in_quotes(text),
                               in_quotes(folder_.string()), (unknown ? unknown : no_root).message()),
                   "Check the path and its permissions.");
    }
    const std::filesystem::path inside = whole.lexically_relative(root);
    // A link may lead out of the folder, too.
    if (path.is_absolute() || path.empty() || *path.begin() == ".." || inside.empty() || *inside.begin() == "..") {
      return wrong(
          field,
          fmt::format("is {}, which leaves the folder of the data, {}", in_quotes(text), in_quotes(folder_.string())),
          "Keep media beside the data file, or name their folder.");
    }
    return folder_ / path;
  }

  Result<MediaReference> reference_of(MediaKind kind, const Json& value, const std::string& field) const {
    MediaReference reference{.kind = kind, .files = {}};
    const bool is_frames = value.is_array();
    if (is_frames && (kind != MediaKind::kVideo || value.empty() || value.size() > kMostFrames)) {
      return wrong(field, "is a list, which only a video's frames can be",
                   fmt::format("Give one file, or of a video up to {} frames.", kMostFrames));
    }
    for (size_t i = 0; i < (is_frames ? value.size() : 1); ++i) {
      WEFT_TRY(std::filesystem::path file, file_of(is_frames ? value[i] : value, field));
      reference.files.push_back(std::move(file));
    }
    return reference;
  }

  std::optional<Error> add_media(MediaKind kind, const Json& value, const std::string& field) {
    Result<MediaReference> reference = reference_of(kind, value, field);
    if (!reference) return reference.error();
    media_of(kind).push_back(*std::move(reference));
    return std::nullopt;
  }

  std::optional<Error> read_media(MediaKind kind) {
    const Json* value = column(column_of(kind));
    if (value == nullptr) return std::nullopt;
    if (!value->is_array()) return add_media(kind, *value, column_of(kind));
    for (size_t i = 0; i < value->size(); ++i) {
      if (auto error = add_media(kind, (*value)[i], fmt::format("{}[{}]", column_of(kind), i))) return error;
    }
    return std::nullopt;
  }

  std::optional<Error> add_system() {
    const Json* system = column(columns_.system);
    if (system == nullptr || *system == "") return std::nullopt;
    if (!system->is_string()) return wrong(columns_.system, "is not a text", "Give the system turn's text.");
    conversation_.messages.push_back({{"role", "system"}, {"content", *system}});
    return std::nullopt;
  }

  /// A turn's text, cut where media stand in it.
  Json content_of(const std::string& text) {
    Json parts = Json::array();
    std::string rest;
    const auto end_text = [&] {
      if (!rest.empty()) parts.push_back({{"type", "text"}, {"text", std::exchange(rest, "")}});
    };
    for (size_t i = 0; i < text.size();) {
      std::optional<MediaKind> found;
      for (const MediaKind kind : kMediaKinds) {
        if (has_places(kind) && text.compare(i, name_of(kind).size() + 2, "<" + name_of(kind) + ">") == 0) found = kind;
      }
      if (!found) {
        rest += text[i++];
        continue;
      }
      end_text();
      parts.push_back({{"type", name_of(*found)}});
      use(*found);
      i += name_of(*found).size() + 2;
    }
    if (parts.empty()) return text;
    end_text();
    return parts;
  }

  /// A set without such files may write these words as they are.
  bool has_places(MediaKind kind) {
    return !media_of(kind).empty() || column(column_of(kind)) != nullptr ||
           std::find(placed_.begin(), placed_.end(), kind) != placed_.end();
  }

  /// The column's next file.
  void use(MediaKind kind) {
    const size_t number = used_[kind]++;
    if (number < media_of(kind).size()) conversation_.media.push_back(media_of(kind)[number]);
  }

  std::string role_of(const std::string& given) const {
    const std::array<std::pair<const std::string*, const char*>, 5> roles = {{{&columns_.user_tag, "user"},
                                                                              {&columns_.assistant_tag, "assistant"},
                                                                              {&columns_.system_tag, "system"},
                                                                              {&columns_.observation_tag, "tool"},
                                                                              {&columns_.function_tag, "assistant"}}};
    for (const auto& [tag, role] : roles) {
      if (!tag->empty() && *tag == given) return role;
    }
    return "";
  }

  std::optional<Error> read_messages() {
    const Json* messages = column(columns_.messages);
    if (messages == nullptr || !messages->is_array() || messages->empty() || messages->size() > kMostMessages) {
      return wrong(columns_.messages, fmt::format("is missing, or not a list of 1 to {} messages", kMostMessages),
                   "Name the column, or a form, in the data settings.");
    }
    for (size_t i = 0; i < messages->size(); ++i) {
      const std::string field = fmt::format("{}[{}]", columns_.messages, i);
      const Json& message = (*messages)[i];
      const bool is_whole = message.is_object() && message.contains(columns_.role_tag) &&
                            message[columns_.role_tag].is_string() && message.contains(columns_.content_tag);
      if (!is_whole) {
        return wrong(field, fmt::format("lacks '{}' or '{}'", columns_.role_tag, columns_.content_tag),
                     "Name them in the data settings' columns.");
      }
      const auto given = message[columns_.role_tag].get<std::string>();
      const std::string role = role_of(given);
      if (role.empty()) {
        return wrong(field, fmt::format("has the unknown role {}", in_quotes(given)),
                     "Name the roles in the data settings' columns.");
      }
      if (auto error = add_message(message, role, given == columns_.function_tag, field)) return error;
    }
    return std::nullopt;
  }

  std::optional<Error> add_message(const Json& message, const std::string& role, bool is_call,
                                   const std::string& field) {
    const Json& content = message[columns_.content_tag];
    Json turn = {{"role", role}};
    if (is_call) {
      Json call = content.is_string() ? parsed(content.get<std::string>()) : content;
      if (call.is_discarded())
        return wrong(field, "is a tool's call that is no JSON", "Give {\"name\", \"arguments\"}.");
      if (!call.is_array()) call = Json::array({call});
      turn["content"] = "";
      for (const Json& one : call) turn["tool_calls"].push_back({{"type", "function"}, {"function", one}});
    } else if (content.is_string()) {
      turn["content"] = content_of(content.get<std::string>());
    } else if (content.is_array()) {
      turn["content"] = Json::array();
      for (const Json& part : content) {
        if (auto error = add_part(part, turn["content"], field)) return error;
      }
    } else if (content.is_null() && message.contains("tool_calls")) {
      turn["content"] = "";
    } else {
      return wrong(field,
                   fmt::format("has {} for its content, a text or a list of parts is needed", describe_value(content)),
                   "Check the record.");
    }
    for (const char* key : {"tool_calls", "reasoning_content", "name", "tool_call_id"}) {
      if (message.contains(key)) turn[key] = message[key];
    }
    conversation_.messages.push_back(std::move(turn));
    return std::nullopt;
  }

  /// A part as templates have it: its file may stand in it instead of in a column.
  std::optional<Error> add_part(const Json& part, Json& parts, const std::string& field) {
    const std::string type =
        part.is_object() && part.contains("type") && part["type"].is_string() ? part["type"].get<std::string>() : "";
    if (type == "text" && part.contains("text") && part["text"].is_string()) {
      parts.push_back({{"type", "text"}, {"text", part["text"]}});
      return std::nullopt;
    }
    for (const MediaKind kind : kMediaKinds) {
      if (type != name_of(kind)) continue;
      parts.push_back({{"type", type}});
      for (const char* key : {"path", name_of(kind).c_str()}) {
        if (!part.contains(key)) continue;
        Result<MediaReference> own = reference_of(kind, part[key], field);
        if (!own) return own.error();
        conversation_.media.push_back(*std::move(own));
        return std::nullopt;
      }
      use(kind);
      return std::nullopt;
    }
    return wrong(field, fmt::format("has a part of the unknown type {}", in_quotes(type)),
                 "Parts are text, image, video and audio.");
  }

  std::optional<Error> read_single_turns() {
    for (const std::string* name : {&columns_.prompt, &columns_.query, &columns_.response}) {
      if (const Json* value = column(*name); value != nullptr && !value->is_string())
        return wrong(*name, fmt::format("is {}, a text is needed", describe_value(*value)), "Check the record.");
    }
    const auto text = [&](const std::string& name) {
      const Json* value = column(name);
      return value == nullptr ? std::string() : value->get<std::string>();
    };
    if (const Json* history = column(columns_.history); history != nullptr && *history != "") {
      if (!history->is_array()) {
        return wrong(columns_.history,
                     fmt::format("is {}, a list of pairs of texts is needed", describe_value(*history)),
                     "Check the record.");
      }
      for (const Json& pair : *history) {
        if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
          return wrong(columns_.history, "is not a list of pairs of texts", "Check the record.");
        conversation_.messages.push_back({{"role", "user"}, {"content", content_of(pair[0].get<std::string>())}});
        conversation_.messages.push_back({{"role", "assistant"}, {"content", pair[1]}});
      }
    }
    std::string prompt = text(columns_.prompt);
    const std::string query = text(columns_.query), response = text(columns_.response);
    if (!prompt.empty() && !query.empty()) prompt += "\n";
    prompt += query;
    if (prompt.empty() || response.empty()) {
      return wrong(prompt.empty() ? columns_.prompt : columns_.response, "is missing or empty",
                   "Name the columns in the data settings.");
    }
    conversation_.messages.push_back({{"role", "user"}, {"content", content_of(prompt)}});
    conversation_.messages.push_back({{"role", "assistant"}, {"content", response}});
    return std::nullopt;
  }

  std::optional<Error> read_tools() {
    const Json* tools = column(columns_.tools);
    if (tools == nullptr || *tools == "") return std::nullopt;
    Json list = tools->is_string() ? parsed(tools->get<std::string>()) : *tools;
    if (!list.is_array()) return wrong(columns_.tools, "is not a list of tools", "Give a list, or its JSON as a text.");
    if (!list.empty()) conversation_.tools = std::move(list);
    return std::nullopt;
  }

  const Json& record_;
  const ColumnMap& columns_;
  const std::filesystem::path& folder_;
  const std::string& source_;
  std::span<const MediaKind> placed_;
  Conversation conversation_;
  std::map<MediaKind, std::vector<MediaReference>> media_;
  std::map<MediaKind, size_t> used_;
};

}  // namespace

const std::string& name_of(MediaKind kind) {
  static const std::array<std::string, 3> names = {"image", "video", "audio"};
  return names[static_cast<size_t>(kind)];
}

std::vector<MediaKind> media_columns(const Json& record, const ColumnMap& columns) {
  std::vector<MediaKind> kinds;
  if (!record.is_object()) return kinds;
  for (const MediaKind kind : kMediaKinds) {
    const std::string& name = column_of(columns, kind);
    if (!name.empty() && record.contains(name) && !record[name].is_null()) kinds.push_back(kind);
  }
  return kinds;
}

Result<Conversation> read_conversation(const Json& record, const ColumnMap& columns,
                                       const std::filesystem::path& folder, const std::string& source,
                                       std::span<const MediaKind> placed) {
  return ConversationReader(record, columns, folder, source, placed).read();
}

}  // namespace weft
