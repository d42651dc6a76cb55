#include "weft/program/sample_dim.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/program/run_lengths.h"

namespace weft {
namespace {

constexpr const char* kAdvice =
    "Call the dim of samples by a letter of its own, and other dims otherwise: how many samples run at once is for a "
    "plan to say, and no other dim follows.";

/// Where a value begins with the dim of samples: what the rule makes this dim of.
const std::vector<size_t>* samples_of(const Program& program, const Operator& op, size_t term, size_t sample_dim) {
  const bool is_result = term == op.operands.size();
  const ProgramValue& value = program.values[is_result ? op.result : op.operands[term]];
  const RuleTerm& dims = is_result ? op.rule.result : op.rule.operands[term];
  if (value.dims.empty() || value.dims.front() != sample_dim) return nullptr;
  return &dims.front();
}

/// A dim that the rule makes of the same letters as that of samples.
std::optional<Error> find_tied(const Program& program, const Operator& op, size_t sample_dim) {
  const size_t num_terms = op.operands.size() + 1;
  for (size_t first = 0; first < num_terms; ++first) {
    const std::vector<size_t>* samples = samples_of(program, op, first, sample_dim);
    if (samples == nullptr) continue;
    for (size_t term = 0; term < num_terms; ++term) {
      const bool is_result = term == op.operands.size();
      const ProgramValue& value = program.values[is_result ? op.result : op.operands[term]];
      const RuleTerm& dims = is_result ? op.rule.result : op.rule.operands[term];
      const bool begins = samples_of(program, op, term, sample_dim) != nullptr;
      for (size_t place = begins ? 1 : 0; place < dims.size(); ++place) {
        const auto letter =
            std::find_first_of(samples->begin(), samples->end(), dims[place].begin(), dims[place].end());
        // A dim of one element beside the samples leaves them as they are.
        const bool is_inner = letter != samples->begin() && program.dims[value.dims[place]].length == 1;
        if (letter == samples->end() || is_inner) continue;
        return Error{.field = op.name,
                     .problem = fmt::format("calls the dim of samples {} and the dim {} of {} both {} in its rule {}",
                                            in_quotes(program.dims[sample_dim].name),
                                            in_quotes(program.dims[value.dims[place]].name), in_quotes(value.name),
                                            in_quotes(op.rule.dims[*letter].name), in_quotes(op.rule.text())),
                     .advice = kAdvice};
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> find_tied_to_samples(const Program& program, size_t sample_dim) {
  for (const Operator& op : program.operators) {
    if (auto error = find_tied(program, op, sample_dim)) return error;
  }
  const ProgramDim& samples = program.dims[sample_dim];
  for (const int64_t number : {samples.length + 1, int64_t{1}}) {
    const Result<RunLengths> lengths = changed_lengths(program, {{samples.name, number}});
    if (!lengths) {
      Error error = lengths.error();
      error.problem = fmt::format("does not take another number of samples than {}: {}", samples.length, error.problem);
      error.advice = kAdvice;
      return error;
    }
    for (size_t dim = 0; dim < program.dims.size(); ++dim) {
      if (dim == sample_dim || (*lengths)[dim].length == program.dims[dim].length) continue;
      return Error{.field = program.dims[dim].name,
                   .problem = fmt::format("is a dim of {} elements, which would be {} with {} samples instead of {}",
                                          program.dims[dim].length, (*lengths)[dim].length, number, samples.length),
                   .advice = kAdvice};
    }
  }
  return std::nullopt;
}

}  // namespace weft
