#include "weft/measure/measure_links.h"

#include <algorithm>
#include <functional>
#include <map>
#include <unistd.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/base/units.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

struct LinkGroup {
  std::vector<int64_t> ranks;
  bool is_between_nodes = false;
  int64_t ranks_per_node = 1;
};

/// By rank, a number that ranks of one node have in common.
std::vector<int64_t> nodes_of_ranks(World& world) {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  const auto own = static_cast<int64_t>(std::hash<std::string>()(name));
  std::vector<int64_t> all(static_cast<size_t>(world.size()));
  world.all()
      .all_gather(ConstBuffer(&own, 1, DataType::kInt64),
                  Buffer{.data = all.data(), .count = world.size(), .type = DataType::kInt64})
      .wait();
  return all;
}

/// Twos, fours and so on of the first node and all of it; then one rank of every node, and all of every node.
std::vector<LinkGroup> link_groups(const std::vector<int64_t>& nodes) {
  std::map<int64_t, std::vector<int64_t>> by_node;
  std::vector<int64_t> order;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (!by_node.contains(nodes[rank])) order.push_back(nodes[rank]);
    by_node[nodes[rank]].push_back(static_cast<int64_t>(rank));
  }
  std::vector<LinkGroup> groups;
  const std::vector<int64_t>& first = by_node[order.front()];
  const auto add_within = [&](int64_t size) {
    groups.push_back({.ranks = {first.begin(), first.begin() + size}, .ranks_per_node = size});
  };
  int64_t size = 2;
  for (; size < std::ssize(first); size *= 2) add_within(size);
  if (first.size() > 1) add_within(std::ssize(first));
  if (order.size() == 1) return groups;
  size_t fewest = first.size();
  for (const int64_t node : order) fewest = std::min(fewest, by_node[node].size());
  for (const size_t count : {size_t{1}, fewest}) {
    LinkGroup& group = groups.emplace_back();
    group.is_between_nodes = true;
    group.ranks_per_node = static_cast<int64_t>(count);
    for (const int64_t node : order)
      group.ranks.insert(group.ranks.end(), by_node[node].begin(),
                         by_node[node].begin() + static_cast<std::ptrdiff_t>(count));
    if (fewest == 1) break;
  }
  return groups;
}

/// Tensors for one operation.
struct LinkTensors {
  at::Tensor in, out;
};

void run_once(Group& group, const std::string& collective, const LinkTensors& tensors) {
  const Buffer in = buffer_of(tensors.in), out = buffer_of(tensors.out);
  if (collective == "all_reduce") return group.all_reduce(in, out, Reduction::kSum).wait();
  if (collective == "all_gather") return group.all_gather(in, out).wait();
  if (collective == "reduce_scatter") return group.reduce_scatter(in, out, Reduction::kSum).wait();
  if (collective == "all_to_all") return group.all_to_all(in, out).wait();
  // Round the ring, as context parallelism and pipelines send.
  const int64_t next = (group.rank() + 1) % group.size(), last = (group.rank() + group.size() - 1) % group.size();
  Work sent = group.send(in, next);
  Work come = group.recv(out, last);
  come.wait();
  sent.wait();
}

LinkTensors tensors_for(const std::string& collective, int64_t bytes, int64_t ranks, at::Device device) {
  const int64_t part = std::max<int64_t>(1, bytes / 4 / ranks), whole = part * ranks;
  const auto make = [&](int64_t elements) {
    return at::zeros({elements}, at::TensorOptions(at::kFloat).device(device));
  };
  if (collective == "all_gather") return {make(part), make(whole)};
  if (collective == "reduce_scatter") return {make(whole), make(part)};
  return {make(whole), make(whole)};
}

double largest_of(Group& group, double value) {
  group.all_reduce(Buffer{.data = &value, .count = 1, .type = DataType::kFp64}, Reduction::kMax).wait();
  return value;
}

LinkMeasurement measure_link(Group& group, const LinkGroup& link, const std::string& collective, int64_t bytes,
                             const MeasureSettings& settings) {
  const LinkTensors tensors = tensors_for(collective, bytes, group.size(), settings.device);
  for (int i = 0; i < 2; ++i) run_once(group, collective, tensors);
  std::vector<double> times;
  const double start = now_ms();
  int64_t is_done = 0;
  while (is_done == 0) {
    // Small messages several at a time: a clock is not read for nothing.
    const int count = bytes <= 1 << 16 ? 8 : 1;
    wait_for_device(settings.device);
    group.barrier().wait();
    const double begin = now_ms();
    for (int i = 0; i < count; ++i) run_once(group, collective, tensors);
    wait_for_device(settings.device);
    times.push_back(largest_of(group, (now_ms() - begin) / count));
    is_done = settings.rule.is_enough(times, now_ms() - start) ? 1 : 0;
    group.broadcast(Buffer{.data = &is_done, .count = 1, .type = DataType::kInt64}, 0).wait();
  }
  const MedianEstimate estimate = estimate_median(times);
  const int64_t part = std::max<int64_t>(1, bytes / 4 / group.size());
  return {.is_between_nodes = link.is_between_nodes,
          .collective = collective,
          .ranks = group.size(),
          .ranks_per_node = link.ranks_per_node,
          .bytes = static_cast<double>(part * group.size() * 4),
          .ms = std::max(estimate.median, 1e-6),
          .sureness = estimate.sureness};
}

/// From the first rank to all.
std::vector<LinkMeasurement> told_to_all(World& world, const std::vector<LinkMeasurement>& own,
                                         const std::vector<LinkMeasurement>& asked) {
  std::vector<LinkMeasurement> all = asked;
  std::vector<double> numbers(3 * all.size());
  for (size_t i = 0; i < own.size(); ++i) {
    numbers[3 * i] = own[i].ms;
    numbers[3 * i + 1] = static_cast<double>(own[i].sureness.runs);
    numbers[3 * i + 2] = own[i].sureness.spread_percent;
  }
  world.all()
      .broadcast(Buffer{.data = numbers.data(), .count = std::ssize(numbers), .type = DataType::kFp64}, 0)
      .wait();
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].ms = numbers[3 * i];
    all[i].sureness = {.runs = static_cast<int64_t>(numbers[3 * i + 1]), .spread_percent = numbers[3 * i + 2]};
  }
  return all;
}

}  // namespace

std::vector<int64_t> link_sizes_bytes(at::Device device) {
  if (device.is_cpu()) return {1 << 12, 1 << 16, 1 << 20, 1 << 24};
  return {1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28};
}

std::vector<LinkMeasurement> measure_links(World& world, const MeasureSettings& settings,
                                           const std::function<void(const std::string&)>& show) {
  std::vector<LinkMeasurement> own, asked;
  if (world.size() < 2) return own;
  for (const LinkGroup& link : link_groups(nodes_of_ranks(world))) {
    const bool is_member = std::find(link.ranks.begin(), link.ranks.end(), world.rank()) != link.ranks.end();
    std::optional<Group> group;
    if (is_member) {
      auto made = world.group(fmt::format("links of {}{}", link.ranks.size(), link.is_between_nodes ? " nodes" : ""),
                              link.ranks);
      WEFT_CHECK(made.ok(), "{}", made.error().message());
      group = *std::move(made);
    }
    for (const char* collective : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"}) {
      for (const int64_t bytes : link_sizes_bytes(settings.device)) {
        int64_t is_stopped = settings.stop != nullptr && settings.stop->load() ? 1 : 0;
        world.all().broadcast(Buffer{.data = &is_stopped, .count = 1, .type = DataType::kInt64}, 0).wait();
        if (is_stopped != 0) return told_to_all(world, own, asked);
        const auto ranks = static_cast<int64_t>(link.ranks.size());
        asked.push_back({.is_between_nodes = link.is_between_nodes,
                         .collective = collective,
                         .ranks = ranks,
                         .ranks_per_node = link.ranks_per_node,
                         .bytes = static_cast<double>(std::max<int64_t>(1, bytes / 4 / ranks) * ranks * 4)});
        if (!group) continue;
        if (world.rank() == 0 && show)
          show(fmt::format("{} of {} over {} ranks", collective, format_bytes(static_cast<double>(bytes)), ranks));
        // The first rank is in every group.
        own.push_back(measure_link(*group, link, collective, bytes, settings));
      }
    }
    world.all().barrier().wait();
  }
  return told_to_all(world, own, asked);
}

}  // namespace weft
