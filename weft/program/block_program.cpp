#include "weft/program/block_program.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "weft/program/program_builder.h"

namespace weft {
namespace {

/// A tensor on its way through a block: its rows' dims and its last dim, each with what rules call it.
struct Flow {
  size_t value = 0;
  std::string rows = "b s";      ///< in rules
  std::string row_dims = "b s";  ///< of the program
  std::string last = "h";        ///< in rules
  std::string last_dim = "h";    ///< of the program
  int64_t width = 0;             ///< elements of the last dim
};

/// Writes the operators of blocks one after the other.
class BlockWriter {
 public:
  BlockWriter(std::string name, const Module& module, const ProgramSizes& sizes)
      : code_(std::move(name)), sizes_(sizes), width_(module.width) {
    // Rows that are merged later stay together.
    for (int64_t place = 0; place < num_blocks(module); ++place) {
      for (const Op& op : block_at(module, place).ops) merged_ = std::lcm(merged_, op.rows.denominator);
    }
    rows_ = (sizes.rows + merged_ - 1) / merged_ * merged_;
    code_.dim("b", sizes.samples);
    code_.dim("s", rows_, merged_);
    code_.dim("h", width_);
  }

  void begin_with_rows() {
    flow_ = {.value = code_.input("x", "b s h"), .width = width_};
    residual_ = flow_;
  }

  void write(const Block& block, const std::string& prefix, bool is_first) {
    for (const Op& op : block.ops) {
      const std::string name = prefix + op.name;
      if (is_first && !has_begun_) begin(op);
      std::visit([&](const auto& shape) { write(op, shape, name); }, op.shape);
      if (code_.failed()) return;
    }
  }

  void repeat(const Block& block, const std::string& prefix, int64_t count) {
    residual_ = flow_;
    code_.begin_repeat(count, flow_.value);
    write(block, prefix, false);
    code_.end_repeat(flow_.value);
  }

  Result<Program> finish() { return code_.finish(); }

 private:
  /// What the first operator reads is data.
  void begin(const Op& op) {
    has_begun_ = true;
    if (std::holds_alternative<Lookup>(op.shape)) return;
    if (const auto* matmul = std::get_if<Matmul>(&op.shape)) {
      const std::string dim = dim_of("p", matmul->in, 1);
      flow_ = {.value = code_.data("rows", "b s " + dim), .last = dim, .last_dim = dim, .width = matmul->in};
      return;
    }
    refuse(op, "begins a module");
  }

  void refuse(const Op& op, const std::string& why) {
    code_.fail(op.name, fmt::format("{}, which no program is derived for", why),
               "Write the block as a program of its own: weft shard --program FILE.");
  }

  /// A dim of this length and unit; dims of another length have other names.
  std::string dim_of(const std::string& base, int64_t length, int64_t unit) {
    if (base == "h" && length == width_ && unit == 1) return "h";
    for (int number = 1;; ++number) {
      const std::string name = number == 1 && base != "h" ? base : fmt::format("{}{}", base, number + (base == "h"));
      const auto known = code_.program().find_dim(name);
      if (!known) {
        code_.dim(name, length, unit);
        return name;
      }
      const ProgramDim& dim = code_.program().dims[*known];
      if (dim.length == length && dim.unit == unit) return name;
    }
  }

  void write(const Op& op, const Matmul& m, const std::string& name) {
    if (op.rows.denominator > 1 && flow_.row_dims == "b s") merge_rows(op, m, name);
    if (code_.failed()) return;
    if (m.in != flow_.width) return refuse(op, fmt::format("reads rows of {} elements after {}", m.in, flow_.width));
    const bool has_experts = flow_.rows == "e c";
    const bool makes_heads = m.head_dim > 0 && op.split == TensorSplit::kColumn;
    Flow next = flow_;
    next.width = m.out;
    if (makes_heads) {
      next.last = "k";
      next.last_dim = dim_of("q", m.out, m.out / std::max<int64_t>(1, m.kv_heads));
    } else if (is_router(op)) {
      experts_ = m.out;
      next.last = next.last_dim = dim_of("e", m.out, 1);
    } else if (op.split == TensorSplit::kColumn && op.name.starts_with("logits")) {
      next.last = next.last_dim = dim_of("v", m.out, 1);
    } else if (op.split == TensorSplit::kColumn) {
      next.last = "f";
      next.last_dim = dim_of(m.packed > 1 ? "p" : "f", m.out, m.packed);
    } else {
      next.last = next.last_dim = dim_of("h", m.out, 1);
      if (next.last == flow_.last) next.last = "o";
    }
    const std::string rows = flow_.rows, expert = has_experts ? "e " : "";
    const size_t weight =
        m.is_tied && table_ ? *table_ : code_.weight(name + ".weight", expert + next.last_dim + " " + flow_.last_dim);
    next.value = code_.einsum(
        name, fmt::format("{} {}, {}{} {} -> {} {}", rows, flow_.last, expert, next.last, flow_.last, rows, next.last),
        {flow_.value, weight}, {.as = named(next)});
    if (m.bias_elements > 0 && !code_.failed()) {
      const size_t bias = code_.weight(name + ".bias.weight", expert + next.last_dim);
      next.value = code_.sum_of(
          name + ".bias", fmt::format("{} {}, {}{} -> {} {}", rows, next.last, expert, next.last, rows, next.last),
          {next.value, bias}, {.as = named(next), .is_fused = true});
    }
    if (is_router(op)) {
      router_ = next;
    } else {
      flow_ = next;
    }
  }

  /// Rows that lie together become one.
  void merge_rows(const Op& op, const Matmul& m, const std::string& name) {
    if (m.in != flow_.width * op.rows.denominator)
      return refuse(op, fmt::format("reads {} elements of {} rows of {}", m.in, op.rows.denominator, flow_.width));
    Flow next = flow_;
    next.row_dims = "b " + dim_of("t", rows_ / op.rows.denominator, merged_ / op.rows.denominator);
    next.width = m.in;
    next.last_dim = next.last = dim_of("g", m.in, 1);
    next.value = code_.custom(name + ".merge", fmt::format("b s {} -> b s {}", flow_.last, next.last), {flow_.value},
                              {.as = named(next), .whole = {flow_.last, next.last}, .inside = {}, .linear = {{0}}});
    flow_ = next;
  }

  void write(const Op&, const Attention& a, const std::string& name) {
    Flow next = flow_;
    next.width = a.heads * a.head_dim;
    next.last_dim = dim_of("o", next.width, next.width / std::max<int64_t>(1, a.kv_heads));
    next.value = code_.attention(name, "b s k -> b s k", flow_.value,
                                 {.as = named(next), .whole = {}, .inside = {}, .linear = {}, .attention = a});
    flow_ = next;
  }

  void write(const Op& op, const Norm& n, const std::string& name) {
    Flow next = flow_;
    if (flow_.last == "k") {
      // Every head by itself, with one weight for all.
      const size_t weight = code_.weight(name + ".weight", dim_of("w", n.width, 1));
      next.value = code_.custom(name, fmt::format("{} k, w -> {} k", flow_.rows, flow_.rows), {flow_.value, weight},
                                {.as = named(next), .whole = {"w"}, .inside = {}, .linear = {}});
    } else {
      if (n.width * n.groups != flow_.width)
        return refuse(op, fmt::format("norms {} of {} elements", n.width, flow_.width));
      std::vector<size_t> operands{flow_.value, code_.weight(name + ".weight", flow_.last_dim)};
      std::string rule = fmt::format("{} {}, {}", flow_.rows, flow_.last, flow_.last);
      if (n.has_bias) {
        operands.push_back(code_.weight(name + ".bias", flow_.last_dim));
        rule += ", " + flow_.last;
      }
      next.value =
          code_.norm(name, fmt::format("{} -> {} {}", rule, flow_.rows, flow_.last), operands, {.as = named(next)});
    }
    flow_ = next;
  }

  void write(const Op& op, const Pointwise& p, const std::string& name) {
    Flow next = flow_;
    const std::string one = flow_.rows + " " + flow_.last;
    if (op.name == "moe.dispatch") return dispatch(op, name);
    if (op.name == "moe.combine") {
      next = residual_;
      next.value = code_.add(OperatorKind::kCombine, name, "e (b s) h, b s e -> b s h", {flow_.value, router_.value},
                             {.as = "b s h"});
    } else if (p.is_sum) {
      next.value = code_.sum_of(name, fmt::format("{}, {} -> {}", one, one, one), {residual_.value, flow_.value},
                                {.as = named(next)});
      flow_ = residual_ = next;
      return;
    } else if (p.elements_in == flow_.width && p.elements_out != flow_.width) {
      // A gate and what it opens, side by side in every unit.
      const ProgramDim& dim = code_.program().dims[*code_.program().find_dim(flow_.last_dim)];
      next.width = p.elements_out;
      next.last_dim =
          dim_of("f", p.elements_out, std::max<int64_t>(1, p.elements_out / std::max<int64_t>(1, dim.num_units())));
      next.value = code_.elementwise(name, fmt::format("{} -> {}", one, one), {flow_.value}, {.as = named(next)});
    } else if (p.elements_in == flow_.width) {
      next.value = code_.elementwise(name, fmt::format("{} -> {}", one, one), {flow_.value}, {.as = named(next)});
    } else if (p.elements_in == p.elements_out && p.elements_in < flow_.width) {
      // Queries and keys turn, values stay.
      next.value =
          code_.add(OperatorKind::kScale, name, fmt::format("{} -> {}", one, one), {flow_.value}, {.as = named(next)});
    } else {
      return refuse(
          op, fmt::format("makes {} elements of {} after rows of {}", p.elements_out, p.elements_in, flow_.width));
    }
    flow_ = next;
  }

  void dispatch(const Op& op, const std::string& name) {
    if (experts_ == 0) return refuse(op, "has no router before it");
    const int64_t rows = (sizes_.samples * rows_ * op.rows.numerator + experts_ - 1) / experts_;
    Flow next = flow_;
    next.rows = "e c";
    next.row_dims = "e " + dim_of("c", rows, 1);
    next.value = code_.add(OperatorKind::kDispatch, name, "b s h -> e (b s) h", {flow_.value}, {.as = named(next)});
    flow_ = next;
  }

  void write(const Op&, const Lookup& l, const std::string& name) {
    const bool is_second = table_.has_value();
    const std::string entries = dim_of("v", l.entries, 1);
    const size_t ids = code_.data(is_second ? name + ".ids" : "ids", "b s");
    const size_t table = code_.weight(name + ".weight", entries + " h");
    if (is_second) residual_ = flow_;
    if (!is_second) table_ = table;
    flow_ = {.value = code_.lookup(name, fmt::format("b s, {} h -> b s h", entries), ids, table), .width = l.width};
    if (!is_second) residual_ = flow_;
  }

  void write(const Op&, const CrossEntropy&, const std::string& name) {
    const size_t targets = code_.data("targets", "b s");
    const size_t losses =
        code_.cross_entropy(name, fmt::format("b s {}, b s -> b s", flow_.last), flow_.value, targets);
    flow_.value = code_.add(OperatorKind::kSum, name + ".sum", "b s ->", {losses});
  }

  /// The dims of the result, with storage that lasts for the call.
  std::string_view named(const Flow& flow) {
    named_ = flow.row_dims + " " + flow.last_dim;
    return named_;
  }

  ProgramBuilder code_;
  ProgramSizes sizes_;
  int64_t width_;
  int64_t merged_ = 1;
  int64_t rows_ = 1;
  int64_t experts_ = 0;
  bool has_begun_ = false;
  Flow flow_;
  Flow residual_;
  Flow router_;
  std::optional<size_t> table_;
  std::string named_;
};

}  // namespace

Result<Program> program_of(const Module& module, const ProgramSizes& sizes, std::string name) {
  BlockWriter writer(std::move(name), module, sizes);
  writer.write(module.entry, "", true);
  // Neighbours of one kind are a repeat.
  size_t begin = 0;
  while (begin < module.layers.size()) {
    size_t end = begin;
    while (end < module.layers.size() && module.layers[end] == module.layers[begin]) ++end;
    const bool is_all = begin == 0 && end == module.layers.size();
    writer.repeat(module.distinct_layers[module.layers[begin]],
                  is_all ? "layers." : fmt::format("layers{}-{}.", begin, end - 1), static_cast<int64_t>(end - begin));
    begin = end;
  }
  writer.write(module.exit, "", false);
  return writer.finish();
}

Result<Program> program_of_layers(const Module& module, size_t kind, const ProgramSizes& sizes, std::string name) {
  BlockWriter writer(std::move(name), module, sizes);
  writer.begin_with_rows();
  const int64_t count = std::count(module.layers.begin(), module.layers.end(), kind);
  writer.repeat(module.distinct_layers[kind], "", std::max<int64_t>(1, count));
  return writer.finish();
}

}  // namespace weft
