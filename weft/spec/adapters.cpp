#include "weft/spec/adapters.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/pattern.h"
#include "weft/base/text.h"
#include "weft/program/adapter_ops.h"
#include "weft/program/name_weights.h"
#include "weft/spec/model_reader.h"
#include "weft/spec/model_size.h"

namespace weft {
namespace {

/// Of all rules together. Each is compared with the name of each weight of each layer.
constexpr int64_t kMostTargets = 1'000;

AdapterRule read_rule(Fields fields) {
  AdapterRule rule;
  rule.rank = fields.integer("rank", {1, kMostAdapterRank});
  rule.alpha = fields.number_or("alpha", static_cast<double>(rule.rank), {0, kMostAdapterAlpha});
  rule.dropout = fields.number_or("dropout", 0, {0, 0.999});
  if (const Json* targets = fields.raw("targets"); targets != nullptr && targets->is_string()) {
    rule.targets = {targets->get<std::string>()};
  } else {
    rule.targets = fields.texts_or_empty("targets");
  }
  if (rule.targets.empty())
    fields.complain("targets", "is missing, names or patterns of linear layers are needed",
                    "Give some: 'targets: [q_proj, v_proj]'.");
  fields.reject_unknown();
  return rule;
}

/// Whether a target is one expert's part of what `name` says of all, with "{}" in place of a number.
bool is_of_expert(const std::string& name, const std::string& target) {
  const size_t place = name.find("{}");
  if (place == std::string::npos) return false;
  const std::string_view before = std::string_view(name).substr(0, place),
                         after = std::string_view(name).substr(place + 2);
  if (target.size() <= before.size() + after.size() || !target.starts_with(before) || !target.ends_with(after))
    return false;
  const auto end = target.end() - static_cast<std::ptrdiff_t>(after.size());
  return std::all_of(target.begin() + static_cast<std::ptrdiff_t>(place), end,
                     [](char c) { return c >= '0' && c <= '9'; });
}

bool fits_target(const std::string& name, const std::string& target) {
  if (target.find_first_of("*?") != std::string::npos) return fits_pattern(name, target);
  if (name.ends_with(target)) {
    const size_t before = name.size() - target.size();
    if (before == 0 || name[before - 1] == '.') return true;
  }
  return is_of_expert(name, target);
}

/// Why an operator's weights cannot have adapters; nothing: they can.
std::optional<std::string> find_misfit(const Op& op) {
  const auto* matmul = std::get_if<Matmul>(&op.shape);
  if (matmul == nullptr) return "which is no linear layer";
  if (is_router(op)) return "which chooses experts";
  if (matmul->is_tied) return "which is the table of embeddings";
  if (!op.weights->row_dims.empty()) return "which is a convolution";
  return std::nullopt;
}

/// Adds adapters to one model.
class AdapterMaker {
 public:
  AdapterMaker(const std::vector<AdapterRule>& rules, std::string source) : rules_(rules), source_(std::move(source)) {
    for (const AdapterRule& rule : rules) used_.emplace_back(rule.targets.size(), false);
  }

  std::optional<Error> add(Module& module) {
    if (auto error = adapt(module, module.entry, module.paths.entry)) return error;
    std::map<std::pair<size_t, std::string>, size_t> made;
    std::vector<Block> distinct;
    for (size_t layer = 0; layer < module.layers.size(); ++layer) {
      const size_t kind = module.layers[layer];
      Block block = module.distinct_layers[kind];
      if (auto error = adapt(module, block, numbered(module.paths.layer, static_cast<int64_t>(layer)))) return error;
      const auto [place, is_new] = made.try_emplace({kind, signature_}, distinct.size());
      if (is_new) distinct.push_back(std::move(block));
      module.layers[layer] = place->second;
    }
    module.distinct_layers = std::move(distinct);
    return adapt(module, module.exit, module.paths.exit);
  }

  std::optional<Error> find_unused() const {
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      for (size_t target = 0; target < used_[rule].size(); ++target) {
        if (used_[rule][target]) continue;
        const std::string& text = rules_[rule].targets[target];
        const auto misfit = misfits_.find(text);
        return wrong(fmt::format("adapters[{}].targets[{}]", rule, target),
                     misfit != misfits_.end()
                         ? fmt::format("is {}, which fits {}", in_quotes(text), misfit->second)
                         : fmt::format("is {}, which fits the name of no linear layer", in_quotes(text)),
                     fmt::format("Name linear layers: {}.{}", joined_or(ends_),
                                 misfit == misfits_.end() ? did_you_mean(text, ends_) : ""));
      }
    }
    return std::nullopt;
  }

 private:
  Error wrong(std::string field, std::string problem, std::string advice) const {
    return {.source = source_, .field = std::move(field), .problem = std::move(problem), .advice = std::move(advice)};
  }

  /// The last rule that fits a layer's name; -1: none.
  int64_t rule_of(const std::string& name, const Op& op) {
    int64_t found = -1;
    const std::optional<std::string> misfit = find_misfit(op);
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      for (size_t target = 0; target < rules_[rule].targets.size(); ++target) {
        const std::string& text = rules_[rule].targets[target];
        if (!fits_target(name, text)) continue;
        if (misfit) {
          // Formatted once: a pattern can fit a weight of every layer.
          if (!misfits_.contains(text)) misfits_.emplace(text, fmt::format("{}, {}", name, *misfit));
          continue;
        }
        used_[rule][target] = true;
        found = static_cast<int64_t>(rule);
      }
    }
    return found;
  }

  void note_end(const std::string& name) {
    const std::string end = name.substr(name.rfind('.') + 1);
    if (std::find(ends_.begin(), ends_.end(), end) == ends_.end()) ends_.push_back(end);
  }

  std::optional<Error> adapt(const Module& module, Block& block, const std::string& path) {
    std::vector<Op> ops;
    signature_.clear();
    for (Op& op : block.ops) {
      std::vector<int64_t> rules;
      if (op.weights && has_weights(op)) {
        for (const std::string& name : op.weights->names) {
          if (!find_misfit(op)) note_end(name);
          rules.push_back(name.empty() ? -1 : rule_of(path + name, op));
          signature_ += fmt::format("{},", rules.back());
        }
      }
      int64_t chosen = -1;
      for (const int64_t rule : rules) {
        if (rule < 0) continue;
        if (chosen >= 0 && !(alike(chosen, rule)))
          return wrong(fmt::format("adapters[{}]", rule),
                       fmt::format("gives {}{} another rank, alpha or dropout than adapters[{}] gives the layers that "
                                   "lie in one matrix with it",
                                   path, op.weights->names.front(), chosen),
                       "Give them the same.");
        chosen = rule;
      }
      const Op base = op;
      ops.push_back(std::move(op));
      if (chosen >= 0) add_ops(base, rules, rules_[static_cast<size_t>(chosen)], ops);
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      // The rows that a product takes in are kept for its adapter's gradient; for its own, which it has none of, not.
      const bool is_kept = is_adapter(ops[i]) || (i + 1 < ops.size() && ops[i + 1].name.ends_with(kAdapterDown));
      if (std::holds_alternative<Matmul>(ops[i].shape) && !is_kept) ops[i].saved.whole = ops[i].saved.divided = 0;
    }
    block.ops = std::move(ops);
    const bool is_layer = &block != &module.entry && &block != &module.exit;
    return find_dropout(block, path, /*allows_dense=*/module.kind == ModuleKind::kLlm && is_layer);
  }

  /// Dropout where rows have no numbers to draw by; `allows_dense`: those of layers without experts have.
  std::optional<Error> find_dropout(const Block& block, const std::string& path, bool allows_dense) const {
    for (size_t i = 0; i + 3 < block.ops.size(); ++i) {
      if (!is_adapted(block, i)) continue;
      const bool is_of_experts = std::get<Matmul>(block.ops[i].shape).experts > 1;
      const double dropout = std::get<Pointwise>(block.ops[i + 3].shape).dropout;
      if (dropout == 0 || (allows_dense && !is_of_experts)) continue;
      return wrong("adapters",
                   fmt::format("have a dropout of {} on {}{}, where rows have no numbers to draw by", dropout, path,
                               is_of_experts ? block.ops[i].weights->names.front() : ""),
                   "Give encoders, the head and experts adapters of their own, without dropout.");
    }
    return std::nullopt;
  }

  bool alike(int64_t a, int64_t b) const {
    AdapterRule one = rules_[static_cast<size_t>(a)], other = rules_[static_cast<size_t>(b)];
    one.targets = other.targets = {};
    return one == other;
  }

  static std::shared_ptr<const OpWeights> named(const Op& base, const std::vector<int64_t>& rules,
                                                std::string_view ending, bool keeps_places) {
    auto weights = std::make_shared<OpWeights>();
    for (size_t i = 0; i < rules.size(); ++i) {
      if (rules[i] >= 0) {
        weights->names.push_back(base.weights->names[i] + std::string(ending));
      } else if (keeps_places) {
        weights->names.emplace_back();
      }
    }
    return weights;
  }

  static void add_ops(const Op& base, const std::vector<int64_t>& rules, const AdapterRule& rule,
                      std::vector<Op>& ops) {
    const auto& product = std::get<Matmul>(base.shape);
    const bool is_cut = base.split() != TensorSplit::kWhole, is_by_row = base.split() == TensorSplit::kRow;
    const int64_t parts = std::count_if(rules.begin(), rules.end(), [](int64_t each) { return each >= 0; });
    Op down = base, up = base, sum = base;
    down.name += kAdapterDown;
    up.name += kAdapterUp;
    sum.name += kAdapterSum;
    for (Op* op : {&down, &up, &sum}) op->branches_from = -1;
    Matmul narrow = product;
    narrow.out = parts * rule.rank;
    narrow.bias_elements = 0;
    narrow.packed = 1;
    if (!is_by_row) narrow.head_dim = narrow.heads = narrow.kv_heads = 0;
    down.shape = narrow;
    down.out = Features::kWidth;
    down.saved = {};
    down.has_whole_rows = base.has_whole_rows || is_cut;
    down.weights = named(base, rules, kAdapterDownName, /*keeps_places=*/false);
    Matmul wide = product;
    wide.in = rule.rank;
    wide.bias_elements = 0;
    if (is_by_row) wide.head_dim = wide.heads = wide.kv_heads = 0;
    up.shape = wide;
    up.in = Features::kWidth;
    up.saved = {.whole = narrow.out};
    up.has_whole_rows = base.has_whole_rows || is_cut;
    up.weights = named(base, rules, kAdapterUpName, /*keeps_places=*/true);
    sum.shape = Pointwise{.elements_in = 2 * product.out,
                          .elements_out = product.out,
                          .is_sum = true,
                          .dropout = rule.dropout,
                          .fresh_scale = rule.alpha / static_cast<double>(rule.rank)};
    sum.in = base.out;
    sum.saved = {};
    sum.has_whole_rows = base.has_whole_rows || is_cut;
    sum.weights = nullptr;
    ops.push_back(std::move(down));
    ops.push_back(std::move(up));
    ops.push_back(std::move(sum));
  }

  const std::vector<AdapterRule>& rules_;
  std::string source_;
  std::vector<std::vector<bool>> used_;         ///< by rule and target
  std::map<std::string, std::string> misfits_;  ///< by target: a weight that it fits, and why that can have none
  std::vector<std::string> ends_;               ///< last words of names of linear layers
  std::string signature_;                       ///< of the block that was looked at last
};

}  // namespace

Result<std::vector<AdapterRule>> read_adapters(const Document& document) {
  Findings findings(document.source);
  Fields fields(document, findings);
  std::vector<AdapterRule> rules;
  if (fields.has(kAdaptersKey)) {
    for (Fields& each : fields.objects(kAdaptersKey)) rules.push_back(read_rule(each));
    fields.reject_unknown();
    if (rules.empty() && !findings.first()) fields.complain(kAdaptersKey, "is empty", "Give at least one.");
  } else {
    rules.push_back(read_rule(fields));
  }
  int64_t num_targets = 0;
  for (const AdapterRule& rule : rules) num_targets += std::ssize(rule.targets);
  if (num_targets > kMostTargets) {
    fields.complain(fields.has(kAdaptersKey) ? kAdaptersKey : "targets",
                    fmt::format("name {} targets in all, at most {} are allowed", with_commas(num_targets),
                                with_commas(kMostTargets)),
                    "Name many layers by one pattern: '*_proj'.");
  }
  if (findings.first()) return *findings.first();
  return rules;
}

Result<std::vector<AdapterRule>> read_adapters_file(const std::filesystem::path& path) {
  WEFT_TRY(const Document document, read_document(path));
  return read_adapters(document);
}

Json to_json(const std::vector<AdapterRule>& rules) {
  Json list = Json::array();
  for (const AdapterRule& rule : rules)
    list.push_back({{"rank", rule.rank}, {"alpha", rule.alpha}, {"dropout", rule.dropout}, {"targets", rule.targets}});
  return list;
}

Result<Model> with_adapters(const Model& model, const std::vector<AdapterRule>& rules, const std::string& source) {
  if (has_adapters(model)) {
    return Error{.source = source,
                 .field = kAdaptersKey,
                 .problem = fmt::format("are to be added to {}, which has some already", model.name),
                 .advice = "Add them to the model itself."};
  }
  Model adapted = model;
  AdapterMaker maker(rules, source);
  for (Module& module : adapted.modules) {
    if (auto error = maker.add(module)) return *std::move(error);
  }
  if (auto error = maker.find_unused()) return *std::move(error);
  if (auto error = find_too_large(adapted.modules, source, kAdaptersKey)) return *std::move(error);
  adapted.config[kAdaptersKey] = to_json(rules);
  return adapted;
}

bool has_adapters(const Model& model) {
  if (!model.config.is_object()) return false;
  const auto found = model.config.find(kAdaptersKey);
  return found != model.config.end() && !found->is_null();
}

std::vector<AdapterRule> adapters_of(const Model& model) {
  if (!has_adapters(model)) return {};
  const auto rules = read_adapters({.source = model.name, .root = {{kAdaptersKey, model.config[kAdaptersKey]}}});
  return rules ? *rules : std::vector<AdapterRule>();
}

int64_t num_adapter_parameters(const Model& model) {
  int64_t sum = 0;
  const auto add = [&](const Block& block) {
    for (const Op& op : block.ops) {
      if (is_adapter(op)) sum += num_parameters(op);
    }
  };
  for (const Module& module : model.modules) {
    for (int64_t place = 0; place < num_blocks(module); ++place) add(block_at(module, place));
  }
  return sum;
}

Result<Model> without_adapters(const Model& model) {
  if (!has_adapters(model)) return model;
  Document config{.source = model.name, .root = model.config};
  config.root.erase(kAdaptersKey);
  return read_model(config, model.name);
}

}  // namespace weft
