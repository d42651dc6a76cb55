#include "weft/data/templates/template_run.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/data/templates/template_fault.h"

namespace weft {
namespace {

using Value = TemplateValue;

// What a round of a loop takes beyond its body: its fields are made.
constexpr size_t kLoopSteps = 8;

const void* identity(const Value& value) {
  return value.dict();
}

}  // namespace

TemplateRun::TemplateRun(const TemplateBody& body, Scope variables, const Value& watched) : body_(&body) {
  scopes_.push_back(std::move(variables));
  scopes_.emplace_back();
  if (const Value::List* list = watched.list()) {
    watched_ranges_.resize(list->items.size());
    for (size_t i = 0; i < list->items.size(); ++i) {
      if (identity(list->items[i]) != nullptr) watched_[identity(list->items[i])] = i;
    }
  }
}

std::string TemplateRun::run() {
  run_body(*body_);
  return std::move(out_);
}

TemplateRun::Flow TemplateRun::run_body(const TemplateBody& body) {
  const TemplateWork::Level level(work_);
  for (const TemplateStatement& statement : body) {
    try {
      work_.steps(1);
      if (const Flow flow = run_statement(statement); flow != Flow::kOn) return flow;
    } catch (const TemplateFault& fault) {
      if (fault.line > 0) throw;
      throw TemplateFault(fault.what(), statement.line);
    }
  }
  return Flow::kOn;
}

TemplateRun::Flow TemplateRun::run_statement(const TemplateStatement& statement) {
  switch (statement.kind) {
    case TemplateStatement::Kind::kText:
      work_.grow(out_, statement.text);
      return Flow::kOn;
    case TemplateStatement::Kind::kOutput:
      evaluate(*statement.conditions[0]).write_text(out_, work_);
      return Flow::kOn;
    case TemplateStatement::Kind::kIf:
      return run_if(statement);
    case TemplateStatement::Kind::kFor:
      run_for(statement);
      return Flow::kOn;
    case TemplateStatement::Kind::kSet:
      run_set(statement);
      return Flow::kOn;
    case TemplateStatement::Kind::kMacro:
      scopes_.back()[statement.text] = Value(std::make_shared<const TemplateMacro>(TemplateMacro{&statement}));
      return Flow::kOn;
    case TemplateStatement::Kind::kGeneration:
      run_generation(statement);
      return Flow::kOn;
    case TemplateStatement::Kind::kBreak:
      return Flow::kBreak;
    case TemplateStatement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

TemplateRun::Flow TemplateRun::run_if(const TemplateStatement& statement) {
  for (size_t i = 0; i < statement.conditions.size(); ++i) {
    if (evaluate(*statement.conditions[i]).is_true()) return run_body(statement.bodies[i]);
  }
  const bool has_else = statement.bodies.size() > statement.conditions.size();
  return has_else ? run_body(statement.bodies.back()) : Flow::kOn;
}

void TemplateRun::assign(const std::vector<std::string>& names, const Value& value) {
  if (names.size() == 1) {
    scopes_.back()[names[0]] = value;
    return;
  }
  const std::vector<Value> items = template_items(value, work_);
  if (items.size() != names.size())
    throw TemplateFault(fmt::format("gives {} names {} values", names.size(), items.size()));
  for (size_t i = 0; i < names.size(); ++i) scopes_.back()[names[i]] = items[i];
}

void TemplateRun::run_for(const TemplateStatement& statement) {
  std::vector<Value> items = template_items(evaluate(*statement.conditions[0]), work_);
  if (statement.conditions.size() > 1) {
    std::vector<Value> kept;
    for (const Value& item : items) {
      work_.steps(1);
      scopes_.emplace_back();
      assign(statement.names, item);
      if (evaluate(*statement.conditions[1]).is_true()) kept.push_back(item);
      scopes_.pop_back();
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    if (statement.bodies.size() > 1) run_body(statement.bodies[1]);
    return;
  }
  const auto size = static_cast<int64_t>(items.size());
  for (int64_t i = 0; i < size; ++i) {
    work_.steps(kLoopSteps);
    const auto at = [&](int64_t place, const char* name) {
      return place >= 0 && place < size ? items[static_cast<size_t>(place)] : Value::undefined(name);
    };
    Value::Dict loop(Value::Dict::Kind::kLoop);
    loop.set("index", i + 1);
    loop.set("index0", i);
    loop.set("first", i == 0);
    loop.set("last", i + 1 == size);
    loop.set("length", size);
    loop.set("revindex", size - i);
    loop.set("revindex0", size - i - 1);
    loop.set("previtem", at(i - 1, "loop.previtem"));
    loop.set("nextitem", at(i + 1, "loop.nextitem"));
    // Of loops that are recursive, which are not known.
    loop.set("depth", int64_t{1});
    loop.set("depth0", int64_t{0});
    const Value& item = items[static_cast<size_t>(i)];
    const size_t begin = out_.size();
    scopes_.emplace_back();
    assign(statement.names, item);
    scopes_.back()["loop"] = std::move(loop);
    const Flow flow = run_body(statement.bodies[0]);
    scopes_.pop_back();
    const auto watched = watched_.find(identity(item));
    if (captures_ == 0 && watched != watched_.end() && out_.size() > begin) {
      TextRange& range = watched_ranges_[watched->second];
      range = {range.end > 0 ? range.begin : begin, out_.size()};
    }
    if (flow == Flow::kBreak) return;
  }
}

std::string TemplateRun::captured(const TemplateBody& body) {
  std::string outer = std::exchange(out_, "");
  ++captures_;
  run_body(body);
  --captures_;
  return std::exchange(out_, std::move(outer));
}

void TemplateRun::run_set(const TemplateStatement& statement) {
  if (!statement.bodies.empty()) {
    scopes_.emplace_back();
    std::string text = captured(statement.bodies[0]);
    scopes_.pop_back();
    scopes_.back()[statement.names[0]] = std::move(text);
    return;
  }
  Value value = evaluate(*statement.conditions[0]);
  if (statement.text.empty()) return assign(statement.names, value);
  Value::Dict* fields = look_up(statement.text).namespace_fields();
  if (fields == nullptr)
    throw TemplateFault(fmt::format("sets a field of {}, which is no namespace", in_quotes(statement.text)));
  fields->set(statement.names[0], std::move(value));
}

void TemplateRun::run_generation(const TemplateStatement& statement) {
  if (captures_ > 0) throw TemplateFault("has 'generation' inside a macro or a 'set', which is not known");
  const size_t begin = out_.size();
  scopes_.emplace_back();
  run_body(statement.bodies[0]);
  scopes_.pop_back();
  generations_.push_back({begin, out_.size()});
}

Value TemplateRun::look_up(const std::string& name) {
  work_.bytes(name.size() + 8 * scopes_.size());
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto it = scope->find(name);
    if (it != scope->end()) return it->second;
  }
  if (name == "range" || name == "namespace" || name == "raise_exception" || name == "dict")
    return Value::Function{name, nullptr};
  return Value::undefined(printable(name));
}

Value TemplateRun::call_macro(const TemplateStatement& macro, const TemplateArguments& arguments) {
  const TemplateCall call(macro.text, {.names = macro.names}, arguments, work_);
  // A macro sees what stands outside of everything, and its own.
  std::vector<Scope> outer(std::make_move_iterator(scopes_.begin() + 2), std::make_move_iterator(scopes_.end()));
  scopes_.resize(2);
  scopes_.emplace_back();
  for (size_t i = 0; i < macro.names.size(); ++i) {
    const Value* given = call.given(i);
    Value value = given != nullptr                 ? *given
                  : macro.conditions[i] != nullptr ? evaluate(*macro.conditions[i])
                                                   : Value::undefined(macro.names[i]);
    scopes_.back()[macro.names[i]] = std::move(value);
  }
  std::string text = captured(macro.bodies[0]);
  scopes_.resize(2);
  scopes_.insert(scopes_.end(), std::make_move_iterator(outer.begin()), std::make_move_iterator(outer.end()));
  return text;
}

}  // namespace weft
