#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

/// A strategy of some operators as two sums, and the tree of choices that it is made of.
struct Label {
  double ms = 0;
  double bytes = 0;
  uint32_t tree = 0;
};
using LabelSet = std::vector<Label>;

/// Choices behind labels. A tree is one choice or two trees together; 0 is the empty one.
class LabelTrees {
 public:
  struct Chosen {
    size_t variable = 0;
    size_t choice = 0;
    size_t state = 0;
  };

  uint32_t leaf(Chosen chosen);
  uint32_t join(uint32_t left, uint32_t right);
  /// A layer behind those of `before`.
  uint32_t layer(uint32_t before, uint32_t own);
  /// The choices of a tree without layers.
  std::vector<Chosen> choices(uint32_t tree) const;
  /// The trees of layers, the first first.
  std::vector<uint32_t> layers(uint32_t tree) const;

 private:
  struct Node {
    uint32_t left = 0, right = 0;
    Chosen chosen;
    bool is_leaf = false;
  };
  std::vector<Node> nodes_{1};
};

/// Which labels need not be kept: of two the one that is worse in both; what takes more than `most_bytes`; and what is
/// more than `slack_ms` dearer than the cheapest, where a byte costs `byte_ms`.
struct LabelLimits {
  double byte_ms = 0;
  double slack_ms = 0;
  double most_bytes = 0;
  double most_work = 0;  ///< sums of two labels after which it is given up
};

void keep_useful(LabelSet& labels, const LabelLimits& limits);

/// Takes variables out as Elimination does, with Pareto points of time and bytes instead of one cost.
class LabelElimination {
 public:
  LabelElimination(std::vector<size_t> sizes, const LabelLimits& limits, LabelTrees& trees)
      : sizes_(std::move(sizes)), limits_(limits), trees_(trees) {}

  /// Labels by the choice of one variable.
  void add(size_t variable, std::vector<LabelSet> sets) {
    tables_.push_back({{variable}, nullptr, nullptr, std::move(sets)});
  }
  /// One point for choices of several variables, the first one's running slowest. Both must live as long as this.
  void add(std::vector<size_t> variables, const std::vector<double>& ms, const std::vector<double>& bytes) {
    tables_.push_back({std::move(variables), &ms, &bytes, {}});
  }
  /// Takes out every variable but these. False where that is too much work.
  bool run(const std::vector<size_t>& kept);
  /// Of the kept variables' choices, in the order in which they were given.
  const std::vector<LabelSet>& remaining() const { return remaining_; }
  double work() const { return work_; }

 private:
  struct Table {
    std::vector<size_t> variables;
    const std::vector<double>* ms = nullptr;  ///< points
    const std::vector<double>* bytes = nullptr;
    std::vector<LabelSet> sets;
  };

  static constexpr double kMostEntries = 4e5;

  double entries(const std::vector<size_t>& variables) const;
  std::vector<size_t> neighbours_of(size_t variable) const;
  /// All tables of these together, by the choices of `kept`, the best over those of `variable` where it is one.
  bool merge(const std::vector<Table>& own, const std::vector<size_t>& kept, const size_t* variable,
             std::vector<LabelSet>& merged);
  bool sum(const std::vector<Table>& own, const std::vector<size_t>& choices, LabelSet& labels);

  std::vector<size_t> sizes_;
  LabelLimits limits_;
  LabelTrees& trees_;
  std::vector<Table> tables_;
  std::vector<LabelSet> remaining_;
  double work_ = 0;
};

/// Every sum of one of each, as far as it is useful.
LabelSet sums_of(const LabelSet& a, const LabelSet& b, const LabelLimits& limits, LabelTrees& trees);

}  // namespace weft
