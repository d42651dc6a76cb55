#include "weft/comm/nccl/agreement.h"

#include <cstring>

namespace weft {
namespace {

uint64_t notice_key(uint64_t operation_key, uint64_t number, size_t place) {
  uint64_t key = operation_key;
  for (const uint64_t part : {number, static_cast<uint64_t>(place), uint64_t{0x5157}}) {
    key = (key ^ (part + 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu;
    key ^= key >> 32;
  }
  return key;
}

std::vector<int64_t> sizes_of(const std::vector<PartRange>& parts) {
  std::vector<int64_t> sizes;
  for (const PartRange& part : parts) sizes.push_back(part.size);
  return sizes;
}

}  // namespace

Agreement::Agreement(Watch& watch, const Operation& operation, const std::vector<int64_t>& ranks, size_t own,
                     uint64_t group_id, uint64_t number)
    : watch_(watch) {
  std::vector<size_t> places;
  if (is_collective(operation.kind)) {
    for (size_t place = 0; place < ranks.size(); ++place) places.push_back(place);
  } else {
    places = {own, static_cast<size_t>(operation.peer)};
    if (operation.kind == OperationKind::kRecv) std::swap(places[0], places[1]);
  }
  const auto size = static_cast<int64_t>(ranks.size());
  Shown shown{.what = signature_of(operation, size), .sent = {}, .expected = {}};
  if (operation.kind == OperationKind::kAllToAll) {
    shown.sent = sizes_of(parts_of(operation.in.count, operation.in_counts, size));
    shown.expected = sizes_of(parts_of(operation.out.count, operation.out_counts, size));
  }
  for (const size_t place : places) {
    ranks_.push_back(ranks[place]);
    keys_.push_back(notice_key(operation_key(group_id, operation.kind, operation.peer, own, place), number, place));
    shown_.emplace_back();
    if (place == own) {
      watch_.post(keys_.back(), packed(shown));
      shown_.back() = shown;
    }
  }
}

std::string Agreement::packed(const Shown& shown) {
  std::string bytes(reinterpret_cast<const char*>(&shown.what), sizeof(shown.what));
  for (const auto* counts : {&shown.sent, &shown.expected})
    bytes.append(reinterpret_cast<const char*>(counts->data()), counts->size() * sizeof(int64_t));
  return bytes;
}

Agreement::Shown Agreement::unpacked(const std::string& bytes) {
  Shown shown;
  std::memcpy(&shown.what, bytes.data(), sizeof(shown.what));
  const size_t num_counts = (bytes.size() - sizeof(shown.what)) / sizeof(int64_t);
  std::vector<int64_t> counts(num_counts);
  if (num_counts > 0) std::memcpy(counts.data(), bytes.data() + sizeof(shown.what), num_counts * sizeof(int64_t));
  const auto middle = counts.begin() + static_cast<ptrdiff_t>(num_counts / 2);
  shown.sent.assign(counts.begin(), middle);
  shown.expected.assign(middle, counts.end());
  return shown;
}

bool Agreement::is_known() {
  if (is_known_) return true;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (shown_[i]) continue;
    const auto notice = watch_.posted(keys_[i]);
    if (!notice) return false;
    shown_[i] = unpacked(*notice);
  }
  compare();
  is_known_ = true;
  return true;
}

void Agreement::compare() {
  const Shown& first = *shown_[0];
  if (!is_collective(first.what.kind)) {
    disagreement_ = find_mismatch(first.what, ranks_[0], shown_[1]->what, ranks_[1]);
    return;
  }
  for (size_t i = 1; i < shown_.size() && !disagreement_; ++i)
    disagreement_ = find_disagreement(first.what, ranks_[0], shown_[i]->what, ranks_[i]);
  if (first.what.kind != OperationKind::kAllToAll) return;
  for (size_t from = 0; from < shown_.size(); ++from) {
    for (size_t to = 0; to < shown_.size() && !disagreement_; ++to)
      disagreement_ = find_mismatch(ranks_[from], shown_[from]->sent[to], ranks_[to], shown_[to]->expected[from]);
  }
}

}  // namespace weft
