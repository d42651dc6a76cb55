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
  int64_t width = 0;             ///< elements of the last dim; 0: nothing flows yet
  RowsPerToken per_token = {};
};

/// Elements of a row that an operator reads.
int64_t width_read(const Op& op) {
  if (const auto* matmul = std::get_if<Matmul>(&op.shape)) return matmul->in;
  if (const auto* norm = std::get_if<Norm>(&op.shape)) return norm->width * norm->groups;
  if (const auto* pointwise = std::get_if<Pointwise>(&op.shape)) return pointwise->elements_in;
  return 0;
}

/// Whether rows of so many elements that an operator reads are groups of the rows before it, each in one of them.
bool is_grouping(const Op& op, RowsPerToken before, int64_t width) {
  const int64_t group = width_read(op) / width;
  return group * op.rows.numerator * before.denominator == before.numerator * op.rows.denominator;
}

/// Writes the operators of blocks one after the other.
class BlockWriter {
 public:
  BlockWriter(std::string name, int64_t width, const std::vector<const Block*>& blocks, const ProgramSizes& sizes)
      : code_(std::move(name)), sizes_(sizes), width_(width) {
    // Rows that are merged later stay together, and there are as many as every operator needs.
    int64_t divisor = 1;
    for (const Block* block : blocks) {
      for (const Op& op : block->ops) {
        divisor = std::lcm(divisor, op.rows.denominator);
        if (op.rows.denominator > 1 && is_grouping(op, {}, width_)) merged_ = std::lcm(merged_, op.rows.denominator);
      }
    }
    rows_ = (sizes.rows + divisor - 1) / divisor * divisor;
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
      if (op.branches_from >= 0) flow_ = branches_.at(op.branches_from);
      if (!std::holds_alternative<Lookup>(op.shape)) change_rows(op, name);
      if (code_.failed()) return;
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

  /// What flows here is read later, too: a copy goes on.
  void branch_off(int64_t layer) {
    const size_t made = flow_.value;
    const std::string name = fmt::format("layer{}", layer);
    flow_.value = code_.reshape(name + ".branch", "b s h -> b s h", made);
    branches_[layer] = flow_;
    flow_.value = code_.reshape(name + ".on", "b s h -> b s h", made);
  }

  Result<Program> finish() { return code_.finish(); }

 private:
  /// What the first operator reads is data.
  void begin(const Op& op) {
    has_begun_ = true;
    if (std::holds_alternative<Lookup>(op.shape)) return;
    if (const auto* matmul = std::get_if<Matmul>(&op.shape)) {
      const std::string dim = dim_of("p", matmul->in, 1);
      flow_ = {.row_dims = "b " + rows_dim(op.rows),
               .last = dim,
               .last_dim = dim,
               .width = matmul->in,
               .per_token = op.rows};
      flow_.value = code_.data("rows", named(flow_));
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

  int64_t num_rows(RowsPerToken per_token) const { return rows_ * per_token.numerator / per_token.denominator; }

  /// The dim of so many rows a token.
  std::string rows_dim(RowsPerToken per_token) {
    const int64_t units = rows_ / merged_, rows = num_rows(per_token);
    return rows == rows_ ? "s" : dim_of("t", rows, rows % units == 0 ? rows / units : 1);
  }

  /// Brings rows together, or leaves some out, before an operator that works on fewer than those that come.
  void change_rows(const Op& op, const std::string& name) {
    const bool is_of_experts = op.rows.numerator > op.rows.denominator;
    const bool has_all = op.rows == flow_.per_token || flow_.width == 0 || is_of_experts;
    if (has_all || std::holds_alternative<Pointwise>(op.shape)) return;
    const int64_t width = width_read(op);
    if (width == 0 || width % flow_.width != 0)
      return refuse(op, fmt::format("reads {} elements after rows of {}", width, flow_.width));
    Flow next = flow_;
    next.per_token = op.rows;
    next.row_dims = "b " + rows_dim(op.rows);
    OperatorOptions options{.whole = {}, .inside = {}, .linear = {{0}}};
    if (width != flow_.width) {
      next.width = width;
      next.last = next.last_dim = dim_of("g", width, 1);
      options.whole = {flow_.last, next.last};
    }
    // Rows that are read twice, or not at all, may lie on several ranks.
    const bool is_grouped = is_grouping(op, flow_.per_token, flow_.width);
    if (!is_grouped) options.whole.insert(options.whole.end(), {"s", "t"});
    if (is_grouped && width != flow_.width) options.calculation.calls = "merge_rows";
    options.as = named(next);
    next.value =
        code_.custom(name + ".merge", fmt::format("b s {} -> b {} {}", flow_.last, is_grouped ? "s" : "t", next.last),
                     {flow_.value}, options);
    flow_ = next;
  }

  void write(const Op& op, const Matmul& m, const std::string& name) {
    if (m.in != flow_.width) return refuse(op, fmt::format("reads rows of {} elements after {}", m.in, flow_.width));
    const bool has_experts = flow_.rows == "e c";
    const bool makes_heads = op.out == Features::kHeads;
    Flow next = flow_;
    next.width = m.out;
    if (makes_heads) {
      heads_ = {.heads = m.heads, .kv_heads = m.kv_heads, .head_dim = m.head_dim};
      next.last = "k";
      next.last_dim = dim_of("q", m.out, m.out / std::max<int64_t>(1, m.kv_heads));
    } else if (is_router(op)) {
      experts_ = m.out;
      next.last = next.last_dim = dim_of("e", m.out, 1);
    } else if (op.out == Features::kVocabulary) {
      next.last = next.last_dim = dim_of("v", m.out, 1);
    } else if (op.out == Features::kInner) {
      next.last = "f";
      const int64_t unit = m.packed > 1 && sizes_.gate_shares > 0 ? m.out / sizes_.gate_shares : m.packed;
      next.last_dim = dim_of(m.packed > 1 ? "p" : "f", m.out, unit);
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
      // Every head by itself, with one weight for all, or all together.
      // One weight for every row of heads is as long as they are together, and cut with them.
      const bool is_of_keys = op.name.ends_with("k_norm");
      const size_t weight = code_.weight(name + ".weight", dim_of("w", n.width, 1));
      OperatorOptions options{.as = named(next), .whole = {"w"}, .inside = {}, .linear = {}, .attention = heads_};
      if (n.groups == 1) options.inside = {"k"};
      options.calculation = {.epsilon = n.epsilon, .calls = is_of_keys ? "norm_keys" : "norm_queries"};
      next.value =
          code_.custom(name, fmt::format("{} k, w -> {} k", flow_.rows, flow_.rows), {flow_.value, weight}, options);
    } else {
      if (n.width * n.groups != flow_.width)
        return refuse(op, fmt::format("norms {} of {} elements", n.width, flow_.width));
      std::vector<size_t> operands{flow_.value, code_.weight(name + ".weight", flow_.last_dim)};
      std::string rule = fmt::format("{} {}, {}", flow_.rows, flow_.last, flow_.last);
      if (n.has_bias) {
        operands.push_back(code_.weight(name + ".bias", flow_.last_dim));
        rule += ", " + flow_.last;
      }
      next.value = code_.norm(name, fmt::format("{} -> {} {}", rule, flow_.rows, flow_.last), operands,
                              {.as = named(next), .calculation = {.epsilon = n.epsilon}});
    }
    flow_ = next;
  }

  void write(const Op& op, const Pointwise& p, const std::string& name) {
    Flow next = flow_;
    const std::string one = flow_.rows + " " + flow_.last;
    if (op.name == "moe.dispatch") return dispatch(op, name);
    if (op.name == "moe.combine") {
      next = residual_;
      next.value =
          code_.add(OperatorKind::kCombine, name, "e (b s) h, b s e -> b s h", {flow_.value, route_}, {.as = "b s h"});
    } else if (corners_) {
      // Rows of neighbouring positions, weighed by how near they are.
      const size_t weights = code_.data(name + ".weights", "b s corner");
      const size_t weighed = code_.einsum(name + ".weighed", "b s c h, b s c -> b s h", {*corners_, weights});
      next.value = code_.sum_of(name, "b s h, b s h -> b s h", {flow_.value, weighed});
      corners_.reset();
      flow_ = residual_ = next;
      return;
    } else if (p.is_sum) {
      if (p.dropout > 0)
        next.value = code_.dropout(name + ".dropout", fmt::format("{} -> {}", one, one), flow_.value, p.dropout);
      next.value = code_.sum_of(name, fmt::format("{}, {} -> {}", one, one, one), {residual_.value, next.value},
                                {.as = named(next)});
      flow_ = residual_ = next;
      return;
    } else if (p.scales > 0) {
      const size_t weight = code_.weight(name + ".weight", flow_.last_dim);
      next.value = code_.add(OperatorKind::kMultiply, name, fmt::format("{}, {} -> {}", one, flow_.last, one),
                             {flow_.value, weight}, {.as = named(next)});
    } else if (op.rows != flow_.per_token && is_grouping(op, flow_.per_token, flow_.width)) {
      // A mean of each group.
      next.per_token = op.rows;
      next.row_dims = "b " + rows_dim(op.rows);
      next.value =
          code_.add(OperatorKind::kScale, name, fmt::format("{} -> {}", one, one), {flow_.value}, {.as = named(next)});
    } else if (p.elements_in == flow_.width && p.elements_out != flow_.width) {
      // A gate and what it opens, side by side in every unit.
      const ProgramDim& dim = code_.program().dims[*code_.program().find_dim(flow_.last_dim)];
      next.width = p.elements_out;
      next.last_dim =
          dim_of("f", p.elements_out, std::max<int64_t>(1, p.elements_out / std::max<int64_t>(1, dim.num_units())));
      next.value = code_.elementwise(name, fmt::format("{} -> {}", one, one), {flow_.value},
                                     {.as = named(next), .calculation = {.function = p.activation}});
    } else if (p.elements_in == flow_.width) {
      next.value = code_.elementwise(name, fmt::format("{} -> {}", one, one), {flow_.value},
                                     {.as = named(next), .calculation = {.function = p.activation}});
    } else if (p.elements_in == p.elements_out && p.elements_in < flow_.width) {
      // Queries and keys turn, values stay.
      next.value = code_.custom(name, fmt::format("{}, b s a -> {}", one, one),
                                {flow_.value, angles(name.substr(0, name.size() - op.name.size()))},
                                {.as = named(next),
                                 .whole = {"a"},
                                 .inside = {},
                                 .linear = {{0}},
                                 .attention = heads_,
                                 .calculation = {.calls = sizes_.has_rotary_tables ? "rotary_table" : "rotary"}});
    } else {
      return refuse(
          op, fmt::format("makes {} elements of {} after rows of {}", p.elements_out, p.elements_in, flow_.width));
    }
    if (p.dropout > 0)
      next.value = code_.add(OperatorKind::kDropout, name + ".dropout", fmt::format("{} -> {}", one, one), {next.value},
                             {.as = named(next), .calculation = {.dropout = p.dropout}});
    flow_ = next;
  }

  /// By how much the heads of every row turn: one angle for two elements, or its cosine and, behind all of these, its
  /// sine.
  size_t angles(const std::string& prefix) {
    const std::string name = prefix + (sizes_.has_rotary_tables ? kRotaryTable : "angles");
    if (const auto known = code_.program().find_value(name)) return *known;
    const int64_t numbers = sizes_.has_rotary_tables ? heads_.head_dim : heads_.head_dim / 2;
    return code_.data(name, flow_.row_dims + " " + dim_of("a", numbers, 1));
  }

  void dispatch(const Op& op, const std::string& name) {
    if (experts_ == 0) return refuse(op, "has no router before it");
    const int64_t rows = (sizes_.samples * rows_ * op.rows.numerator + experts_ - 1) / experts_;
    Flow next = flow_;
    next.rows = "e c";
    next.row_dims = "e " + dim_of("c", rows, 1);
    next.per_token = op.rows;
    // The weights of the experts that a row goes to; 0 for all others.
    const std::string routed = "b s " + router_.last_dim;
    route_ = code_.add(
        OperatorKind::kSoftmax, name + ".route", "b s e -> b s e", {router_.value},
        {.as = routed, .calculation = {.top = op.rows.numerator, .is_normalized = sizes_.normalizes_experts}});
    next.value = code_.add(OperatorKind::kDispatch, name, "b s h, b s e -> e (b s) h", {flow_.value, route_},
                           {.as = named(next)});
    flow_ = next;
  }

  void write(const Op& op, const Lookup& l, const std::string& name) {
    const bool is_first = flow_.width == 0;
    if (!is_first && l.width != flow_.width)
      return refuse(op, fmt::format("has entries of {} elements after rows of {}", l.width, flow_.width));
    const std::string entries = dim_of("v", l.entries, 1);
    const size_t table = code_.weight(name + ".weight", entries + " " + flow_.last_dim);
    const auto look_up = [&](const std::string& rows, const std::string& row_dims) {
      const size_t ids = code_.data(is_first ? "ids" : name + ".ids", row_dims);
      named_ = row_dims + " " + flow_.last_dim;
      return code_.add(OperatorKind::kLookup, name, fmt::format("{}, v h -> {} h", rows, rows), {ids, table},
                       {.as = named_});
    };
    if (is_first) {
      table_ = table;
      flow_ = {.value = look_up("b s", "b s"), .width = l.width};
      residual_ = flow_;
    } else if (op.rows == flow_.per_token) {
      residual_ = flow_;
      flow_.value = look_up("b s", flow_.row_dims);
    } else if (op.rows.numerator > 1) {
      if (!code_.program().find_dim("corner")) code_.dim("corner", op.rows.numerator);
      corners_ = look_up("b s c", "b s corner");
    } else {
      append_rows(op, l, name, look_up);
    }
  }

  /// Rows of a table stand beside those that come: that of a tile, or marks of a clip.
  template <typename LookUp>
  void append_rows(const Op& op, const Lookup& l, const std::string& name, const LookUp& look_up) {
    const int64_t added = op.rows.numerator == 0 ? l.entries : num_rows(op.rows);
    const int64_t rows = num_rows(flow_.per_token) + added;
    const size_t own = look_up("b j", "b " + dim_of("j", added, 1));
    Flow next = flow_;
    if (rows == rows_) next.per_token = {};
    next.row_dims = "b " + (rows == rows_ ? "s" : dim_of("t", rows, 1));
    next.value = code_.custom(
        name + ".rows", fmt::format("b p {}, b j {} -> b s {}", flow_.last, flow_.last, flow_.last), {flow_.value, own},
        {.as = named(next), .whole = {"p", "j", "s"}, .inside = {}, .linear = {{0, 1}}});
    flow_ = residual_ = next;
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
  size_t route_ = 0;      ///< weights of experts
  Attention heads_ = {};  ///< of the packed rows that flow
  std::optional<size_t> table_;
  std::optional<size_t> corners_;     ///< rows of neighbouring positions that wait for their sum
  std::map<int64_t, Flow> branches_;  ///< by layer
  std::string named_;
};

std::vector<const Block*> blocks_of(const Module& module) {
  std::vector<const Block*> blocks;
  for (int64_t place = 0; place < num_blocks(module); ++place) blocks.push_back(&block_at(module, place));
  return blocks;
}

}  // namespace

Result<Program> program_of(const Module& module, const ProgramSizes& sizes, std::string name) {
  BlockWriter writer(std::move(name), module.width, blocks_of(module), sizes);
  writer.write(module.entry, "", true);
  // Neighbours of one kind are a repeat.
  const std::vector<int64_t> branches = branch_layers(module);
  const auto is_branch = [&](size_t layer) {
    return std::find(branches.begin(), branches.end(), static_cast<int64_t>(layer)) != branches.end();
  };
  size_t begin = 0;
  while (begin < module.layers.size()) {
    size_t end = begin + 1;
    while (end < module.layers.size() && module.layers[end] == module.layers[begin] && !is_branch(end - 1)) ++end;
    const bool is_all = begin == 0 && end == module.layers.size();
    writer.repeat(module.distinct_layers[module.layers[begin]],
                  is_all ? "layers." : fmt::format("layers{}-{}.", begin, end - 1), static_cast<int64_t>(end - begin));
    if (is_branch(end - 1)) writer.branch_off(static_cast<int64_t>(end - 1));
    begin = end;
  }
  writer.write(module.exit, "", false);
  return writer.finish();
}

Result<Program> program_of_layers(const Module& module, size_t kind, const ProgramSizes& sizes, std::string name) {
  BlockWriter writer(std::move(name), module.width, blocks_of(module), sizes);
  writer.begin_with_rows();
  const int64_t count = std::count(module.layers.begin(), module.layers.end(), kind);
  writer.repeat(module.distinct_layers[kind], "", std::max<int64_t>(1, count));
  return writer.finish();
}

Result<Program> program_of_layer(const Module& module, size_t kind, size_t num_ops, const ProgramSizes& sizes,
                                 std::string name) {
  Block layer = module.distinct_layers[kind];
  layer.ops.resize(num_ops);
  BlockWriter writer(std::move(name), module.width, {&layer}, sizes);
  writer.begin_with_rows();
  writer.write(layer, "", false);
  return writer.finish();
}

}  // namespace weft
