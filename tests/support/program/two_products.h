#pragma once

#include <string>

#include <fmt/format.h>

namespace weft {

struct TwoProducts {
  int64_t samples = 2;
  int64_t rows = 6;
  int64_t width = 4;
  int64_t inner = 10;
  int64_t layers = 3;
};

/// A program whose layers are two products around a relu, added to their rows; its loss is the sum of squares.
inline std::string two_products_program(const TwoProducts& sizes) {
  return fmt::format(R"(weft_program 1 two
dim b {}
dim s {}
dim h {}
dim f {}
input x [b s h]
repeat {} x
weight w1 [f h]
up = einsum(x, w1) : b s h, f h -> b s f
act = elementwise(up) : b s f -> b s f ; does relu
weight w2 [h f]
down = einsum(act, w2) : b s f, h f -> b s h
y = add(x, down) : b s h, b s h -> b s h
end y
square = multiply(y, y) : b s h, b s h -> b s h
loss = sum(square) : b s h ->
)",
                     sizes.samples, sizes.rows, sizes.width, sizes.inner, sizes.layers);
}

}  // namespace weft
