#include "weft/comm/operation.h"

#include <cstdint>
#include <numeric>
#include <span>

#include <fmt/format.h>

namespace weft {
namespace {

std::optional<std::string> mistake_in_memory(std::string_view role, const ConstBuffer& buffer) {
  if (buffer.count < 0) return fmt::format("{} has {} elements, expected 0 or more", role, buffer.count);
  if (buffer.count > 0 && buffer.data == nullptr) {
    return fmt::format("{} has no memory, expected {}", role, text(buffer));
  }
  return {};
}

std::optional<std::string> mistake_in_counts(std::string_view role, const std::vector<int64_t>& counts,
                                             int64_t num_elements, int64_t size) {
  if (static_cast<int64_t>(counts.size()) != size) {
    return fmt::format("{} counts are given, expected one for each of {} ranks", counts.size(), size);
  }
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] < 0) return fmt::format("the count for rank {} is {}, expected 0 or more", r, counts[r]);
  }
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (sum == num_elements) return {};
  return fmt::format("{} has {} elements, expected {}, the sum of the counts", role, num_elements, sum);
}

std::optional<std::string> expect_count(std::string_view role, int64_t found, int64_t expected, std::string_view why) {
  if (found == expected) return {};
  return fmt::format("{} has {} elements, expected {}, {}", role, found, expected, why);
}

bool overlaps(const ConstBuffer& a, const ConstBuffer& b) {
  const auto begin_a = reinterpret_cast<uintptr_t>(a.data), begin_b = reinterpret_cast<uintptr_t>(b.data);
  return begin_a < begin_b + static_cast<uintptr_t>(b.num_bytes()) &&
         begin_b < begin_a + static_cast<uintptr_t>(a.num_bytes());
}

std::optional<std::string> mistake_in_sizes(const Operation& op, int64_t rank, int64_t size) {
  switch (op.kind) {
    case OperationKind::kAllReduce:
      return expect_count("the output", op.out.count, op.in.count, "as many as the input");
    case OperationKind::kAllGather:
      if (op.out_counts.empty()) {
        return expect_count("the output", op.out.count, op.in.count * size,
                            fmt::format("the input's {} from each of {} ranks", op.in.count, size));
      }
      if (auto mistake = mistake_in_counts("the output", op.out_counts, op.out.count, size)) return mistake;
      return expect_count("the input", op.in.count, op.out_counts[static_cast<size_t>(rank)], "this rank's count");
    case OperationKind::kReduceScatter:
      if (op.in_counts.empty()) {
        return expect_count("the input", op.in.count, op.out.count * size,
                            fmt::format("the output's {} for each of {} ranks", op.out.count, size));
      }
      if (auto mistake = mistake_in_counts("the input", op.in_counts, op.in.count, size)) return mistake;
      return expect_count("the output", op.out.count, op.in_counts[static_cast<size_t>(rank)], "this rank's count");
    case OperationKind::kAllToAll:
      if (op.in_counts.empty() != op.out_counts.empty()) return "counts are given for one side only, expected for both";
      if (op.in_counts.empty()) {
        if (op.in.count % size != 0) {
          return fmt::format("the input has {} elements, expected a multiple of {} ranks", op.in.count, size);
        }
        return expect_count("the output", op.out.count, op.in.count, "as many as the input");
      }
      if (auto mistake = mistake_in_counts("the input", op.in_counts, op.in.count, size)) return mistake;
      if (auto mistake = mistake_in_counts("the output", op.out_counts, op.out.count, size)) return mistake;
      return expect_count("the part for this rank itself", op.in_counts[static_cast<size_t>(rank)],
                          op.out_counts[static_cast<size_t>(rank)], "as its part of the output has");
    default:
      return {};
  }
}

/// Where input and output may be the same memory: what a rank's own part is read from, or all of it.
std::optional<std::string> mistake_in_overlap(const Operation& op, int64_t rank, int64_t size) {
  if (op.in.count == 0 || op.out.count == 0 || !overlaps(op.in, op.out)) return {};
  const void* allowed = nullptr;
  switch (op.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kBroadcast:
      if (op.in.data == op.out.data) return {};
      return "input and output overlap, expected the same memory or memory apart";
    case OperationKind::kAllGather:
      allowed = op.out.part(part_of(op.out.count, op.out_counts, rank, size).begin, 0).data;
      if (op.in.data == allowed) return {};
      return "the input lies in the output, expected it at this rank's own part or apart";
    case OperationKind::kReduceScatter:
      allowed = op.in.part(part_of(op.in.count, op.in_counts, rank, size).begin, 0).data;
      if (op.out.data == allowed) return {};
      return "the output lies in the input, expected it at this rank's own part or apart";
    default:
      return "input and output overlap, expected memory apart";
  }
}

}  // namespace

bool is_collective(OperationKind kind) {
  return kind != OperationKind::kSend && kind != OperationKind::kRecv;
}

PartRange part_of(int64_t count, const std::vector<int64_t>& counts, int64_t rank, int64_t size) {
  if (counts.empty()) return {count / size * rank, count / size};
  return {std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0}), counts[static_cast<size_t>(rank)]};
}

std::vector<PartRange> parts_of(int64_t count, const std::vector<int64_t>& counts, int64_t size) {
  std::vector<PartRange> parts(static_cast<size_t>(size));
  int64_t begin = 0;
  for (size_t r = 0; r < parts.size(); ++r) {
    parts[r] = {begin, counts.empty() ? count / size : counts[r]};
    begin += parts[r].size;
  }
  return parts;
}

std::optional<std::string> find_mistake(const Operation& op, int64_t rank, int64_t size) {
  const bool reads = op.kind != OperationKind::kRecv && op.kind != OperationKind::kBarrier;
  const bool writes = op.kind != OperationKind::kSend && op.kind != OperationKind::kBarrier;
  if (reads) {
    if (auto mistake = mistake_in_memory("the input", op.in)) return mistake;
  }
  if (writes) {
    if (auto mistake = mistake_in_memory("the output", op.out)) return mistake;
  }
  if (reads && writes && op.in.type != op.out.type) {
    return fmt::format("the input is {}, the output {}, expected one type", name_of(op.in.type), name_of(op.out.type));
  }
  if (reads && writes && op.in.device != op.out.device) {
    return fmt::format("the input is on {}, the output on {}, expected one device", text(op.in.device),
                       text(op.out.device));
  }
  const bool reduces = op.kind == OperationKind::kAllReduce || op.kind == OperationKind::kReduceScatter;
  if (reduces && !can_reduce(op.reduction, op.in.type)) {
    return fmt::format("the {} of {}, expected fp64, fp32, bf16 or fp16 for that", name_of(op.reduction),
                       name_of(op.in.type));
  }
  const bool has_peer = op.kind == OperationKind::kBroadcast || !is_collective(op.kind);
  if (has_peer && (op.peer < 0 || op.peer >= size)) {
    return fmt::format("rank {} is asked for, expected 0 to {}", op.peer, size - 1);
  }
  if (auto mistake = mistake_in_sizes(op, rank, size)) return mistake;
  return mistake_in_overlap(op, rank, size);
}

}  // namespace weft
