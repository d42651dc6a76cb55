#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "weft/program/program.h"

namespace weft {

/// The text form of a program, a statement a line; '#' begins a comment:
///
///   weft_program 1 mlp
///   dim b 8
///   dim q 6144 unit 768
///   input x [b s h]          (also: data, weight)
///   up = einsum(x, w) : b s h, f h -> b s f
///   core = attention(qkv) : b s k -> b s k ; as b s o ; heads 32 8 128 ; mask causal
///   repeat 32 x
///   ...
///   end y
Result<Program> parse_program(std::string_view text, const std::string& source);
Result<Program> read_program_file(const std::filesystem::path& path);

/// Reading it gives the program back.
std::string program_text(const Program& program);

/// What an operator does, with words in place of its operands and without names: "einsum(rows, weight) : b h, f h -> b
/// f".
std::string nameless_text(const Operator& op, const std::string& operands);

}  // namespace weft
