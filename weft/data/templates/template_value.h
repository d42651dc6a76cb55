#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "weft/base/json.h"

namespace weft {

struct TemplateMacro;
class TemplateValue;
class TemplateWork;

/// How deep values are nested in a value. Namespaces alone change after they are made: they hold no others, so that no
/// value is inside itself, and what holds one is at most twice as deep as it was when it was made.
struct TemplateNesting {
  /// No conversation is this deep; functions that go through values call themselves for each level.
  static constexpr int kMost = 100;

  int depth = 1;
  bool has_namespace = false;

  /// Throws a TemplateFault.
  void add(const TemplateValue& inner);
};

/// A value while a template is rendered: what Python would have, as far as templates use it.
class TemplateValue {
 public:
  struct Undefined {
    std::string name;
  };
  struct None {};
  struct List {
    std::vector<TemplateValue> items;
    bool is_tuple = false;
    TemplateNesting nesting = {};  ///< TemplateValue sets it
  };
  /// Keys in the order in which they came.
  class Dict {
   public:
    /// Fields of a namespace and of a loop are not gone through.
    enum class Kind : uint8_t { kMapping, kNamespace, kLoop };

    explicit Dict(Kind kind = Kind::kMapping) : kind_(kind) {}
    Kind kind() const { return kind_; }
    bool is_mapping() const { return kind_ == Kind::kMapping; }
    const std::vector<std::pair<std::string, TemplateValue>>& items() const { return items_; }
    const TemplateNesting& nesting() const { return nesting_; }
    const TemplateValue* find(const std::string& key) const;
    /// Throws a TemplateFault where the value would be nested too deep, or is a namespace for another's field.
    void set(const std::string& key, TemplateValue value);

   private:
    size_t place_of(const std::string& key) const;

    Kind kind_;
    std::vector<std::pair<std::string, TemplateValue>> items_;
    std::map<std::string, size_t, std::less<>> places_;  ///< empty while there are few
    TemplateNesting nesting_;
  };
  /// A function or method by name, with what it is a method of.
  struct Function {
    std::string name;
    std::shared_ptr<const TemplateValue> self;
  };
  using Macro = std::shared_ptr<const TemplateMacro>;

  TemplateValue() : value_(None{}) {}
  TemplateValue(bool value) : value_(value) {}
  TemplateValue(int64_t value) : value_(value) {}
  TemplateValue(double value) : value_(value) {}
  TemplateValue(std::string value) : value_(std::make_shared<const std::string>(std::move(value))) {}
  TemplateValue(const char* value) : TemplateValue(std::string(value)) {}
  TemplateValue(List list);
  TemplateValue(Dict dict) : value_(std::make_shared<Dict>(std::move(dict))) {}
  TemplateValue(Function function) : value_(std::move(function)) {}
  TemplateValue(Macro macro) : value_(std::move(macro)) {}
  static TemplateValue undefined(std::string name) {
    TemplateValue value;
    value.value_ = Undefined{std::move(name)};
    return value;
  }
  static TemplateValue of(const Json& json);

  template <typename T>
  const T* as() const {
    if constexpr (std::is_same_v<T, std::string>) {
      const auto* text = std::get_if<Text>(&value_);
      return text != nullptr ? text->get() : nullptr;
    } else {
      return std::get_if<T>(&value_);
    }
  }
  const List* list() const;
  const Dict* dict() const;
  Dict* namespace_fields() const;
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<None>() != nullptr; }
  /// bool, int or float.
  bool is_number() const;
  double number() const;
  /// Whether Python takes it for true.
  bool is_true() const;
  /// "a list", for messages.
  std::string kind() const;

  /// Appends what Python's str and repr write.
  void write_text(std::string& out, TemplateWork& work) const;
  void write_repr(std::string& out, TemplateWork& work) const;
  std::string text(TemplateWork& work) const;
  /// As Python's ==.
  bool equals(const TemplateValue& other, TemplateWork& work) const;
  /// As Python's `is`; a TemplateFault where that is chance.
  bool is_same_as(const TemplateValue& other, TemplateWork& work) const;

 private:
  /// Shared, so that a look-up copies no text.
  using Text = std::shared_ptr<const std::string>;

  std::variant<None, Undefined, bool, int64_t, double, Text, std::shared_ptr<List>, std::shared_ptr<Dict>, Function,
               Macro>
      value_;
};

/// As Python's repr writes a float: the shortest digits that give it back.
std::string python_float(double value);

struct JsonStyle {
  bool is_ascii = false;
  bool sorts_keys = false;
  int64_t indent = -1;  ///< -1: on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
/// As Python's json.dumps writes it.
std::string to_json_text(const TemplateValue& value, const JsonStyle& style, TemplateWork& work);

}  // namespace weft
