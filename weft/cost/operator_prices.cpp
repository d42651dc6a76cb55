#include "weft/cost/operator_prices.h"

#include <algorithm>
#include <cmath>

#include "weft/base/as_double.h"
#include "weft/cost/collective_time.h"
#include "weft/program/operator_rules.h"

namespace weft {
namespace {

constexpr double kStatisticBytes = 4;

/// Lengths of an operator's tensors on the busiest rank.
class LocalSizes {
 public:
  LocalSizes(const Program& program, const Operator& op, const Choices& choices, const AxisGrid& grid)
      : program_(program), op_(op), parts_(op.rule.dims.size(), 1) {
    for (size_t axis = 0; axis < choices.size(); ++axis) {
      if (choices[axis].kind == Choice::Kind::kCut) parts_[choices[axis].index] *= grid.size(axis);
    }
  }

  int64_t parts(size_t rule_dim) const { return parts_[rule_dim]; }
  double length(const RuleTerm& term, size_t value, size_t place) const {
    int64_t parts = 1;
    for (const size_t dim : term[place]) parts *= parts_[dim];
    return largest_part(program_.dims[program_.values[value].dims[place]], parts);
  }
  double elements(const RuleTerm& term, size_t value) const {
    double product = 1;
    for (size_t place = 0; place < term.size(); ++place) product *= length(term, value, place);
    return product;
  }
  double operand(size_t i) const { return elements(op_.rule.operands[i], op_.operands[i]); }
  double result() const { return elements(op_.rule.result, op_.result); }
  /// Of the last dim of the first operand.
  double width() const {
    const RuleTerm& term = op_.rule.operands[0];
    return term.empty() ? 1 : length(term, op_.operands[0], term.size() - 1);
  }
  double rows() const { return operand(0) / std::max(1.0, width()); }

 private:
  const Program& program_;
  const Operator& op_;
  std::vector<int64_t> parts_;
};

/// The operator as a rank runs it: a matrix product, or whatever the kind is made of.
class OperatorPricer {
 public:
  OperatorPricer(const Program& program, const Operator& op, const Choices& choices, const ShardSetting& setting,
                 const Segments* segments)
      : program_(program),
        op_(op),
        choices_(choices),
        setting_(setting),
        segments_(segments),
        sizes_(program, op, choices, setting.links.grid()) {}

  OperatorPrice run() const {
    OperatorPrice price;
    // What was measured of attention had all rows.
    const bool is_shared_out = op_.kind == OperatorKind::kAttention && setting_.context.cp > 1;
    if (setting_.measured != nullptr && setting_.measured->precision() == setting_.precision && !is_shared_out) {
      if (const auto found = setting_.measured->find(part_of(program_, op_, choices_, setting_.links.grid()))) {
        price.time = found->time;
        price.is_measured = true;
        price.is_scaled = found->is_scaled;
        return price;
      }
    }
    add_compute(price);
    add_inside(price);
    return price;
  }

 private:
  static int64_t whole(double size) { return static_cast<int64_t>(std::llround(size)); }

  void add_compute(OperatorPrice& price) const {
    if (op_.is_fused || op_.kind == OperatorKind::kReshape) return;
    BlockSetting block;
    block.precision = setting_.precision;
    block.attention = setting_.attention;
    block.even_experts = true;
    Op local{.name = op_.name, .shape = Pointwise{}, .rows = {}, .saved = {}};
    Segments segments;
    double tokens = 1;
    switch (op_.kind) {
      case OperatorKind::kEinsum:
        if (op_.operands.size() == 2) {
          tokens = as_matmul(local);
        } else {
          local.shape = streamed(false);
        }
        break;
      case OperatorKind::kAttention: {
        const RuleTerm& term = op_.rule.operands[0];
        const size_t rows_place = term.size() - 2;
        const size_t rows_dim = term[rows_place][0];
        local.shape = local_attention();
        block.cp = sizes_.parts(rows_dim) * setting_.context.cp;
        block.cp_ulysses = setting_.context.ulysses;
        const double length = as_double(program_.dims[program_.values[op_.operands[0]].dims[rows_place]].length);
        const double count = sizes_.rows() / std::max(1.0, sizes_.length(term, op_.operands[0], rows_place));
        segments = segments_ != nullptr ? *segments_ : Segments{{length, count}};
        tokens = segments_ != nullptr ? num_tokens(segments) : length * count;
        break;
      }
      case OperatorKind::kNorm:
        local.shape = Norm{.width = whole(sizes_.width())};
        tokens = sizes_.rows();
        break;
      case OperatorKind::kLookup:
        local.shape = Lookup{.width = whole(sizes_.result() / std::max(1.0, sizes_.operand(0)))};
        tokens = sizes_.operand(0);
        break;
      case OperatorKind::kCrossEntropy:
        local.shape = CrossEntropy{.classes = whole(sizes_.width())};
        tokens = sizes_.rows();
        break;
      case OperatorKind::kAdd:
        local.shape = streamed(true);
        break;
      default:
        local.shape = streamed(false);
    }
    price.time = analytic_time(local, block, setting_.rates(), segments, tokens);
  }

  /// With the heads of the busiest rank.
  Attention local_attention() const {
    Attention attention = op_.attention;
    const int64_t groups = program_.dims[program_.values[op_.operands[0]].dims.back()].num_units();
    const int64_t parts = sizes_.parts(op_.rule.operands[0].back()[0]);
    const int64_t local_groups = (groups + parts - 1) / parts;
    attention.heads = std::max<int64_t>(1, attention.heads * local_groups / std::max<int64_t>(1, groups));
    attention.kv_heads = std::max<int64_t>(1, attention.kv_heads * local_groups / std::max<int64_t>(1, groups));
    return attention;
  }

  Pointwise streamed(bool is_sum) const {
    double in = 0;
    for (size_t i = 0; i < op_.operands.size(); ++i) in += sizes_.operand(i);
    return {.elements_in = whole(in), .elements_out = whole(sizes_.result()), .is_sum = is_sum};
  }

  /// Rows that only the first factor has, columns that only the second has, copies that both and the result have.
  double as_matmul(Op& local) const {
    double rows = 1, in = 1, out = 1, copies = 1;
    for (size_t dim = 0; dim < op_.rule.dims.size(); ++dim) {
      const bool first = has_dim(op_.rule.operands[0], dim), second = has_dim(op_.rule.operands[1], dim);
      const double length = length_of(dim);
      if (!has_dim(op_.rule.result, dim)) {
        in *= length;
      } else if (first && second) {
        copies *= length;
      } else {
        (first ? rows : out) *= length;
      }
    }
    local.shape = Matmul{.in = std::max<int64_t>(1, whole(in)),
                         .out = std::max<int64_t>(1, whole(out)),
                         .experts = std::max<int64_t>(1, whole(copies))};
    return rows * copies;
  }

  double length_of(size_t dim) const {
    for (size_t i = 0; i <= op_.operands.size(); ++i) {
      const bool is_result = i == op_.operands.size();
      const RuleTerm& term = is_result ? op_.rule.result : op_.rule.operands[i];
      for (size_t place = 0; place < term.size(); ++place) {
        if (term[place].size() == 1 && term[place][0] == dim)
          return sizes_.length(term, is_result ? op_.result : op_.operands[i], place);
      }
    }
    return 1;
  }

  /// With ranks that have other rows of the same sequences.
  void add_context(OperatorPrice& price) const {
    const ContextSharing& context = setting_.context;
    if (op_.kind != OperatorKind::kAttention || context.cp == 1) return;
    const ContextTime time(context, setting_.rates(), setting_.cluster.efficiency.overlap, sizes_.rows(),
                           num_bytes(setting_.precision));
    const std::vector<BlockExchange> there = attention_exchanges(0, context.ulysses, context.ring());
    for (const auto& list : {there, backward_exchanges(there, {{true, true, true, true}}, BlockRecompute::kKeep)}) {
      for (const BlockExchange& each : list)
        price.inside_ms += time.exchange_ms(each, local_attention(), {}, price.time);
    }
  }

  void add_inside(OperatorPrice& price) const {
    add_context(price);
    unsigned axes = 0;
    for (size_t axis = 0; axis < choices_.size(); ++axis) {
      if (is_cut_inside(op_.rule, choices_[axis])) axes |= 1u << axis;
    }
    if (axes == 0) return;
    const InsideTraffic traffic = inside_traffic(op_.kind);
    const GroupLink& link = setting_.links.along(axes);
    if (traffic.form == InsideTraffic::Form::kSums) {
      const double passes = traffic.forward_passes + traffic.backward_passes;
      price.inside_ms += passes * all_reduce_ms(link, sizes_.rows() * kStatisticBytes);
      return;
    }
    // Keys and values are what the operand has more than the result.
    const double bytes = std::max(0.0, sizes_.operand(0) - sizes_.result()) * num_bytes(setting_.precision);
    const double pass_ms = as_double(setting_.links.num_ranks(axes) - 1) * ring_step_ms(link, bytes);
    const double overlap = setting_.cluster.efficiency.overlap;
    price.inside_ms += std::max(0.0, traffic.forward_passes * pass_ms - overlap * price.forward_ms()) +
                       std::max(0.0, traffic.backward_passes * pass_ms - overlap * price.backward_ms());
  }

  const Program& program_;
  const Operator& op_;
  const Choices& choices_;
  const ShardSetting& setting_;
  const Segments* segments_;
  LocalSizes sizes_;
};

/// What of a weight's communication is once a step, and what with every microbatch.
class WeightPricer {
 public:
  WeightPricer(double elements, const std::vector<AxisState>& used, const OperatorPrice& price,
               const ShardSetting& setting)
      : elements_(elements), used_(used), price_(price), setting_(setting) {}

  WeightPrice run(const ZeroStages& stages) const {
    const AxisLinks& links = setting_.links;
    const double value_bytes = num_bytes(setting_.precision), sum_bytes = 4,
                 overlap = setting_.cluster.efficiency.overlap;
    const bool has_master = setting_.precision != Precision::kFp32 && setting_.precision != Precision::kFp64;
    unsigned released = 0, scattered = 0, divided = 0, summed = 0;
    for (size_t axis = 0; axis < used_.size(); ++axis) {
      const unsigned bit = 1u << axis;
      if (used_[axis].is_shard()) continue;
      if (stages[axis] >= 1) divided |= bit;
      if (stages[axis] >= 2) scattered |= bit;
      if (stages[axis] >= 3) released |= bit;
      if (used_[axis].spread == Spread::kReplicatedPartialGrad) summed |= bit;
    }
    WeightPrice price{.stages = stages};
    const auto ranks = [&](unsigned mask) { return as_double(links.num_ranks(mask)); };
    const double m = as_double(setting_.microbatches);
    const double gather_ms = all_gather_ms(links.along(released), elements_ * value_bytes);
    // Summands are scattered with every microbatch, or at the end of the step, or summed whole.
    const double scatter_ms = reduce_scatter_ms(links.along(summed & scattered), elements_ * sum_bytes);
    double left = elements_ / ranks(scattered);
    const double last_scatter_ms = reduce_scatter_ms(links.along(summed & divided & ~scattered), left * sum_bytes);
    left /= ranks(divided & ~scattered);
    const double reduce_ms = all_reduce_ms(links.along(summed & ~divided), left * sum_bytes) + last_scatter_ms;
    const double return_ms = all_gather_ms(links.along(divided & ~released), elements_ / ranks(released) * value_bytes);
    price.communication_ms = m * (2 * gather_ms + scatter_ms) + reduce_ms + return_ms;
    const auto exposed = [&](double ms, double behind_ms) { return std::max(0.0, ms - overlap * behind_ms); };
    price.exposed_ms =
        m * (exposed(gather_ms, price_.forward_ms()) + exposed(gather_ms + scatter_ms, price_.backward_ms())) +
        exposed(reduce_ms, price_.backward_ms()) + exposed(return_ms, price_.forward_ms());
    const double owned = elements_ / ranks(divided);
    const double update_bytes = has_master ? 2 * sum_bytes + 6 * sum_bytes + value_bytes : 8 * value_bytes;
    price.update_ms = owned * update_bytes /
                      (setting_.cluster.device.memory_bandwidth_gb_per_s * setting_.cluster.efficiency.update * 1e6);
    price.state_bytes = elements_ / ranks(released) * value_bytes + elements_ / ranks(scattered) * sum_bytes +
                        owned * (has_master ? 3 * sum_bytes : 2 * value_bytes);
    return price;
  }

 private:
  double elements_;
  const std::vector<AxisState>& used_;
  const OperatorPrice& price_;
  const ShardSetting& setting_;
};

}  // namespace

OperatorPrice price_operator(const Program& program, const Operator& op, const Choices& choices,
                             const ShardSetting& setting, const Segments* segments) {
  return OperatorPricer(program, op, choices, setting, segments).run();
}

std::vector<WeightPrice> price_weight(const std::vector<ProgramDim>& dims, const std::vector<AxisState>& used,
                                      const OperatorPrice& price, const std::vector<ZeroRange>& stages,
                                      const ShardSetting& setting) {
  double elements = 1;
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    int64_t parts = 1;
    for (size_t axis = 0; axis < used.size(); ++axis) {
      if (used[axis] == AxisState::shard(dim)) parts *= setting.links.grid().size(axis);
    }
    elements *= largest_part(dims[dim], parts);
  }
  const WeightPricer pricer(elements, used, price, setting);
  std::vector<ZeroStages> rows{{}};
  for (size_t axis = 0; axis < used.size(); ++axis) {
    const bool has_stages = !used[axis].is_shard() && setting.links.grid().size(axis) > 1;
    std::vector<ZeroStages> longer;
    for (const ZeroStages& row : rows) {
      for (int64_t stage = has_stages ? stages[axis].least : 0; stage <= (has_stages ? stages[axis].most : 0);
           ++stage) {
        longer.push_back(row);
        longer.back().push_back(stage);
      }
    }
    rows = std::move(longer);
  }
  std::vector<WeightPrice> prices;
  for (const ZeroStages& row : rows) prices.push_back(pricer.run(row));
  return prices;
}

}  // namespace weft
