#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/utf8.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_value.h"
#include "weft/data/templates/template_work.h"

namespace weft {
namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, TemplateWork& work) : style_(style), work_(work) {}

  void add(const TemplateValue& value, int64_t depth) {
    work_.steps(1);
    if (const auto* text = value.as<std::string>()) {
      add_string(*text);
    } else if (value.is_none()) {
      write("null");
    } else if (const auto* flag = value.as<bool>()) {
      write(*flag ? "true" : "false");
    } else if (const auto* d = value.as<double>(); d != nullptr && !std::isfinite(*d)) {
      write(std::isnan(*d) ? "NaN" : *d > 0 ? "Infinity" : "-Infinity");
    } else if (value.is_number()) {
      value.write_repr(out, work_);
    } else if (const TemplateValue::List* list = value.list()) {
      add_items('[', ']', list->items.size(), depth, [&](size_t i) { add(list->items[i], depth + 1); });
    } else if (const TemplateValue::Dict* dict = value.dict(); dict != nullptr && dict->is_mapping()) {
      std::vector<const std::pair<std::string, TemplateValue>*> items;
      for (const auto& item : dict->items()) items.push_back(&item);
      if (style_.sorts_keys) {
        // UTF-8 sorts as its characters do.
        std::stable_sort(items.begin(), items.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
      }
      add_items('{', '}', items.size(), depth, [&](size_t i) {
        add_string(items[i]->first);
        write(style_.key_separator);
        add(items[i]->second, depth + 1);
      });
    } else {
      throw TemplateFault(fmt::format("writes {} as JSON", value.kind()));
    }
  }

  std::string out;

 private:
  template <typename AddItem>
  void add_items(char open, char close, size_t count, int64_t depth, const AddItem& add_item) {
    write(std::string_view(&open, 1));
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) write(style_.item_separator);
      add_line(depth + 1);
      add_item(i);
    }
    if (count > 0) add_line(depth);
    write(std::string_view(&close, 1));
  }

  void add_line(int64_t depth) {
    if (style_.indent >= 0) write("\n" + std::string(static_cast<size_t>(style_.indent * depth), ' '));
  }

  void write(std::string_view text) { work_.grow(out, text); }

  void add_string(const std::string& text) {
    // Six bytes for one at most, of which the limit is seen behind each text.
    work_.bytes(text.size());
    TemplateWork::allow_text(out.size() + text.size());
    out += '"';
    for (size_t i = 0; i < text.size();) {
      const Utf8Character next = utf8_at(text, i);
      const char c = text[i];
      if (c == '"' || c == '\\') {
        out += '\\';
        out += c;
      } else if (c == '\n') {
        out += "\\n";
      } else if (c == '\r') {
        out += "\\r";
      } else if (c == '\t') {
        out += "\\t";
      } else if (c == '\b') {
        out += "\\b";
      } else if (c == '\f') {
        out += "\\f";
      } else if (next.code < 0x20) {
        out += fmt::format("\\u{:04x}", static_cast<uint32_t>(next.code));
      } else if (style_.is_ascii && next.code > 0x7e && next.code < 0x10000) {
        out += next.code == 0x7f ? std::string(1, c) : fmt::format("\\u{:04x}", static_cast<uint32_t>(next.code));
      } else if (style_.is_ascii && next.code >= 0x10000) {
        const uint32_t rest = static_cast<uint32_t>(next.code) - 0x10000;
        out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
      } else {
        out.append(text, i, next.length);
      }
      i += next.length;
    }
    out += '"';
    TemplateWork::allow_text(out.size());
  }

  const JsonStyle& style_;
  TemplateWork& work_;
};

}  // namespace

std::string to_json_text(const TemplateValue& value, const JsonStyle& style, TemplateWork& work) {
  JsonWriter writer(style, work);
  writer.add(value, 0);
  return std::move(writer.out);
}

}  // namespace weft
