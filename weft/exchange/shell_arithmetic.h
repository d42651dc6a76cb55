#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/exchange/shell_variables.h"

namespace weft {

class ShellReader;

/// A number of 64 bits, or why it is not known.
struct ShellNumber {
  int64_t value = 0;
  std::string unknown;
};

/// The names that an expression may set, by the operators beside them.
std::vector<std::string> assigned_names(std::string_view text);

/// An expression inside $(( )), by precedence, with its assignments. Names are variables with or without a dollar. What
/// a shell would wrap around at 64 bits is a problem.
class ShellArithmetic {
 public:
  /// `hole` is why a letter of the text that stands for others is not known.
  ShellArithmetic(ShellReader& reader, std::string hole, bool is_dry)
      : reader_(reader), hole_(std::move(hole)), num_skipped_(is_dry ? 1 : 0) {}

  ShellNumber value();
  const std::string& problem() const { return problem_; }

 private:
  struct Name {
    std::string text;
    bool is_item = false;  ///< NAME[...]
  };

  ShellNumber list();
  ShellNumber assignment();
  ShellNumber level(int least);
  ShellNumber unary();
  ShellNumber primary();
  ShellNumber named(const Name& name);
  ShellNumber read(const Name& name);
  ShellNumber assign(const Name& name, ShellNumber value);
  ShellNumber stepped(ShellNumber value, std::string_view step);
  ShellNumber number(const MarkedText& text);
  int64_t apply(std::string_view op, int64_t a, int64_t b);
  Name read_name();
  MarkedText quoted_text();
  const char* operator_ahead(int least, int& its_level);
  void skip();
  bool takes(std::string_view text);
  void fail(std::string problem);  ///< of the numbers; the rest is still read
  void stop(std::string problem);

  ShellReader& reader_;
  std::string hole_;
  int num_skipped_ = 0;  ///< parts around this one that a shell does not compute
  int num_maybe_ = 0;    ///< parts of which it is not known whether it does
  std::string problem_;
  bool is_stuck_ = false;  ///< what stands ahead is no arithmetic
};

}  // namespace weft
