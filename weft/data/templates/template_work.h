#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/templates/template_value.h"

namespace weft {

/// What one rendering has cost, and the one place where texts and lists are made. Limits are what no conversation
/// needs, so that a hostile template ends within seconds and in bounded memory. Each throws a TemplateFault.
class TemplateWork {
 public:
  /// A step is an expression, an item or kStepBytes bytes that are touched.
  static constexpr int64_t kMostSteps = 20'000'000;
  static constexpr int64_t kStepBytes = 64;
  /// Of one text, the rendered one too: a record has 64 MiB at most.
  static constexpr size_t kMostTextBytes = 256u << 20;
  /// Of one list; about half a GiB of short texts.
  static constexpr size_t kMostItems = 4'000'000;
  /// Of expressions and bodies inside each other, across macros: about 2 MiB of stack.
  static constexpr int kMostDepth = 500;

  void steps(size_t count) { spend(static_cast<int64_t>(count) * kStepBytes); }
  void bytes(size_t count) { spend(static_cast<int64_t>(count)); }

  /// Refused before they are made.
  static void allow_text(size_t num_bytes);
  static void allow_items(size_t count);

  void grow(std::string& text, std::string_view more) {
    allow_text(text.size() + more.size());
    bytes(more.size());
    text += more;
  }
  void grow(std::vector<TemplateValue>& items, TemplateValue item) {
    allow_items(items.size() + 1);
    steps(1);
    items.push_back(std::move(item));
  }
  TemplateValue text(std::string_view text);
  /// Of items that grow() has counted.
  static TemplateValue list(std::vector<TemplateValue> items, bool is_tuple = false);

  /// Stands while something is evaluated inside something else.
  class Level {
   public:
    explicit Level(TemplateWork& work);
    ~Level() { --work_->depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TemplateWork* work_;
  };

 private:
  void spend(int64_t bytes);

  int64_t spent_ = 0;
  int depth_ = 0;
};

}  // namespace weft
