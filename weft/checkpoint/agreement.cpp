#include "weft/checkpoint/agreement.h"

#include <algorithm>
#include <numeric>

#include "weft/base/json.h"

namespace weft {
namespace {

std::string to_text(const Error& error) {
  const Json json = {{"kind", error.kind == ErrorKind::kJob},
                     {"source", error.source},
                     {"field", error.field},
                     {"problem", error.problem},
                     {"advice", error.advice},
                     {"details", error.details}};
  // Names of files need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Error error_in(const std::string& text) {
  const Json json = Json::parse(text);
  return {.kind = json["kind"].get<bool>() ? ErrorKind::kJob : ErrorKind::kInput,
          .source = json["source"],
          .field = json["field"],
          .problem = json["problem"],
          .advice = json["advice"],
          .details = json["details"]};
}

std::vector<int64_t> sizes_of_all(Group& group, const std::string& mine) {
  const int64_t size = std::ssize(mine);
  std::vector<int64_t> sizes(static_cast<size_t>(group.size()));
  group
      .all_gather(ConstBuffer(&size, 1, DataType::kInt64),
                  Buffer{.data = sizes.data(), .count = group.size(), .type = DataType::kInt64})
      .wait();
  return sizes;
}

}  // namespace

std::optional<Error> first_error(Group& group, const std::optional<Error>& mine) {
  const std::string text = mine ? to_text(*mine) : "";
  const std::vector<int64_t> sizes = sizes_of_all(group, text);
  const auto failed = std::find_if(sizes.begin(), sizes.end(), [](int64_t size) { return size > 0; });
  if (failed == sizes.end()) return std::nullopt;
  const int64_t root = failed - sizes.begin();
  std::string first = group.rank() == root ? text : std::string(static_cast<size_t>(*failed), ' ');
  group.broadcast({.data = first.data(), .count = *failed, .type = DataType::kUint8}, root).wait();
  return error_in(first);
}

std::vector<std::string> gather_texts(Group& group, const std::string& mine) {
  const std::vector<int64_t> sizes = sizes_of_all(group, mine);
  if (group.rank() > 0) {
    if (!mine.empty()) group.send(ConstBuffer(mine.data(), std::ssize(mine), DataType::kUint8), 0).wait();
    return {};
  }
  std::vector<std::string> all = {mine};
  for (int64_t rank = 1; rank < group.size(); ++rank) {
    const int64_t size = sizes[static_cast<size_t>(rank)];
    std::string& text = all.emplace_back(static_cast<size_t>(size), ' ');
    if (size > 0) group.recv({.data = text.data(), .count = size, .type = DataType::kUint8}, rank).wait();
  }
  return all;
}

std::string broadcast_text(Group& group, std::string text) {
  auto length = static_cast<int64_t>(text.size());
  group.broadcast(Buffer{.data = &length, .count = 1, .type = DataType::kInt64}, 0).wait();
  text.resize(static_cast<size_t>(length));
  if (length > 0) group.broadcast(Buffer{.data = text.data(), .count = length, .type = DataType::kUint8}, 0).wait();
  return text;
}

}  // namespace weft
