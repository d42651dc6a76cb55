#include "weft/shard/label_elimination.h"

#include <algorithm>
#include <limits>

namespace weft {

uint32_t LabelTrees::leaf(Chosen chosen) {
  nodes_.push_back({.chosen = chosen, .is_leaf = true});
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t LabelTrees::join(uint32_t left, uint32_t right) {
  if (left == 0 || right == 0) return left + right;
  nodes_.push_back({.left = left, .right = right, .chosen = {}});
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t LabelTrees::layer(uint32_t before, uint32_t own) {
  nodes_.push_back({.left = before, .right = own, .chosen = {}});
  return static_cast<uint32_t>(nodes_.size() - 1);
}

std::vector<LabelTrees::Chosen> LabelTrees::choices(uint32_t tree) const {
  std::vector<Chosen> found;
  std::vector<uint32_t> left{tree};
  while (!left.empty()) {
    const uint32_t next = left.back();
    left.pop_back();
    if (next == 0) continue;
    if (nodes_[next].is_leaf) {
      found.push_back(nodes_[next].chosen);
    } else {
      left.push_back(nodes_[next].left);
      left.push_back(nodes_[next].right);
    }
  }
  return found;
}

std::vector<uint32_t> LabelTrees::layers(uint32_t tree) const {
  std::vector<uint32_t> found;
  for (; tree != 0; tree = nodes_[tree].left) found.push_back(nodes_[tree].right);
  std::reverse(found.begin(), found.end());
  return found;
}

void keep_useful(LabelSet& labels, const LabelLimits& limits) {
  if (labels.empty()) return;
  std::sort(labels.begin(), labels.end(),
            [](const Label& a, const Label& b) { return a.ms != b.ms ? a.ms < b.ms : a.bytes < b.bytes; });
  double cheapest = std::numeric_limits<double>::infinity();
  for (const Label& label : labels) cheapest = std::min(cheapest, label.ms + limits.byte_ms * label.bytes);
  LabelSet kept;
  for (const Label& label : labels) {
    if (!kept.empty() && label.bytes >= kept.back().bytes) continue;
    if (label.bytes > limits.most_bytes) continue;
    if (label.ms + limits.byte_ms * label.bytes > cheapest + limits.slack_ms) continue;
    kept.push_back(label);
  }
  labels = std::move(kept);
}

LabelSet sums_of(const LabelSet& a, const LabelSet& b, const LabelLimits& limits, LabelTrees& trees) {
  LabelSet made;
  made.reserve(a.size() * b.size());
  // Trees are made for what is kept: until then the pair's number stands there.
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b.size(); ++j)
      made.push_back({a[i].ms + b[j].ms, a[i].bytes + b[j].bytes, static_cast<uint32_t>(i * b.size() + j)});
  }
  keep_useful(made, limits);
  for (Label& label : made) label.tree = trees.join(a[label.tree / b.size()].tree, b[label.tree % b.size()].tree);
  return made;
}

double LabelElimination::entries(const std::vector<size_t>& variables) const {
  double product = 1;
  for (const size_t variable : variables) product *= static_cast<double>(sizes_[variable]);
  return product;
}

std::vector<size_t> LabelElimination::neighbours_of(size_t variable) const {
  std::vector<size_t> neighbours;
  for (const Table& table : tables_) {
    if (std::find(table.variables.begin(), table.variables.end(), variable) == table.variables.end()) continue;
    for (const size_t other : table.variables) {
      if (other != variable && std::find(neighbours.begin(), neighbours.end(), other) == neighbours.end())
        neighbours.push_back(other);
    }
  }
  return neighbours;
}

bool LabelElimination::sum(const std::vector<Table>& own, const std::vector<size_t>& choices, LabelSet& labels) {
  for (const Table& table : own) {
    size_t place = 0;
    for (const size_t variable : table.variables) place = place * sizes_[variable] + choices[variable];
    if (table.ms != nullptr) {
      if ((*table.ms)[place] == std::numeric_limits<double>::infinity()) labels.clear();
      for (Label& label : labels) {
        label.ms += (*table.ms)[place];
        label.bytes += (*table.bytes)[place];
      }
      work_ += 1;
    } else {
      work_ += static_cast<double>(labels.size() * table.sets[place].size()) + 1;
      if (work_ > limits_.most_work) return false;
      labels = sums_of(labels, table.sets[place], limits_, trees_);
    }
    if (labels.empty()) break;
  }
  return work_ <= limits_.most_work;
}

bool LabelElimination::merge(const std::vector<Table>& own, const std::vector<size_t>& kept, const size_t* variable,
                             std::vector<LabelSet>& merged) {
  if (entries(kept) > kMostEntries) return false;
  std::vector<size_t> choices(sizes_.size(), 0);
  const auto count = static_cast<size_t>(entries(kept));
  merged.clear();
  merged.reserve(count);
  for (size_t entry = 0; entry < count; ++entry) {
    size_t left = entry;
    for (size_t i = kept.size(); i-- > 0;) {
      choices[kept[i]] = left % sizes_[kept[i]];
      left /= sizes_[kept[i]];
    }
    LabelSet all;
    for (size_t choice = 0; choice < (variable != nullptr ? sizes_[*variable] : 1); ++choice) {
      if (variable != nullptr) choices[*variable] = choice;
      LabelSet labels{Label{}};
      if (!sum(own, choices, labels)) return false;
      all.insert(all.end(), labels.begin(), labels.end());
    }
    keep_useful(all, limits_);
    merged.push_back(std::move(all));
  }
  return true;
}

bool LabelElimination::run(const std::vector<size_t>& kept) {
  std::vector<size_t> left;
  for (size_t variable = 0; variable < sizes_.size(); ++variable) {
    if (std::find(kept.begin(), kept.end(), variable) == kept.end()) left.push_back(variable);
  }
  while (!left.empty()) {
    size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    std::vector<size_t> best_neighbours;
    for (size_t i = 0; i < left.size(); ++i) {
      std::vector<size_t> neighbours = neighbours_of(left[i]);
      const double price = entries(neighbours) * static_cast<double>(sizes_[left[i]]);
      if (price >= least) continue;
      least = price;
      best = i;
      best_neighbours = std::move(neighbours);
    }
    if (work_ + least > limits_.most_work) return false;
    const size_t variable = left[best];
    std::vector<Table> own, others;
    for (Table& table : tables_) {
      const bool is_own = std::find(table.variables.begin(), table.variables.end(), variable) != table.variables.end();
      (is_own ? own : others).push_back(std::move(table));
    }
    Table made{.variables = best_neighbours, .ms = nullptr, .bytes = nullptr, .sets = {}};
    if (!merge(own, best_neighbours, &variable, made.sets)) return false;
    tables_ = std::move(others);
    tables_.push_back(std::move(made));
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
  }
  return merge(tables_, kept, nullptr, remaining_);
}

}  // namespace weft
