#include "tests/support/mesh/simulated_tensor.h"

#include "weft/base/check.h"

namespace weft {
namespace {

void add_rows(const Box& part, size_t dim, const double* source, const Box& source_box, double* target,
              const Box& target_box) {
  if (dim == part.size()) {
    *target += *source;
    return;
  }
  int64_t source_stride = 1;
  int64_t target_stride = 1;
  for (size_t inner = dim + 1; inner < part.size(); ++inner) {
    source_stride *= source_box[inner].size();
    target_stride *= target_box[inner].size();
  }
  for (int64_t i = part[dim].begin; i < part[dim].end; ++i) {
    add_rows(part, dim + 1, source + (i - source_box[dim].begin) * source_stride, source_box,
             target + (i - target_box[dim].begin) * target_stride, target_box);
  }
}

}  // namespace

void add_part(const Box& part, std::span<const double> source, const Box& source_box, std::span<double> target,
              const Box& target_box) {
  for (size_t dim = 0; dim < part.size(); ++dim) {
    if (part[dim].empty()) return;
    WEFT_CHECK(part[dim].is_inside(source_box[dim]) && part[dim].is_inside(target_box[dim]),
               "a part that is not there");
  }
  add_rows(part, 0, source.data(), source_box, target.data(), target_box);
}

SimulatedTensor fill(const Layout& layout, const std::function<double()>& draw) {
  SimulatedTensor tensor{layout, {}};
  const AxisList copies = layout.replicated_axes();
  for (int64_t position = 0; position < layout.grid().num_positions(); ++position) {
    const int64_t first = layout.grid().group_base(position, copies);
    if (first != position) {
      tensor.local.push_back(tensor.local[static_cast<size_t>(first)]);
      continue;
    }
    std::vector<double>& elements = tensor.local.emplace_back();
    for (int64_t i = 0; i < layout.num_local_elements(position); ++i) elements.push_back(draw());
  }
  return tensor;
}

std::vector<double> logical_value(const SimulatedTensor& tensor) {
  const Layout& layout = tensor.layout;
  const AxisList copies = layout.replicated_axes();
  Box whole;
  for (const int64_t size : layout.shape()) whole.push_back({0, size});
  std::vector<double> value(static_cast<size_t>(layout.num_elements()), 0.0);
  for (int64_t position = 0; position < layout.grid().num_positions(); ++position) {
    const std::vector<double>& elements = tensor.local[static_cast<size_t>(position)];
    const int64_t first = layout.grid().group_base(position, copies);
    WEFT_CHECK(elements == tensor.local[static_cast<size_t>(first)], "copies differ in {}", layout.text());
    if (first != position) continue;
    const Box box = layout.box(position);
    add_part(box, elements, box, value, whole);
  }
  return value;
}

double pairing(const SimulatedTensor& tensor, const SimulatedTensor& gradient) {
  const Layout& layout = tensor.layout;
  WEFT_CHECK(gradient.layout == layout.gradient(), "{} is no gradient of {}", gradient.layout.text(), layout.text());
  AxisList counted_once;
  for (size_t axis = 0; axis < layout.states().size(); ++axis) {
    if (layout.state(axis).spread == Spread::kReplicated) counted_once.push_back(axis);
  }
  double sum = 0;
  for (int64_t position = 0; position < layout.grid().num_positions(); ++position) {
    if (layout.grid().group_base(position, counted_once) != position) continue;
    const std::vector<double>& a = tensor.local[static_cast<size_t>(position)];
    const std::vector<double>& b = gradient.local[static_cast<size_t>(position)];
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  }
  return sum;
}

SimulatedTensor execute(const Step& step, const SimulatedTensor& tensor) {
  WEFT_CHECK(tensor.layout == step.before, "a step from {} on a tensor in {}", step.before.text(),
             tensor.layout.text());
  const AxisGrid& grid = step.before.grid();
  const std::vector<int64_t> offsets = grid.group_offsets(step.axes);
  SimulatedTensor result{step.after, {}};
  for (int64_t position = 0; position < grid.num_positions(); ++position) {
    const Box box = step.after.box(position);
    std::vector<double> elements(static_cast<size_t>(num_elements(box)), 0.0);
    const auto add_from = [&](int64_t member) {
      const Box source_box = step.before.box(member);
      add_part(intersection(box, source_box), tensor.local[static_cast<size_t>(member)], source_box, elements, box);
    };
    if (is_collective(step.kind)) {
      // Shards do not overlap, so that adding them up gathers them.
      for (const int64_t offset : offsets) add_from(grid.group_base(position, step.axes) + offset);
    } else if (step.kind != StepKind::kZeroPad || keeps_copy(step, position)) {
      add_from(position);
    }
    result.local.push_back(std::move(elements));
  }
  return result;
}

SimulatedTensor execute(std::span<const Step> steps, SimulatedTensor tensor) {
  for (const Step& step : steps) tensor = execute(step, tensor);
  return tensor;
}

}  // namespace weft
