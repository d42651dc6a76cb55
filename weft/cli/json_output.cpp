#include "weft/cli/json_output.h"

namespace weft {

std::string json_output(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace weft
