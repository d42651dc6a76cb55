#include "weft/base/processor.h"

// As the runtime does when it is loaded.
namespace {

[[maybe_unused]] const bool is_prepared = [] {
  weft::avoid_undescribed_tiles();
  return true;
}();

}  // namespace
