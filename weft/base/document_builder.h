#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "weft/base/document.h"

namespace weft {

/// Grows a Json tree from a parser's events and watches the limits; the JSON and the YAML reader both drive it.
/// Each call returns false, and `problem()` says why, once something is wrong; the parser then stops.
class DocumentBuilder {
 public:
  /// With `repeated`, a key that stands twice has its last value, as other programs read it, and is listed there;
  /// without it that is a failure.
  explicit DocumentBuilder(const DocumentLimits& limits, std::vector<std::string>* repeated = nullptr)
      : limits_(limits), repeated_(repeated) {}

  bool scalar(Json value);
  bool open_object();
  bool open_array();
  bool key(std::string name);
  void close();

  bool failed() const { return !problem_.empty(); }
  const std::string& problem() const { return problem_; }
  /// Where the failure was: keys and indices from the root, like "modules.llm.layers[3]".
  std::string path() const;
  bool empty() const { return num_values_ == 0; }
  Json take() { return std::move(root_); }

 private:
  struct Level {
    Json* node;
    std::string key;                                 // the current key, in an object
    std::unordered_map<std::string, size_t> places;  // of each key among the object's members
    size_t place = 0;                                // of the current key
    bool is_repeated = false;                        // it is there already
  };

  Json* add(Json value);
  bool open(Json container);
  bool fail(std::string problem);

  DocumentLimits limits_;
  std::vector<std::string>* repeated_;
  Json root_;
  std::vector<Level> levels_;
  size_t num_values_ = 0;
  std::string problem_;
};

}  // namespace weft
