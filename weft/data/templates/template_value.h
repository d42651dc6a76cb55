#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "weft/base/json.h"

namespace weft {

struct TemplateMacro;

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
  };
  /// Keys in the order in which they came.
  struct Dict {
    std::vector<std::pair<std::string, TemplateValue>> items;
    bool is_namespace = false;

    const TemplateValue* find(const std::string& key) const;
    void set(const std::string& key, TemplateValue value);
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
  TemplateValue(std::string value) : value_(std::move(value)) {}
  TemplateValue(const char* value) : value_(std::string(value)) {}
  TemplateValue(List list) : value_(std::make_shared<List>(std::move(list))) {}
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
    return std::get_if<T>(&value_);
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

  /// As Python's str and repr write it.
  std::string text() const;
  std::string repr() const;
  /// As Python's ==.
  bool equals(const TemplateValue& other) const;

 private:
  std::variant<None, Undefined, bool, int64_t, double, std::string, std::shared_ptr<List>, std::shared_ptr<Dict>,
               Function, Macro>
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
std::string to_json_text(const TemplateValue& value, const JsonStyle& style);

}  // namespace weft
