#include "weft/base/document_builder.h"

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {

bool DocumentBuilder::fail(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
  return false;
}

Json* DocumentBuilder::add(Json value) {
  if (++num_values_ > limits_.max_values) {
    fail(fmt::format("holds more than {} values", limits_.max_values));
    return nullptr;
  }
  if (levels_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  Level& top = levels_.back();
  if (top.node->is_array()) {
    top.node->push_back(std::move(value));
    return &top.node->back();
  }
  auto& members = top.node->get_ref<Json::object_t&>();
  if (top.is_repeated) {
    Json& member = (members.begin() + static_cast<std::ptrdiff_t>(top.place))->second;
    member = std::move(value);
    return &member;
  }
  // The key is known to be new: appending spares ordered_json's search through all earlier keys.
  members.push_back({top.key, std::move(value)});
  return &members.back().second;
}

bool DocumentBuilder::scalar(Json value) {
  return add(std::move(value)) != nullptr;
}

bool DocumentBuilder::open(Json container) {
  if (levels_.size() >= limits_.max_depth)
    return fail(fmt::format("is nested more than {} levels deep", limits_.max_depth));
  Json* node = add(std::move(container));
  if (node == nullptr) return false;
  levels_.push_back({.node = node, .key = {}, .places = {}});
  return true;
}

bool DocumentBuilder::open_object() {
  return open(Json::object());
}
bool DocumentBuilder::open_array() {
  return open(Json::array());
}

bool DocumentBuilder::key(std::string name) {
  Level& top = levels_.back();
  const auto [found, is_new] = top.places.try_emplace(name, top.node->size());
  top.is_repeated = !is_new;
  top.place = found->second;
  const bool is_refused = top.is_repeated && repeated_ == nullptr;
  if (is_refused) fail(fmt::format("has the key {} twice", in_quotes(name)));
  top.key = std::move(name);
  if (is_refused) return false;
  if (top.is_repeated) repeated_->push_back(path());
  return true;
}

void DocumentBuilder::close() {
  levels_.pop_back();
}

std::string DocumentBuilder::path() const {
  std::string path;
  // The outermost keys tell a person where to look; a hostile text can have any number of levels and any length of key.
  constexpr size_t kShownLevels = 6;
  for (size_t i = 0; i < levels_.size(); ++i) {
    if (i == kShownLevels) return path + "...";
    const Level& level = levels_[i];
    if (level.node->is_array()) {
      if (!level.node->empty()) path += fmt::format("[{}]", level.node->size() - 1);
    } else if (!level.key.empty()) {
      path += (path.empty() ? "" : ".") + printable(level.key);
    }
  }
  return path;
}

}  // namespace weft
