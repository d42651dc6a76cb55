#include "weft/families/family.h"

// One line for each folder NAME here, which defines NAME_families().
#define WEFT_FAMILIES(add)                                                                                 \
  add(gpt2) add(llama) add(qwen2) add(qwen3) add(qwen2_vl) add(qwen2_5_vl) add(qwen2_5_omni) add(qwen3_vl) \
      add(internvl) add(own_program)

namespace weft {

#define WEFT_DECLARE(name) std::vector<Family> name##_families();
WEFT_FAMILIES(WEFT_DECLARE)

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> listed;
    const auto add = [&](const std::vector<Family>& own) { listed.insert(listed.end(), own.begin(), own.end()); };
#define WEFT_ADD(name) add(name##_families());
    WEFT_FAMILIES(WEFT_ADD)
    return listed;
  }();
  return all;
}

}  // namespace weft
