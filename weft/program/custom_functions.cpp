#include "weft/program/custom_functions.h"

namespace weft {

const std::vector<std::string>& custom_functions() {
  static const std::vector<std::string> names{"merge_rows", "norm_keys", "norm_queries", "rotary", "rotary_table"};
  return names;
}

const std::string& function_of(const Operator& op) {
  return op.calculation.calls.empty() ? op.name : op.calculation.calls;
}

}  // namespace weft
