#include "weft/comm/mpi/transfers.h"

#include <algorithm>
#include <cstring>

#include "weft/mesh/split.h"

namespace weft {
namespace {

/// What the steps of one operation share. It outlives the call that started it.
struct Plan {
  Operation op;
  MPI_Comm comm;
  int rank;
  int size;
  int tags;
  MpiTuning tuning;
  MpiScratch* scratch;
  std::vector<int64_t> ranks;
  uint64_t next_tag = 0;

  enum class TagRange { kCollective, kHeader, kReply, kMessage };  // see collective_tag
  int tag(TagRange range, uint64_t number) const {
    return static_cast<int>(range) * tags + static_cast<int>(number % static_cast<uint64_t>(tags));
  }
  int take_tag() { return collective_tag(next_tag++, tags); }

  int64_t element_bytes() const { return bytes_per_element(op.type()); }
  const std::byte* in(int64_t begin) const {
    return static_cast<const std::byte*>(op.in.data) + begin * element_bytes();
  }
  std::byte* out(int64_t begin) const { return static_cast<std::byte*>(op.out.data) + begin * element_bytes(); }

  void send(MpiRequests& requests, const void* data, int64_t bytes, int64_t to, int tag_used) const {
    const auto* from = static_cast<const std::byte*>(data);
    do {
      const int64_t part = std::min(bytes, tuning.most_message_bytes);
      check_mpi(MPI_Isend(from, static_cast<int>(part), MPI_BYTE, static_cast<int>(to), tag_used, comm,
                          &requests.emplace_back()),
                "MPI_Isend");
      from += part;
      bytes -= part;
    } while (bytes > 0);
  }
  void recv(MpiRequests& requests, void* data, int64_t bytes, int64_t from, int tag_used) const {
    auto* to = static_cast<std::byte*>(data);
    do {
      const int64_t part = std::min(bytes, tuning.most_message_bytes);
      check_mpi(MPI_Irecv(to, static_cast<int>(part), MPI_BYTE, static_cast<int>(from), tag_used, comm,
                          &requests.emplace_back()),
                "MPI_Irecv");
      to += part;
      bytes -= part;
    } while (bytes > 0);
  }
};

using SharedPlan = std::shared_ptr<Plan>;

/// Where everyone's block of `bytes` bytes is, or comes to be, in a gathering.
using BlockAt = std::function<std::byte*(int64_t rank)>;

/// Everyone gets everyone's block, in about log2(size) steps: in each, a rank has a run of blocks that begins with its
/// own, and doubles it.
MpiChain gather_small(const SharedPlan& plan, const BlockAt& block_of, int64_t bytes) {
  MpiChain chain;
  for (int have = 1; have < plan->size; have *= 2) {
    chain.emplace_back([plan, block_of, bytes, have, tag = plan->take_tag()](MpiRequests& requests) {
      const GatherRound round = gather_round(plan->rank, plan->size, have);
      const auto block = [&](int index) { return block_of(index % plan->size); };
      for (int i = 0; i < round.more; ++i) {
        plan->recv(requests, block(plan->rank + have + i), bytes, round.from, tag);
      }
      for (int i = 0; i < round.more; ++i) plan->send(requests, block(plan->rank + i), bytes, round.to, tag);
    });
  }
  return chain;
}

/// Blocks one after the other.
BlockAt blocks_in(const std::shared_ptr<std::vector<std::byte>>& all, int64_t bytes) {
  return [all, bytes](int64_t rank) { return all->data() + rank * bytes; };
}

/// Inputs in rank order: the others' from scratch, without a gap at this rank, and this rank's own.
std::vector<const std::byte*> inputs_in_order(const Plan& plan, const std::byte* scratch, int64_t bytes,
                                              const std::byte* own) {
  std::vector<const std::byte*> inputs;
  for (int r = 0; r < plan.size; ++r) {
    if (r == plan.rank) {
      inputs.push_back(own);
    } else {
      inputs.push_back(scratch);
      scratch += bytes;
    }
  }
  return inputs;
}

void reduce_to(const Plan& plan, const std::vector<const std::byte*>& inputs, std::byte* output, int64_t count) {
  reduce(plan.op.reduction, plan.op.in.type, inputs, {&output, 1}, count);
}

/// Every rank sends slice r of its input to rank r, which reduces what came in rank order.
std::function<void(MpiRequests&)> exchange_slices(const SharedPlan& plan, std::vector<PartRange> slices, int tag,
                                                  const std::shared_ptr<MpiScratch::Block>& scratch) {
  return [plan, slices = std::move(slices), tag, scratch](MpiRequests& requests) {
    const int64_t own_bytes = slices[static_cast<size_t>(plan->rank)].size * plan->element_bytes();
    *scratch = plan->scratch->take(own_bytes * (plan->size - 1));
    std::byte* to = (*scratch)->data();
    for (int r = 0; r < plan->size; ++r) {
      if (r == plan->rank) continue;
      if (own_bytes > 0) plan->recv(requests, to, own_bytes, r, tag);
      to += own_bytes;
    }
    for (int i = 1; i < plan->size; ++i) {
      const int r = (plan->rank + i) % plan->size;
      const PartRange slice = slices[static_cast<size_t>(r)];
      if (slice.size > 0) plan->send(requests, plan->in(slice.begin), slice.size * plan->element_bytes(), r, tag);
    }
  };
}

/// A rank's slice of the scratch reduced to `out_begin` of the output.
void reduce_slice(const Plan& plan, PartRange own, const std::shared_ptr<MpiScratch::Block>& scratch,
                  int64_t out_begin) {
  if (own.size > 0) {
    const auto inputs = inputs_in_order(plan, (*scratch)->data(), own.size * plan.element_bytes(), plan.in(own.begin));
    reduce_to(plan, inputs, plan.out(out_begin), own.size);
  }
  plan.scratch->give(std::move(*scratch));
}

/// One segment of an all-reduce: slices are exchanged and reduced, and the results given to everyone.
MpiChain reduce_segment(const SharedPlan& plan, Range segment) {
  std::vector<PartRange> slices;
  for (int r = 0; r < plan->size; ++r) {
    const Range slice = balanced_part(segment, plan->size, r);
    slices.push_back({slice.begin, slice.size()});
  }
  const PartRange own = slices[static_cast<size_t>(plan->rank)];
  const int first_tag = plan->take_tag(), second_tag = plan->take_tag();
  const auto scratch = std::make_shared<MpiScratch::Block>();
  MpiChain chain;
  chain.push_back(exchange_slices(plan, slices, first_tag, scratch));
  chain.emplace_back([plan, own, slices, second_tag, scratch](MpiRequests& requests) {
    reduce_slice(*plan, own, scratch, own.begin);
    for (int i = 1; i < plan->size; ++i) {
      const int from = (plan->rank + plan->size - i) % plan->size, to = (plan->rank + i) % plan->size;
      const PartRange theirs = slices[static_cast<size_t>(from)];
      if (theirs.size > 0) {
        plan->recv(requests, plan->out(theirs.begin), theirs.size * plan->element_bytes(), from, second_tag);
      }
      if (own.size > 0) plan->send(requests, plan->out(own.begin), own.size * plan->element_bytes(), to, second_tag);
    }
  });
  return chain;
}

/// One segment of an all-reduce that everyone gathers from everyone and reduces.
MpiChain gather_and_reduce(const SharedPlan& plan, Range segment) {
  const int64_t bytes = segment.size() * plan->element_bytes();
  const auto scratch = std::make_shared<MpiScratch::Block>();
  const BlockAt block_of = [plan, segment, bytes, scratch](int64_t rank) {
    // Only read: a gathering writes the others' blocks.
    if (rank == plan->rank) return const_cast<std::byte*>(plan->in(segment.begin));
    if (!*scratch) *scratch = plan->scratch->take(bytes * (plan->size - 1));
    return (*scratch)->data() + (rank < plan->rank ? rank : rank - 1) * bytes;
  };
  MpiChain chain = gather_small(plan, block_of, bytes);
  chain.emplace_back([plan, segment, bytes, scratch](MpiRequests&) {
    const std::byte* others = *scratch ? (*scratch)->data() : nullptr;
    reduce_to(*plan, inputs_in_order(*plan, others, bytes, plan->in(segment.begin)), plan->out(segment.begin),
              segment.size());
    if (*scratch) plan->scratch->give(std::move(*scratch));
  });
  return chain;
}

void add_all_reduce(MpiStages& transfers, const SharedPlan& plan) {
  const int64_t bytes = plan->op.in.num_bytes();
  const MpiTuning& tuning = plan->tuning;
  const bool is_small = bytes <= tuning.most_small_bytes(plan->size);
  const int64_t most = std::max<int64_t>(1, tuning.segment_bytes / plan->element_bytes()) * (is_small ? 1 : plan->size);
  std::vector<MpiChain> chains;
  for (int64_t begin = 0; begin < plan->op.in.count; begin += most) {
    const Range segment{begin, std::min(begin + most, plan->op.in.count)};
    chains.push_back(is_small ? gather_and_reduce(plan, segment) : reduce_segment(plan, segment));
  }
  transfers.add_stage([chains = std::move(chains)]() mutable { return std::move(chains); });
}

void add_reduce_scatter(MpiStages& transfers, const SharedPlan& plan) {
  const auto parts = parts_of(plan->op.in.count, plan->op.in_counts, plan->size);
  int64_t longest = 0;
  for (const PartRange& part : parts) longest = std::max(longest, part.size);
  const int64_t segment = std::max<int64_t>(1, plan->tuning.segment_bytes / plan->element_bytes());
  std::vector<MpiChain> chains;
  for (int64_t begin = 0; begin < longest; begin += segment) {
    std::vector<PartRange> slices;
    for (const PartRange& part : parts) {
      const int64_t first = std::min(begin, part.size), last = std::min(begin + segment, part.size);
      slices.push_back({part.begin + first, last - first});
    }
    const PartRange own = slices[static_cast<size_t>(plan->rank)];
    const auto scratch = std::make_shared<MpiScratch::Block>();
    MpiChain chain;
    chain.push_back(exchange_slices(plan, slices, plan->take_tag(), scratch));
    chain.emplace_back([plan, own, scratch, begin](MpiRequests&) { reduce_slice(*plan, own, scratch, begin); });
    chains.push_back(std::move(chain));
  }
  transfers.add_stage([chains = std::move(chains)]() mutable { return std::move(chains); });
}

/// Everyone sends everyone its part, straight.
void add_exchange(MpiStages& transfers, const SharedPlan& plan) {
  const bool gathers = plan->op.kind == OperationKind::kAllGather;
  const auto out_parts = parts_of(plan->op.out.count, plan->op.out_counts, plan->size);
  const auto in_parts = gathers ? std::vector<PartRange>(static_cast<size_t>(plan->size), {0, plan->op.in.count})
                                : parts_of(plan->op.in.count, plan->op.in_counts, plan->size);
  const int tag = plan->take_tag();
  transfers.add_chain({[plan, in_parts, out_parts, tag](MpiRequests& requests) {
    const auto at = [](const std::vector<PartRange>& parts, int r) { return parts[static_cast<size_t>(r)]; };
    for (int i = 1; i < plan->size; ++i) {
      const int from = (plan->rank + plan->size - i) % plan->size, to = (plan->rank + i) % plan->size;
      const PartRange received = at(out_parts, from), sent = at(in_parts, to);
      if (received.size > 0) {
        plan->recv(requests, plan->out(received.begin), received.size * plan->element_bytes(), from, tag);
      }
      if (sent.size > 0) plan->send(requests, plan->in(sent.begin), sent.size * plan->element_bytes(), to, tag);
    }
    const PartRange kept = at(in_parts, plan->rank);
    std::byte* const own = plan->out(at(out_parts, plan->rank).begin);
    if (kept.size > 0 && own != plan->in(kept.begin)) {
      std::memcpy(own, plan->in(kept.begin), static_cast<size_t>(kept.size * plan->element_bytes()));
    }
  }});
}

/// Down a binomial tree, a segment after the other, so that a rank passes one on while it receives the next.
void add_broadcast(MpiStages& transfers, const SharedPlan& plan) {
  const int64_t segment = plan->tuning.segment_bytes, total = plan->op.out.num_bytes();
  const int place = (plan->rank - static_cast<int>(plan->op.peer) + plan->size) % plan->size;
  const auto rank_at = [plan](int at) { return (at + static_cast<int>(plan->op.peer)) % plan->size; };
  // Children add a bit below the lowest one of their parent's place; the root's lies above all.
  int low_bit = 1;
  while (low_bit < plan->size && (place & low_bit) == 0) low_bit *= 2;
  std::vector<MpiChain> chains;
  for (int64_t begin = 0; begin < total; begin += segment) {
    const int64_t bytes = std::min(segment, total - begin);
    const int tag = plan->take_tag();
    std::byte* const data = static_cast<std::byte*>(plan->op.out.data) + begin;
    MpiChain chain;
    if (place != 0) {
      chain.emplace_back([plan, data, bytes, tag, parent = rank_at(place - low_bit)](MpiRequests& requests) {
        plan->recv(requests, data, bytes, parent, tag);
      });
    }
    chain.emplace_back([plan, data, bytes, tag, place, low_bit, rank_at](MpiRequests& requests) {
      for (int bit = low_bit / 2; bit > 0; bit /= 2) {
        if (place + bit < plan->size) plan->send(requests, data, bytes, rank_at(place + bit), tag);
      }
    });
    chains.push_back(std::move(chain));
  }
  transfers.add_stage([chains = std::move(chains)]() mutable { return std::move(chains); });
}

void add_barrier(MpiStages& transfers, const SharedPlan& plan) {
  transfers.add_chain(gather_small(
      plan, [](int64_t) { return nullptr; }, 0));
}

void add_check(const std::shared_ptr<MpiStages>& transfers, const SharedPlan& plan) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Signature));
  const Signature own = signature_of(plan->op, plan->size);
  const auto all = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(kBytes * plan->size));
  std::memcpy(all->data() + plan->rank * kBytes, &own, sizeof(own));
  MpiChain chain = gather_small(plan, blocks_in(all, kBytes), kBytes);
  // The operation holds its own steps, so they must not hold it.
  const std::weak_ptr<MpiStages> refused = transfers;
  chain.emplace_back([plan, all, refused](MpiRequests&) {
    std::vector<Signature> signatures(static_cast<size_t>(plan->size));
    std::memcpy(signatures.data(), all->data(), all->size());
    for (size_t r = 1; r < signatures.size(); ++r) {
      auto found = find_disagreement(signatures[0], plan->ranks[0], signatures[r], plan->ranks[r]);
      if (found) return refused.lock()->refuse(*std::move(found));
    }
  });
  transfers->add_chain(std::move(chain));
}

/// An all-to-all's parts are compared too: what is sent against what is expected.
void add_parts_check(const std::shared_ptr<MpiStages>& transfers, const SharedPlan& plan) {
  const int64_t bytes = int64_t{8} * plan->size;
  const auto all = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(2 * bytes * plan->size));
  const auto put = [&](int64_t place, const std::vector<PartRange>& parts) {
    for (const PartRange& part : parts) {
      std::memcpy(all->data() + place, &part.size, 8);
      place += 8;
    }
  };
  put(2 * bytes * plan->rank, parts_of(plan->op.in.count, plan->op.in_counts, plan->size));
  put(2 * bytes * plan->rank + bytes, parts_of(plan->op.out.count, plan->op.out_counts, plan->size));
  MpiChain chain = gather_small(plan, blocks_in(all, 2 * bytes), 2 * bytes);
  const std::weak_ptr<MpiStages> refused = transfers;
  chain.emplace_back([plan, all, bytes, refused](MpiRequests&) {
    const auto count_at = [&](int64_t rank, int64_t offset) {
      int64_t count = 0;
      std::memcpy(&count, all->data() + 2 * bytes * rank + offset, 8);
      return count;
    };
    for (int from = 0; from < plan->size; ++from) {
      for (int to = 0; to < plan->size; ++to) {
        auto found = find_mismatch(plan->ranks[static_cast<size_t>(from)], count_at(from, int64_t{8} * to),
                                   plan->ranks[static_cast<size_t>(to)], count_at(to, bytes + int64_t{8} * from));
        if (found) return refused.lock()->refuse(*std::move(found));
      }
    }
  });
  transfers->add_chain(std::move(chain));
}

/// A message that is number `number` of its pair. When checked, both sides first show each other what they ask for.
void add_message(const std::shared_ptr<MpiStages>& transfers, const SharedPlan& plan, bool is_checked,
                 uint64_t number) {
  using TagRange = Plan::TagRange;
  const bool sends = plan->op.kind == OperationKind::kSend;
  const int64_t peer = plan->op.peer;
  if (is_checked) {
    const auto own = std::make_shared<Signature>(signature_of(plan->op, plan->size));
    const auto theirs = std::make_shared<Signature>();
    const std::weak_ptr<MpiStages> refused = transfers;
    const int header = plan->tag(TagRange::kHeader, number), reply = plan->tag(TagRange::kReply, number);
    transfers->add_chain({[=](MpiRequests& requests) {
                            plan->send(requests, own.get(), sizeof(Signature), peer, sends ? header : reply);
                            plan->recv(requests, theirs.get(), sizeof(Signature), peer, sends ? reply : header);
                          },
                          [=](MpiRequests&) {
                            const int64_t me = plan->ranks[static_cast<size_t>(plan->rank)];
                            const int64_t other = plan->ranks[static_cast<size_t>(peer)];
                            auto found = sends ? find_mismatch(*own, me, *theirs, other)
                                               : find_mismatch(*theirs, other, *own, me);
                            if (found) refused.lock()->refuse(*std::move(found));
                          }});
  }
  const int tag = plan->tag(TagRange::kMessage, number);
  transfers->add_chain({[=](MpiRequests& requests) {
    sends ? plan->send(requests, plan->op.in.data, plan->op.in.num_bytes(), peer, tag)
          : plan->recv(requests, plan->op.out.data, plan->op.out.num_bytes(), peer, tag);
  }});
}

}  // namespace

MpiScratch::Block MpiScratch::take(int64_t num_bytes) {
  Block block = free_.empty() ? std::make_unique<std::vector<std::byte>>() : std::move(free_.back());
  if (!free_.empty()) free_.pop_back();
  if (static_cast<int64_t>(block->size()) < num_bytes) block->resize(static_cast<size_t>(num_bytes));
  return block;
}

void add_transfers(const std::shared_ptr<MpiStages>& transfers, const Operation& operation, MpiChannel& channel,
                   bool is_checked, const std::vector<int64_t>& ranks) {
  const auto plan = std::make_shared<Plan>(Plan{.op = operation,
                                                .comm = channel.comm,
                                                .rank = channel.rank,
                                                .size = channel.size,
                                                .tags = channel.tags,
                                                .tuning = channel.tuning,
                                                .scratch = channel.scratch,
                                                .ranks = ranks,
                                                .next_tag = channel.next_tag});
  if (!is_collective(operation.kind)) {
    const auto peer = static_cast<size_t>(operation.peer);
    uint64_t& number = operation.kind == OperationKind::kSend ? channel.num_sent[peer] : channel.num_received[peer];
    return add_message(transfers, plan, is_checked, number++);
  }
  if (is_checked) {
    add_check(transfers, plan);
    if (operation.kind == OperationKind::kAllToAll) add_parts_check(transfers, plan);
  }
  switch (operation.kind) {
    case OperationKind::kAllReduce:
      add_all_reduce(*transfers, plan);
      break;
    case OperationKind::kReduceScatter:
      add_reduce_scatter(*transfers, plan);
      break;
    case OperationKind::kAllGather:
    case OperationKind::kAllToAll:
      add_exchange(*transfers, plan);
      break;
    case OperationKind::kBroadcast:
      add_broadcast(*transfers, plan);
      break;
    default:
      add_barrier(*transfers, plan);
  }
  channel.next_tag = plan->next_tag;
}

}  // namespace weft
