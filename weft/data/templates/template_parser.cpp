#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_functions.h"
#include "weft/data/templates/template_lexer.h"
#include "weft/data/templates/template_syntax.h"

namespace weft {
namespace {

using Expression = TemplateExpression;
using Token = TemplateToken;
using Statement = TemplateStatement;

// Of brackets and statements inside each other: each takes about ten calls of the parser.
constexpr int kMostDepth = 100;
// Of a finished expression, of which each level is one call when it is evaluated and when it is removed: a chain of a
// hundred methods.
constexpr int kMostTreeDepth = 200;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(lex_template(source)) {}

  TemplateBody run() {
    TemplateBody body = parse_body({});
    if (now().kind != Token::Kind::kEnd) fail(fmt::format("has the statement {} without its beginning", shown(now())));
    return body;
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() {
    const Token& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  [[noreturn]] void fail(const std::string& problem) const { throw TemplateFault(problem, now().line); }
  static std::string shown(const Token& token) {
    switch (token.kind) {
      case Token::Kind::kEnd:
        return "the end";
      case Token::Kind::kBlockEnd:
        return "'%}'";
      case Token::Kind::kVariableEnd:
        return "'}}'";
      default:
        return in_quotes(token.text);
    }
  }
  bool is_mark(std::string_view mark) const { return now().kind == Token::Kind::kMark && now().text == mark; }
  bool is_name(std::string_view name) const { return now().kind == Token::Kind::kName && now().text == name; }
  bool take_mark(std::string_view mark) {
    if (!is_mark(mark)) return false;
    take();
    return true;
  }
  bool take_name(std::string_view name) {
    if (!is_name(name)) return false;
    take();
    return true;
  }
  void need_mark(std::string_view mark) {
    if (!take_mark(mark)) fail(fmt::format("has {} where '{}' is needed", shown(now()), mark));
  }
  std::string need_name() {
    if (now().kind != Token::Kind::kName) fail(fmt::format("has {} where a name is needed", shown(now())));
    return take().text;
  }
  void need(Token::Kind kind, std::string_view what) {
    if (now().kind != kind) fail(fmt::format("has {} where '{}' is needed", shown(now()), what));
    take();
  }
  void end_block() { need(Token::Kind::kBlockEnd, "%}"); }

  /// Guards the stack against nesting without end.
  struct Level {
    explicit Level(Parser& counted) : parser(counted) {
      if (++parser.depth_ > kMostDepth) parser.fail(fmt::format("is nested more than {} deep", kMostDepth));
    }
    ~Level() { --parser.depth_; }
    Parser& parser;
  };

  /// The one place that makes an expression deeper; null stays null.
  TemplateExpressionPtr inside(Expression& outer, TemplateExpressionPtr part) const {
    if (part != nullptr) outer.depth = std::max(outer.depth, part->depth + 1);
    if (outer.depth > kMostTreeDepth) fail(fmt::format("has an expression of more than {} parts deep", kMostTreeDepth));
    return part;
  }
  void add_part(Expression& outer, TemplateExpressionPtr part) const {
    outer.parts.push_back(inside(outer, std::move(part)));
  }

  TemplateExpressionPtr make(Expression::Kind kind) const {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->line = now().line;
    return expression;
  }

  /// Statements up to a block that begins with one of `ends`, which is left.
  TemplateBody parse_body(const std::vector<std::string>& ends) {
    const Level level(*this);
    TemplateBody body;
    while (now().kind != Token::Kind::kEnd) {
      if (now().kind == Token::Kind::kText) {
        Statement& text = body.emplace_back();
        text.line = now().line;
        text.text = take().text;
      } else if (now().kind == Token::Kind::kVariableBegin) {
        take();
        Statement& output = body.emplace_back();
        output.kind = Statement::Kind::kOutput;
        output.line = now().line;
        output.conditions.push_back(parse_tuple());
        need(Token::Kind::kVariableEnd, "}}");
      } else {
        const Token& word = peek();
        const bool is_end = word.kind == Token::Kind::kName &&
                            (std::find(ends.begin(), ends.end(), word.text) != ends.end() ||
                             word.text.starts_with("end") || word.text == "else" || word.text == "elif");
        if (is_end) return body;
        take();
        body.push_back(parse_statement());
      }
    }
    return body;
  }

  /// The body of a statement whose end is `end`, with that end.
  TemplateBody parse_until(const std::string& end) {
    TemplateBody body = parse_body({end});
    need(Token::Kind::kBlockBegin, "{% " + end + " %}");
    if (!take_name(end)) fail(fmt::format("has {} where '{}' is needed", shown(now()), end));
    return body;
  }

  Statement parse_statement() {
    Statement statement;
    statement.line = now().line;
    const std::string word = need_name();
    if (word == "if") {
      parse_if(statement);
    } else if (word == "for") {
      parse_for(statement);
    } else if (word == "set") {
      parse_set(statement);
    } else if (word == "macro") {
      parse_macro(statement);
    } else if (word == "generation") {
      statement.kind = Statement::Kind::kGeneration;
      end_block();
      statement.bodies.push_back(parse_until("endgeneration"));
      end_block();
    } else if (word == "break" || word == "continue") {
      statement.kind = word == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue;
      if (loops_ == 0) fail(fmt::format("has '{}' outside a loop", word));
      end_block();
    } else {
      fail(fmt::format("has the unknown statement {}", in_quotes(word)));
    }
    return statement;
  }

  void parse_if(Statement& statement) {
    statement.kind = Statement::Kind::kIf;
    statement.conditions.push_back(parse_expression());
    end_block();
    while (true) {
      statement.bodies.push_back(parse_body({}));
      need(Token::Kind::kBlockBegin, "{% endif %}");
      if (take_name("elif")) {
        if (statement.bodies.size() > statement.conditions.size()) fail("has 'elif' after 'else'");
        statement.conditions.push_back(parse_expression());
        end_block();
      } else if (take_name("else")) {
        if (statement.bodies.size() > statement.conditions.size()) fail("has two 'else' in one 'if'");
        end_block();
      } else if (take_name("endif")) {
        end_block();
        return;
      } else {
        fail(fmt::format("has {} where 'endif' is needed", shown(now())));
      }
    }
  }

  void parse_for(Statement& statement) {
    statement.kind = Statement::Kind::kFor;
    const bool has_bracket = take_mark("(");
    do statement.names.push_back(need_name());
    while (take_mark(","));
    if (has_bracket) need_mark(")");
    if (!take_name("in")) fail(fmt::format("has {} where 'in' is needed", shown(now())));
    statement.conditions.push_back(parse_tuple(/*allows_choice=*/false));
    if (take_name("if")) statement.conditions.push_back(parse_expression());
    if (is_name("recursive")) fail("has a loop that is 'recursive', which is not known");
    end_block();
    ++loops_;
    statement.bodies.push_back(parse_body({}));
    --loops_;
    need(Token::Kind::kBlockBegin, "{% endfor %}");
    if (take_name("else")) {
      end_block();
      statement.bodies.push_back(parse_until("endfor"));
    } else if (!take_name("endfor")) {
      fail(fmt::format("has {} where 'endfor' is needed", shown(now())));
    }
    end_block();
  }

  void parse_set(Statement& statement) {
    statement.kind = Statement::Kind::kSet;
    do statement.names.push_back(need_name());
    while (take_mark(","));
    if (statement.names.size() == 1 && take_mark(".")) {
      statement.text = statement.names[0];
      statement.names[0] = need_name();
    }
    if (take_mark("=")) {
      statement.conditions.push_back(parse_tuple());
    } else if (now().kind == Token::Kind::kBlockEnd && statement.names.size() == 1 && statement.text.empty()) {
      end_block();
      const int loops = std::exchange(loops_, 0);
      statement.bodies.push_back(parse_until("endset"));
      loops_ = loops;
    } else {
      fail(fmt::format("has {} in a 'set', where '=' is needed", shown(now())));
    }
    end_block();
  }

  void parse_macro(Statement& statement) {
    statement.kind = Statement::Kind::kMacro;
    statement.text = need_name();
    need_mark("(");
    while (!take_mark(")")) {
      if (!statement.names.empty()) need_mark(",");
      statement.names.push_back(need_name());
      statement.conditions.push_back(take_mark("=") ? parse_expression() : nullptr);
    }
    end_block();
    const int loops = std::exchange(loops_, 0);
    statement.bodies.push_back(parse_until("endmacro"));
    loops_ = loops;
    end_block();
  }

  bool ends_expression() const {
    return now().kind == Token::Kind::kBlockEnd || now().kind == Token::Kind::kVariableEnd ||
           now().kind == Token::Kind::kEnd || is_mark(")");
  }

  /// One expression, or several with commas.
  TemplateExpressionPtr parse_tuple(bool allows_choice = true) {
    const auto parse_one = [&] { return allows_choice ? parse_expression() : parse_or(); };
    TemplateExpressionPtr first = parse_one();
    if (!is_mark(",")) return first;
    TemplateExpressionPtr tuple = make(Expression::Kind::kTuple);
    add_part(*tuple, std::move(first));
    while (take_mark(",")) {
      if (ends_expression()) break;
      add_part(*tuple, parse_one());
    }
    return tuple;
  }

  TemplateExpressionPtr parse_expression() {
    const Level level(*this);
    TemplateExpressionPtr expression = parse_or();
    while (take_name("if")) {
      TemplateExpressionPtr choice = make(Expression::Kind::kChoice);
      add_part(*choice, std::move(expression));
      add_part(*choice, parse_or());
      add_part(*choice, take_name("else") ? parse_expression() : nullptr);
      expression = std::move(choice);
    }
    return expression;
  }

  template <typename ParsePart>
  TemplateExpressionPtr parse_joined(const char* word, Expression::Kind kind, const ParsePart& parse_part) {
    TemplateExpressionPtr first = parse_part();
    if (!is_name(word)) return first;
    TemplateExpressionPtr all = make(kind);
    add_part(*all, std::move(first));
    while (take_name(word)) add_part(*all, parse_part());
    return all;
  }

  TemplateExpressionPtr parse_or() {
    return parse_joined("or", Expression::Kind::kOr,
                        [&] { return parse_joined("and", Expression::Kind::kAnd, [&] { return parse_not(); }); });
  }

  TemplateExpressionPtr parse_not() {
    const Level level(*this);
    if (!is_name("not")) return parse_compare();
    TemplateExpressionPtr negation = make(Expression::Kind::kNot);
    take();
    add_part(*negation, parse_not());
    return negation;
  }

  TemplateExpressionPtr parse_compare() {
    static constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", ">", "<=", ">="};
    TemplateExpressionPtr left = parse_binary(0);
    TemplateExpressionPtr compare;
    while (true) {
      std::string name;
      const bool is_operator = now().kind == Token::Kind::kMark &&
                               std::find(kOperators.begin(), kOperators.end(), now().text) != kOperators.end();
      if (is_operator) {
        name = take().text;
      } else if (take_name("in")) {
        name = "in";
      } else if (is_name("not") && peek().kind == Token::Kind::kName && peek().text == "in") {
        take();
        take();
        name = "not in";
      } else {
        return compare ? std::move(compare) : std::move(left);
      }
      if (!compare) {
        compare = make(Expression::Kind::kCompare);
        add_part(*compare, std::move(left));
      }
      compare->operators.push_back(name);
      add_part(*compare, parse_binary(0));
    }
  }

  /// Level 0: + and -, 1: ~, 2: * / // %, 3: **.
  TemplateExpressionPtr parse_binary(int level) {
    static const std::array<std::vector<std::string>, 4> kLevels = {{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}};
    if (level == 4) return parse_unary(true);
    TemplateExpressionPtr left = parse_binary(level + 1);
    const auto& marks = kLevels[static_cast<size_t>(level)];
    const auto is_operator = [&] {
      return now().kind == Token::Kind::kMark && std::find(marks.begin(), marks.end(), now().text) != marks.end();
    };
    if (!is_operator()) return left;
    TemplateExpressionPtr all = make(Expression::Kind::kBinary);
    add_part(*all, std::move(left));
    while (is_operator()) {
      all->operators.push_back(take().text);
      add_part(*all, parse_binary(level + 1));
    }
    return all;
  }

  TemplateExpressionPtr parse_unary(bool takes_filters) {
    const Level level(*this);
    TemplateExpressionPtr expression;
    if (is_mark("-")) {
      expression = make(Expression::Kind::kNegative);
      take();
      add_part(*expression, parse_unary(false));
    } else {
      expression = parse_primary();
    }
    expression = parse_postfix(std::move(expression));
    return takes_filters ? parse_filters(std::move(expression)) : std::move(expression);
  }

  TemplateExpressionPtr parse_primary() {
    TemplateExpressionPtr expression = make(Expression::Kind::kLiteral);
    const Token token = now();
    if (token.kind == Token::Kind::kString) {
      std::string text;
      while (now().kind == Token::Kind::kString) text += take().text;
      expression->value = text;
      return expression;
    }
    if (token.kind == Token::Kind::kInteger) {
      int64_t number = 0;
      const auto result = std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
      if (result.ec != std::errc()) fail(fmt::format("has the number {}, which is too large", in_quotes(token.text)));
      expression->value = number;
      take();
      return expression;
    }
    if (token.kind == Token::Kind::kFloat) {
      expression->value = std::strtod(token.text.c_str(), nullptr);
      take();
      return expression;
    }
    if (token.kind == Token::Kind::kName) {
      take();
      const std::string& name = token.text;
      if (name == "true" || name == "True") {
        expression->value = true;
      } else if (name == "false" || name == "False") {
        expression->value = false;
      } else if (name != "none" && name != "None") {
        expression->kind = Expression::Kind::kName;
        expression->text = name;
      }
      return expression;
    }
    if (take_mark("(")) return parse_brackets();
    if (take_mark("[")) {
      expression->kind = Expression::Kind::kList;
      parse_items(*expression, "]");
      return expression;
    }
    if (take_mark("{")) {
      expression->kind = Expression::Kind::kDict;
      while (!take_mark("}")) {
        if (!expression->parts.empty()) {
          need_mark(",");
          if (take_mark("}")) break;
        }
        add_part(*expression, parse_expression());
        need_mark(":");
        add_part(*expression, parse_expression());
      }
      return expression;
    }
    fail(fmt::format("has {} where a value is needed", shown(token)));
  }

  TemplateExpressionPtr parse_brackets() {
    if (take_mark(")")) return make(Expression::Kind::kTuple);
    TemplateExpressionPtr inner = parse_tuple();
    need_mark(")");
    return inner;
  }

  void parse_items(Expression& expression, std::string_view close) {
    while (!take_mark(close)) {
      if (!expression.parts.empty()) {
        need_mark(",");
        if (take_mark(close)) return;
      }
      add_part(expression, parse_expression());
    }
  }

  TemplateExpressionPtr parse_postfix(TemplateExpressionPtr expression) {
    while (true) {
      if (is_mark(".")) {
        TemplateExpressionPtr attribute = make(Expression::Kind::kAttribute);
        take();
        if (now().kind == Token::Kind::kInteger) fail("has a number after '.', write it in brackets");
        attribute->text = need_name();
        add_part(*attribute, std::move(expression));
        expression = std::move(attribute);
      } else if (is_mark("[")) {
        expression = parse_subscript(std::move(expression));
      } else if (is_mark("(")) {
        expression = parse_call(std::move(expression));
      } else {
        return expression;
      }
    }
  }

  TemplateExpressionPtr parse_call(TemplateExpressionPtr function) {
    TemplateExpressionPtr call = make(Expression::Kind::kCall);
    add_part(*call, std::move(function));
    parse_arguments(*call);
    return call;
  }

  TemplateExpressionPtr parse_subscript(TemplateExpressionPtr expression) {
    TemplateExpressionPtr item = make(Expression::Kind::kItem);
    take();
    add_part(*item, std::move(expression));
    TemplateExpressionPtr first = is_mark(":") ? nullptr : parse_expression();
    if (is_mark(":")) {
      item->kind = Expression::Kind::kSlice;
      add_part(*item, std::move(first));
      for (int i = 0; i < 2; ++i) {
        const bool has_part = take_mark(":") && !is_mark(":") && !is_mark("]");
        add_part(*item, has_part ? parse_expression() : nullptr);
      }
    } else {
      add_part(*item, std::move(first));
    }
    need_mark("]");
    return item;
  }

  void parse_arguments(Expression& call) {
    need_mark("(");
    while (!take_mark(")")) {
      if (!call.arguments.empty()) {
        need_mark(",");
        if (take_mark(")")) return;
      }
      Expression::Argument& argument = call.arguments.emplace_back();
      if (now().kind == Token::Kind::kName && peek().kind == Token::Kind::kMark && peek().text == "=") {
        argument.name = take().text;
        take();
        const auto has_name = [&](const Expression::Argument& other) { return other.name == argument.name; };
        if (std::count_if(call.arguments.begin(), call.arguments.end(), has_name) > 1)
          fail(fmt::format("gives {} twice in one call", in_quotes(argument.name)));
      } else if (is_mark("*") || is_mark("**")) {
        fail("unpacks arguments, which is not known");
      } else if (call.arguments.size() > 1 && !call.arguments[call.arguments.size() - 2].name.empty()) {
        fail("has an argument without a name behind one with a name");
      }
      argument.value = inside(call, parse_expression());
    }
  }

  TemplateExpressionPtr parse_filters(TemplateExpressionPtr expression) {
    while (true) {
      if (is_mark("|")) {
        TemplateExpressionPtr filter = make(Expression::Kind::kFilter);
        take();
        filter->text = need_name();
        if (!is_template_filter(filter->text)) fail(fmt::format("has the unknown filter {}", in_quotes(filter->text)));
        add_part(*filter, std::move(expression));
        if (is_mark("(")) parse_arguments(*filter);
        expression = std::move(filter);
      } else if (is_name("is")) {
        expression = parse_test(std::move(expression));
      } else if (is_mark("(")) {
        expression = parse_call(std::move(expression));
      } else {
        return expression;
      }
    }
  }

  TemplateExpressionPtr parse_test(TemplateExpressionPtr expression) {
    TemplateExpressionPtr test = make(Expression::Kind::kTest);
    take();
    const bool is_negated = take_name("not");
    test->text = need_name();
    if (!is_template_test(test->text)) fail(fmt::format("has the unknown test {}", in_quotes(test->text)));
    add_part(*test, std::move(expression));
    const bool has_value = now().kind == Token::Kind::kString || now().kind == Token::Kind::kInteger ||
                           now().kind == Token::Kind::kFloat || is_mark("[") || is_mark("{") ||
                           (now().kind == Token::Kind::kName && !is_name("else") && !is_name("or") && !is_name("and") &&
                            !is_name("if") && !is_name("is") && !is_name("in") && !is_name("not"));
    if (is_mark("(")) {
      parse_arguments(*test);
    } else if (has_value) {
      test->arguments.push_back({"", inside(*test, parse_postfix(parse_primary()))});
    }
    if (!is_negated) return test;
    TemplateExpressionPtr negation = make(Expression::Kind::kNot);
    add_part(*negation, std::move(test));
    return negation;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

TemplateBody parse_template(std::string_view source) {
  return Parser(source).run();
}

}  // namespace weft
