#include "weft/models/weight_names.h"

namespace weft {

std::string parameter_name(std::string_view name_in_file) {
  constexpr std::string_view vision = "model.visual.";
  constexpr std::string_view text = "model.language_model.";
  if (name_in_file.starts_with(vision)) return "visual." + std::string(name_in_file.substr(vision.size()));
  if (name_in_file.starts_with(text)) return "model." + std::string(name_in_file.substr(text.size()));
  return std::string(name_in_file);
}

bool is_ignored_weight(std::string_view name, std::string_view prefix, bool has_head) {
  if (name.ends_with("rotary_emb.inv_freq") || name.ends_with("positional_embedding.positional_embedding")) return true;
  if (!prefix.empty() && (name.starts_with("talker.") || name.starts_with("token2wav."))) return true;
  return !has_head && name.ends_with("lm_head.weight");
}

}  // namespace weft
