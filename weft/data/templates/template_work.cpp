#include "weft/data/templates/template_work.h"

#include <fmt/format.h>

#include "weft/data/templates/template_fault.h"

namespace weft {

void TemplateWork::spend(int64_t bytes) {
  spent_ += bytes;
  if (spent_ > kMostSteps * kStepBytes) {
    throw TemplateFault(
        fmt::format("takes more than {} steps (a step is an item or {} bytes of text)", kMostSteps, kStepBytes));
  }
}

void TemplateWork::allow_text(size_t num_bytes) {
  if (num_bytes > kMostTextBytes)
    throw TemplateFault(fmt::format("makes a text of more than {} bytes", kMostTextBytes));
}

void TemplateWork::allow_items(size_t count) {
  if (count > kMostItems) throw TemplateFault(fmt::format("makes a list of more than {} items", kMostItems));
}

TemplateValue TemplateWork::text(std::string_view text) {
  allow_text(text.size());
  steps(1);
  bytes(text.size());
  return std::string(text);
}

TemplateValue TemplateWork::list(std::vector<TemplateValue> items, bool is_tuple) {
  return TemplateValue::List{.items = std::move(items), .is_tuple = is_tuple};
}

TemplateWork::Level::Level(TemplateWork& work) : work_(&work) {
  if (++work.depth_ <= kMostDepth) return;
  --work.depth_;
  throw TemplateFault(fmt::format("is nested more than {} deep, where macros that call each other count", kMostDepth));
}

}  // namespace weft
