#include <functional>
#include <map>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_functions.h"

namespace weft {
namespace {

using Value = TemplateValue;
using Call = TemplateCall;

struct Test {
  TemplateParameters parameters;
  std::function<bool(const Value&, const Call&)> passes;
};

bool is_gone_through(const Value& value) {
  return value.as<std::string>() != nullptr || value.list() != nullptr || value.is_undefined() ||
         (value.dict() != nullptr && value.dict()->is_mapping());
}

/// A boolean counts as 0 or 1.
int64_t integer_of(const Value& value, const Call& call) {
  if (const auto* flag = value.as<bool>()) return *flag ? 1 : 0;
  if (const auto* integer = value.as<int64_t>()) return *integer;
  throw TemplateFault(fmt::format("has the test '{}' of {}", call.name(), value.kind()));
}

bool is_divisible(const Value& value, const Call& call) {
  const int64_t divisor = integer_of(*call.given(0), call);
  if (divisor == 0) throw TemplateFault("divides by zero");
  return divisor == -1 || integer_of(value, call) % divisor == 0;
}

std::map<std::string, Test> make_tests() {
  const auto alone = [](auto passes) { return Test{{}, [passes](const Value& v, const Call&) { return passes(v); }}; };
  const TemplateParameters one{.names = {"b"}, .num_needed = 1, .by_name = false};
  const auto ordered = [&](auto holds) {
    return Test{one,
                [holds](const Value& v, const Call& c) { return holds(template_order(v, *c.given(0), c.work())); }};
  };
  const Test equal{one, [](const Value& v, const Call& c) { return v.equals(*c.given(0), c.work()); }};
  const Test sequence = alone(is_gone_through);
  const Test less = ordered([](int order) { return order < 0; });
  const Test greater = ordered([](int order) { return order > 0; });
  const auto has_rest = [](int64_t rest) {
    return Test{{}, [rest](const Value& v, const Call& c) { return (integer_of(v, c) % 2 != 0) == (rest != 0); }};
  };
  return {
      {"defined", alone([](const Value& v) { return !v.is_undefined(); })},
      {"undefined", alone([](const Value& v) { return v.is_undefined(); })},
      {"none", alone([](const Value& v) { return v.is_none(); })},
      {"string", alone([](const Value& v) { return v.as<std::string>() != nullptr; })},
      {"boolean", alone([](const Value& v) { return v.as<bool>() != nullptr; })},
      {"true", alone([](const Value& v) { return v.as<bool>() != nullptr && *v.as<bool>(); })},
      {"false", alone([](const Value& v) { return v.as<bool>() != nullptr && !*v.as<bool>(); })},
      {"number", alone([](const Value& v) { return v.is_number(); })},
      {"integer", alone([](const Value& v) { return v.as<int64_t>() != nullptr; })},
      {"float", alone([](const Value& v) { return v.as<double>() != nullptr; })},
      {"mapping", alone([](const Value& v) { return v.dict() != nullptr && v.dict()->is_mapping(); })},
      {"sequence", sequence},
      {"iterable", sequence},
      {"callable",
       alone([](const Value& v) { return v.as<Value::Function>() != nullptr || v.as<Value::Macro>() != nullptr; })},
      {"odd", has_rest(1)},
      {"even", has_rest(0)},
      {"divisibleby", {{.names = {"num"}, .num_needed = 1}, is_divisible}},
      {"equalto", equal},
      {"eq", equal},
      {"ne", {one, [](const Value& v, const Call& c) { return !v.equals(*c.given(0), c.work()); }}},
      {"sameas",
       {{.names = {"other"}, .num_needed = 1},
        [](const Value& v, const Call& c) { return v.is_same_as(*c.given(0), c.work()); }}},
      {"lt", less},
      {"lessthan", less},
      {"gt", greater},
      {"greaterthan", greater},
      {"le", ordered([](int order) { return order <= 0; })},
      {"ge", ordered([](int order) { return order >= 0; })},
      {"in",
       {{.names = {"seq"}, .num_needed = 1},
        [](const Value& v, const Call& c) { return template_contains(*c.given(0), v, c.work()); }}},
  };
}

const std::map<std::string, Test>& tests() {
  static const std::map<std::string, Test> all = make_tests();
  return all;
}

}  // namespace

bool is_template_test(const std::string& name) {
  return tests().contains(name);
}

bool passes_template_test(const std::string& name, const Value& value, const TemplateArguments& arguments,
                          TemplateWork& work) {
  const auto it = tests().find(name);
  if (it == tests().end()) throw TemplateFault(fmt::format("has the unknown test {}", in_quotes(name)));
  return it->second.passes(value, TemplateCall(name, it->second.parameters, arguments, work));
}

}  // namespace weft
