#pragma once

#include <string>
#include <vector>

#include "weft/base/fields.h"

namespace weft {

/// Where a record of a data set keeps its conversation. Empty names are columns that the set does not have.
struct ColumnMap {
  std::string messages = "messages";
  std::string system;  ///< a column with the system turn's text
  std::string tools;
  std::string images = "images";
  std::string videos = "videos";
  std::string audios = "audios";
  // Of a message:
  std::string role_tag = "role";
  std::string content_tag = "content";
  std::string user_tag = "user";
  std::string assistant_tag = "assistant";
  std::string system_tag = "system";
  std::string observation_tag = "tool";  ///< the role of what a tool answered
  std::string function_tag;              ///< the role of a tool's call, whose content is its JSON
  // In place of messages, one turn each:
  std::string prompt;
  std::string query;
  std::string response;
  std::string history;

  bool operator==(const ColumnMap&) const = default;
};

/// The names of known forms: "messages", "sharegpt", "llava", "alpaca", "mindspeed_mm".
const std::vector<std::string>& column_presets();
/// One of column_presets().
ColumnMap column_preset(const std::string& name);

/// `columns` of our own data files: any of the map's fields over those of a preset.
void read_columns(Fields& fields, ColumnMap& columns);
/// The inverse.
Json to_json(const ColumnMap& columns);
/// `attr` of MindSpeed-MM's data.json, where null says that there is no such column.
void read_attributes(Fields& fields, ColumnMap& columns);

/// The preset that a record seems to be of; "messages" where nothing says otherwise.
std::string guess_preset(const Json& record);

}  // namespace weft
