#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "weft/mesh/dim_cuts.h"
#include "weft/mesh/step.h"

namespace weft {

/// Dijkstra's search over layouts for the cheapest sequence of steps between two of them.
///
/// The two replicated states differ only in the gradient, so the search knows one; an axis that is replicated at both
/// ends and differs is `stale` until any step has changed it. An axis of size 1 whose states differ is stale, too.
class TransitionSearch {
 public:
  TransitionSearch(const Layout& from, const Layout& to);

  std::vector<Step> run();

 private:
  /// A layout as the search sees it. An axis that is neither partial nor cuts a dim is replicated.
  struct Node {
    std::array<uint16_t, Layout::kMostDims> cuts{};  ///< per dim
    AxisMask partial = 0;
    AxisMask stale = 0;

    bool operator==(const Node&) const = default;
  };
  struct NodeHash {
    size_t operator()(const Node& node) const;
  };
  struct Price {
    int64_t received = 0;
    int64_t num_steps = 0;

    bool operator==(const Price&) const = default;
    bool operator<(const Price& other) const {
      return received != other.received ? received < other.received : num_steps < other.num_steps;
    }
  };
  struct Move {
    StepKind kind = StepKind::kIdentity;
    AxisMask axes = 0;
    size_t dim = 0;
    size_t to_dim = 0;
    int64_t received = 0;
  };
  struct Visit {
    Price price;
    Node before;
    Move move;
    bool is_done = false;
  };
  struct Entry {
    Price price;
    uint64_t sequence = 0;  ///< makes the order, and so the result, the same every time
    Node node;

    bool operator>(const Entry& other) const {
      return price == other.price ? sequence > other.sequence : other.price < price;
    }
  };

  Node node_of(const Layout& layout);
  Layout layout_of(const Node& node) const;
  AxisState state_of(const Node& node, size_t axis) const;
  AxisMask replicated(const Node& node) const;
  int64_t longest_product(const Node& node, size_t skipped, size_t skipped_too) const;

  void expand(const Node& node);
  void cut_dim(const Node& node, StepKind kind, AxisMask axes, size_t dim);
  void join_dim(const Node& node, size_t dim);
  void move_cut(const Node& node, AxisMask axes, size_t dim, size_t coarse);
  void change_parts(const Node& node, AxisMask axes, size_t dim, size_t coarse);
  void reach(Node next, const Move& move);

  const Layout& from_;
  const Layout& to_;
  std::vector<DimCuts> dims_;
  AxisMask active_ = 0;  ///< axes of more than one rank
  std::unordered_map<Node, Visit, NodeHash> visits_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  Node current_;
  Price current_price_;
  uint64_t sequence_ = 0;
};

}  // namespace weft
