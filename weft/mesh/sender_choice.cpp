#include "weft/mesh/sender_choice.h"

#include <algorithm>
#include <queue>
#include <span>
#include <tuple>
#include <unordered_map>

namespace weft {
namespace {

/// A rank that has the block, with what it was given to send so far.
struct Holder {
  int64_t load = 0;
  int64_t turn = 0;  ///< decides between equal loads
  int64_t rank = 0;

  bool operator>(const Holder& other) const { return std::tie(load, turn) > std::tie(other.load, other.turn); }
};

using LeastLoaded = std::priority_queue<Holder, std::vector<Holder>, std::greater<>>;

void assign(Request& request, LeastLoaded& holders, std::vector<Message>& messages) {
  Holder holder = holders.top();
  holders.pop();
  holder.load += num_elements(request.box);
  messages.push_back({holder.rank, request.rank, std::move(request.box)});
  holders.push(holder);
}

/// The requests for one block.
void serve(std::span<Request> requests, std::vector<Holder> holders, const Topology* topology,
           std::vector<Message>& messages) {
  std::vector<Request*> rest;
  if (topology == nullptr) {
    for (Request& request : requests) rest.push_back(&request);
  } else {
    std::unordered_map<int64_t, LeastLoaded> by_node;
    for (const Holder& holder : holders) by_node[topology->node_of(holder.rank)].push(holder);
    for (Request& request : requests) {
      const auto near = by_node.find(topology->node_of(request.rank));
      if (near == by_node.end()) {
        rest.push_back(&request);
      } else {
        assign(request, near->second, messages);
      }
    }
    holders.clear();
    for (auto& [node, queue] : by_node) {
      for (; !queue.empty(); queue.pop()) holders.push_back(queue.top());
    }
  }
  LeastLoaded queue(std::greater<>(), std::move(holders));
  for (Request* request : rest) assign(*request, queue, messages);
}

}  // namespace

std::vector<Message> choose_senders(std::vector<Request> requests, const BlockIndex& blocks, const Mesh& mesh,
                                    const Topology* topology) {
  std::stable_sort(requests.begin(), requests.end(),
                   [](const Request& a, const Request& b) { return a.block < b.block; });
  std::vector<Message> messages;
  messages.reserve(requests.size());
  int64_t turn = 0;
  for (size_t begin = 0, end = 0; begin < requests.size(); begin = end, ++turn) {
    const int64_t block = requests[begin].block;
    while (end < requests.size() && requests[end].block == block) ++end;
    const std::vector<int64_t> positions = blocks.holders(block);
    const auto num_holders = static_cast<int64_t>(positions.size());
    std::vector<Holder> holders;
    for (int64_t i = 0; i < num_holders; ++i) {
      holders.push_back({.load = 0,
                         .turn = (i - turn % num_holders + num_holders) % num_holders,
                         .rank = mesh.rank_at(positions[static_cast<size_t>(i)])});
    }
    serve(std::span(requests).subspan(begin, end - begin), std::move(holders), topology, messages);
  }
  std::sort(messages.begin(), messages.end(), [](const Message& a, const Message& b) {
    return std::tie(a.from_rank, a.to_rank) < std::tie(b.from_rank, b.to_rank);
  });
  return messages;
}

}  // namespace weft
