#include "weft/data/conversations/column_map.h"

#include <array>
#include <utility>

#include "weft/base/check.h"

namespace weft {
namespace {

struct NamedColumn {
  const char* name;
  std::string ColumnMap::*field;
};

constexpr std::array<NamedColumn, 17> kColumns = {{
    {"messages", &ColumnMap::messages},
    {"system", &ColumnMap::system},
    {"tools", &ColumnMap::tools},
    {"images", &ColumnMap::images},
    {"videos", &ColumnMap::videos},
    {"audios", &ColumnMap::audios},
    {"role_tag", &ColumnMap::role_tag},
    {"content_tag", &ColumnMap::content_tag},
    {"user_tag", &ColumnMap::user_tag},
    {"assistant_tag", &ColumnMap::assistant_tag},
    {"system_tag", &ColumnMap::system_tag},
    {"observation_tag", &ColumnMap::observation_tag},
    {"function_tag", &ColumnMap::function_tag},
    {"prompt", &ColumnMap::prompt},
    {"query", &ColumnMap::query},
    {"response", &ColumnMap::response},
    {"history", &ColumnMap::history},
}};

}  // namespace

const std::vector<std::string>& column_presets() {
  static const std::vector<std::string> names = {"messages", "sharegpt", "llava", "alpaca", "mindspeed_mm"};
  return names;
}

ColumnMap column_preset(const std::string& name) {
  ColumnMap columns;
  if (name == "messages" || name == "mindspeed_mm") {
    if (name == "messages") columns.tools = "tools";
    return columns;
  }
  if (name == "sharegpt" || name == "llava") {
    columns.messages = "conversations";
    columns.role_tag = "from";
    columns.content_tag = "value";
    columns.user_tag = "human";
    columns.assistant_tag = "gpt";
    columns.observation_tag = "observation";
    columns.function_tag = "function_call";
    if (name == "llava") {
      columns.images = "image";
      columns.videos = "video";
      columns.audios = "audio";
    } else {
      columns.system = "system";
      columns.tools = "tools";
    }
    return columns;
  }
  WEFT_CHECK(name == "alpaca", "there is no form {}", name);
  columns.messages = "";
  columns.system = "system";
  columns.prompt = "instruction";
  columns.query = "input";
  columns.response = "output";
  columns.history = "history";
  return columns;
}

void read_columns(Fields& fields, ColumnMap& columns) {
  for (const auto& [name, field] : kColumns) columns.*field = fields.text_or(name, columns.*field);
  fields.reject_unknown();
}

Json to_json(const ColumnMap& columns) {
  Json json = Json::object();
  for (const auto& [name, field] : kColumns) json[name] = columns.*field;
  return json;
}

void read_attributes(Fields& fields, ColumnMap& columns) {
  for (const auto& [name, field] : kColumns) {
    columns.*field = fields.is_null(name) ? "" : fields.text_or(name, columns.*field);
  }
  // Roles that a set does not name are written as usual.
  if (columns.system_tag.empty()) columns.system_tag = "system";
  if (columns.observation_tag.empty()) columns.observation_tag = "observation";
}

std::string guess_preset(const Json& record) {
  if (!record.is_object()) return "messages";
  if (record.contains("conversations")) {
    return record.contains("image") || record.contains("video") || record.contains("audio") ? "llava" : "sharegpt";
  }
  return record.contains("instruction") && record.contains("output") ? "alpaca" : "messages";
}

}  // namespace weft
