#include "weft/layers/dropout.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/weights/philox.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A random block has this many numbers, for elements next to each other.
constexpr int64_t kLanes = 4;
/// What a thread draws at least.
constexpr int64_t kDrawnElements = int64_t{16} << 10;

/// Below it a number of 32 bits is drawn for an element that is dropped.
uint64_t threshold_of(double probability) {
  return static_cast<uint64_t>(probability * 4294967296.0);
}

uint32_t low_word(int64_t number) {
  return static_cast<uint32_t>(number & 0xffff'ffff);
}

uint32_t high_word(int64_t number) {
  return static_cast<uint32_t>(static_cast<uint64_t>(number) >> 32);
}

const int64_t* numbers_in(const at::Tensor& rows) {
  WEFT_CHECK(rows.device().is_cpu() && rows.is_contiguous() && rows.scalar_type() == at::kLong,
             "numbers of rows are not on the CPU");
  return rows.data_ptr<int64_t>();
}

/// Factors of elements of rows [rows, width], from a column of the whole rows on.
at::Tensor element_factors(const at::Tensor& rows, int64_t first_column, int64_t width, double probability,
                           const DropoutKey& key, const at::TensorOptions& options) {
  const at::Tensor factors = at::empty({rows.size(0), width}, at::TensorOptions().dtype(at::kFloat));
  const int64_t* number = numbers_in(rows);
  float* to = factors.data_ptr<float>();
  const uint64_t threshold = threshold_of(probability);
  at::parallel_for(0, rows.size(0), std::max<int64_t>(1, kDrawnElements / std::max<int64_t>(width, 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t row = begin; row < end; ++row) {
                       const int64_t last = first_column + width;
                       for (int64_t block = first_column / kLanes; block * kLanes < last; ++block) {
                         const PhiloxBlock drawn = philox_4x32_10(
                             {low_word(number[row]), high_word(number[row]), low_word(block), 0}, key.words);
                         const int64_t first = std::max(first_column, block * kLanes);
                         for (int64_t column = first; column < std::min(last, (block + 1) * kLanes); ++column)
                           to[row * width + column - first_column] =
                               drawn[static_cast<size_t>(column % kLanes)] < threshold ? 0.F : 1.F;
                       }
                     }
                   });
  // In the rows' own precision, so that a whole run in doubles stays one.
  return factors.to(options).div_(1 - probability);
}

struct DropFunction : torch::autograd::Function<DropFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& rows, double probability,
                            int64_t first_word, int64_t second_word, int64_t first_column) {
    saved->save_for_backward({rows});
    saved->saved_data["probability"] = probability;
    saved->saved_data["first"] = first_word;
    saved->saved_data["second"] = second_word;
    saved->saved_data["column"] = first_column;
    return x * factors_of(saved, rows, x);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::Tensor& dy = gradients[0];
    return {dy * factors_of(saved, saved->get_saved_variables()[0], dy),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor()};
  }

 private:
  static at::Tensor factors_of(AutogradContext* saved, const at::Tensor& rows, const at::Tensor& like) {
    const DropoutKey key{{static_cast<uint32_t>(saved->saved_data["first"].toInt()),
                          static_cast<uint32_t>(saved->saved_data["second"].toInt())}};
    return element_factors(rows, saved->saved_data["column"].toInt(), like.size(1),
                           saved->saved_data["probability"].toDouble(), key, like.options());
  }
};

}  // namespace

DropoutKey dropout_key(const DropoutDraws& draws, int64_t layer, DropoutSite site) {
  // Two draws of the generator itself make a key of everything but the element.
  const PhiloxBlock of_step =
      philox_4x32_10({low_word(draws.step), high_word(draws.step), 0x64726f70, 0},
                     {static_cast<uint32_t>(draws.seed & 0xffff'ffff), static_cast<uint32_t>(draws.seed >> 32)});
  const PhiloxBlock of_site =
      philox_4x32_10({low_word(layer), static_cast<uint32_t>(site), of_step[2], of_step[3]}, {of_step[0], of_step[1]});
  return {{of_site[0], of_site[1]}};
}

at::Tensor drop_elements(const at::Tensor& x, const at::Tensor& rows, double probability, const DropoutKey& key,
                         int64_t first_column) {
  if (probability == 0 || x.size(0) == 0) return x;
  WEFT_CHECK(rows.size(0) == x.size(0), "{} rows have {} numbers", x.size(0), rows.size(0));
  return DropFunction::apply(x, rows.contiguous(), probability, int64_t{key.words[0]}, int64_t{key.words[1]},
                             first_column);
}

at::Tensor attention_factors(const BlockDropout& dropout, const at::Tensor& queries, const at::Tensor& keys,
                             int64_t count, int64_t heads, const at::TensorOptions& options) {
  const int64_t num_queries = queries.size(0) / count, num_keys = keys.size(0) / count;
  const at::Tensor factors = at::empty({count, heads, num_queries, num_keys}, at::TensorOptions().dtype(at::kFloat));
  const int64_t* query = numbers_in(queries);
  const int64_t* key = numbers_in(keys);
  float* to = factors.data_ptr<float>();
  const uint64_t threshold = threshold_of(dropout.probability);
  const int64_t lines = count * heads * num_queries;
  at::parallel_for(0, lines, std::max<int64_t>(1, kDrawnElements / std::max<int64_t>(num_keys, 1)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t line = begin; line < end; ++line) {
                       const int64_t head = dropout.first_head + line / num_queries % heads;
                       const int64_t block = line / (num_queries * heads);
                       const int64_t row = query[block * num_queries + line % num_queries];
                       int64_t drawn_for = -1;
                       PhiloxBlock drawn = {};
                       for (int64_t i = 0; i < num_keys; ++i) {
                         // Keys are of the query's own sample, so that their places tell them apart.
                         const int64_t place = low_word(key[block * num_keys + i]);
                         if (place / kLanes != drawn_for) {
                           drawn_for = place / kLanes;
                           drawn = philox_4x32_10({low_word(row), high_word(row), low_word(drawn_for), low_word(head)},
                                                  dropout.key.words);
                         }
                         to[line * num_keys + i] = drawn[static_cast<size_t>(place % kLanes)] < threshold ? 0.F : 1.F;
                       }
                     }
                   });
  return factors.to(options).div_(1 - dropout.probability);
}

}  // namespace weft
