#include "weft/checkpoint/weight_route.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/text.h"

namespace weft {
namespace {

/// Parts as bytes between ranks of one program.
class PartWriter {
 public:
  void add(const RoutedPart& part) {
    for (const int64_t number :
         {part.rank, part.piece.first_row, part.piece.num_rows, part.piece.first_column, part.piece.num_columns,
          part.elements.begin, part.elements.end, int64_t{part.is_trained}, part.updates,
          static_cast<int64_t>(part.value_type), static_cast<int64_t>(part.moment_type)})
      add_number(number);
    add_numbers(part.piece.shape);
    add_numbers(part.kin);
    add_number(std::ssize(part.piece.name));
    bytes_ += part.piece.name;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void add_number(int64_t number) { bytes_.append(reinterpret_cast<const char*>(&number), sizeof(number)); }
  void add_numbers(const std::vector<int64_t>& numbers) {
    add_number(std::ssize(numbers));
    for (const int64_t number : numbers) add_number(number);
  }

  std::string bytes_;
};

class PartReader {
 public:
  explicit PartReader(const std::string& bytes) : bytes_(bytes) {}

  bool is_done() const { return place_ == bytes_.size(); }
  RoutedPart next() {
    RoutedPart part;
    part.rank = number();
    part.piece.first_row = number();
    part.piece.num_rows = number();
    part.piece.first_column = number();
    part.piece.num_columns = number();
    part.elements.begin = number();
    part.elements.end = number();
    part.is_trained = number() != 0;
    part.updates = number();
    part.value_type = static_cast<at::ScalarType>(number());
    part.moment_type = static_cast<at::ScalarType>(number());
    part.piece.shape = numbers();
    part.kin = numbers();
    const auto length = static_cast<size_t>(number());
    part.piece.name = bytes_.substr(place_, length);
    place_ += length;
    return part;
  }

 private:
  int64_t number() {
    int64_t value = 0;
    WEFT_CHECK(place_ + sizeof(value) <= bytes_.size(), "a list of parts that is cut off");
    std::memcpy(&value, bytes_.data() + place_, sizeof(value));
    place_ += sizeof(value);
    return value;
  }
  std::vector<int64_t> numbers() {
    std::vector<int64_t> values(static_cast<size_t>(number()));
    for (int64_t& value : values) value = number();
    return values;
  }

  const std::string& bytes_;
  size_t place_ = 0;
};

}  // namespace

int64_t stored_bytes(const RoutedPart& part) {
  const auto size = [](at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); };
  return part.elements.size() * (size(part.value_type) + (part.is_trained ? 2 * size(part.moment_type) : 0));
}

PartIndex::PartIndex(std::vector<RoutedPart> parts, std::string source)
    : parts_(std::move(parts)), source_(std::move(source)) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    places_[parts_[i].piece.name].push_back(i);
    num_ranks_ = std::max(num_ranks_, parts_[i].rank + 1);
  }
}

std::vector<std::string> PartIndex::names() const {
  std::vector<std::string> names;
  for (const auto& [name, places] : places_) names.push_back(name);
  return names;
}

Error PartIndex::refuse(const std::string& weight, std::string problem, std::string advice) const {
  return {.source = source_, .field = weight, .problem = std::move(problem), .advice = std::move(advice)};
}

Result<std::vector<RoutedCopy>> PartIndex::take(const RoutedPart& wanted, size_t number,
                                                const std::vector<size_t>& first) const {
  const WeightPiece& piece = wanted.piece;
  const auto found = places_.find(piece.name);
  if (found == places_.end()) {
    return refuse(piece.name, "is a weight of the model, but the checkpoint does not have it",
                  "Is this the checkpoint of another model?" + did_you_mean(piece.name, names()));
  }
  for (const size_t place : found->second) {
    const std::vector<int64_t>& shape = parts_[place].piece.shape;
    if (shape == piece.shape) continue;
    return refuse(piece.name,
                  fmt::format("has the shape [{}] in the checkpoint, but [{}] in the model", fmt::join(shape, ", "),
                              fmt::join(piece.shape, ", ")),
                  "Is this the checkpoint of another model?");
  }
  const int64_t num_ranks = std::max(num_ranks_, wanted.rank + 1);
  std::unordered_map<size_t, int64_t> turns;
  for (const size_t place : first) turns.emplace(place, std::ssize(turns));
  const auto distance = [&](size_t place) {
    if (const auto turn = turns.find(place); turn != turns.end()) return turn->second - std::ssize(turns) - 2;
    const int64_t rank = parts_[place].rank;
    if (rank == wanted.rank) return int64_t{-2};
    if (std::find(wanted.kin.begin(), wanted.kin.end(), rank) != wanted.kin.end()) return int64_t{-1};
    return (rank - wanted.rank + num_ranks) % num_ranks;
  };
  std::vector<std::pair<int64_t, size_t>> places;  // in which order, with the parts' own as the second key
  for (const size_t place : found->second) places.emplace_back(distance(place), place);
  std::sort(places.begin(), places.end());
  std::vector<PartBox> missing = boxes_of(piece, wanted.elements);
  std::vector<RoutedCopy> copies;
  for (const auto& [turn, place] : places) {
    if (missing.empty()) break;
    const RoutedPart& part = parts_[place];
    for (const BoxCopy& box : take_common(missing, boxes_of(part.piece, part.elements))) {
      copies.push_back({.held = place, .wanted = number, .box = box});
    }
  }
  if (missing.empty()) return copies;
  int64_t count = 0;
  for (const PartBox& box : missing) count += box.rows.size() * box.columns.size();
  return refuse(piece.name,
                fmt::format("is not complete: {} of its elements, from row {} on, are in none of the files",
                            with_commas(count), missing.front().rows.begin),
                "The checkpoint is damaged: use another one.");
}

Error refuse_unknown_weight(const PartIndex& held, const std::string& name) {
  return held.refuse(name, "is in the checkpoint, but it is no weight of the model",
                     "Is this the checkpoint of another model?");
}

bool PartIndex::is_held_once(const RoutedPart& wanted) const {
  const auto found = places_.find(wanted.piece.name);
  if (found == places_.end()) return false;
  int64_t count = 0;
  for (const size_t place : found->second) {
    const RoutedPart& part = parts_[place];
    if (part.rank != wanted.rank && std::find(wanted.kin.begin(), wanted.kin.end(), part.rank) == wanted.kin.end())
      continue;
    std::vector<PartBox> all = boxes_of(wanted.piece, wanted.elements);
    for (const BoxCopy& box : take_common(all, boxes_of(part.piece, part.elements)))
      count += box.num_rows * box.num_columns;
  }
  return count == wanted.elements.size();
}

Result<std::vector<RoutedCopy>> route_weights(const PartIndex& held, const std::vector<RoutedPart>& wanted) {
  std::vector<RoutedCopy> copies;
  std::set<std::string_view> names;
  for (size_t i = 0; i < wanted.size(); ++i) {
    WEFT_TRY(const std::vector<RoutedCopy> taken, held.take(wanted[i], i));
    copies.insert(copies.end(), taken.begin(), taken.end());
    names.insert(wanted[i].piece.name);
  }
  std::map<std::string_view, const RoutedPart*> firsts;
  for (const RoutedPart& part : held.parts()) {
    const RoutedPart& first = *firsts.emplace(part.piece.name, &part).first->second;
    if (part.is_trained != first.is_trained || (part.is_trained && part.updates != first.updates)) {
      return held.refuse(part.piece.name, "has parts whose moments are of different numbers of updates",
                         "The checkpoint is damaged: use another one.");
    }
    if (names.contains(part.piece.name)) continue;
    return refuse_unknown_weight(held, part.piece.name);
  }
  return copies;
}

Result<std::vector<RoutedCopy>> route_files(const PartIndex& held, const std::vector<RoutedPart>& wanted) {
  WEFT_TRY(std::vector<RoutedCopy> copies, route_weights(held, wanted));
  const bool is_their_own =
      std::all_of(wanted.begin(), wanted.end(), [&](const RoutedPart& part) { return held.is_held_once(part); });
  if (is_their_own) return copies;
  copies.clear();
  // In the order in which they were first taken, so that an element comes from the same part whoever wants it.
  std::map<std::string_view, std::vector<size_t>> are_read;
  std::vector<bool> is_read(held.parts().size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::vector<size_t>& first = are_read[wanted[i].piece.name];
    WEFT_TRY(const std::vector<RoutedCopy> taken, held.take(wanted[i], i, first));
    for (const RoutedCopy& copy : taken) {
      if (!is_read[copy.held]) first.push_back(copy.held);
      is_read[copy.held] = true;
    }
    copies.insert(copies.end(), taken.begin(), taken.end());
  }
  return copies;
}

namespace {

/// Parts of one file that lie beside each other, and how many elements of them each rank wants.
struct Stretch {
  std::vector<size_t> parts;
  std::map<int64_t, int64_t> wants;
  int64_t num_bytes = 0;  ///< of the parts that somebody wants
};

/// Every file from its begin, in stretches of at least these bytes; one that has fewer is one stretch.
std::vector<Stretch> stretches_of(const PartIndex& held, const std::vector<std::map<int64_t, int64_t>>& wants,
                                  int64_t least_bytes) {
  const std::vector<RoutedPart>& parts = held.parts();
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return parts[a].rank != parts[b].rank ? parts[a].rank < parts[b].rank : parts[a].piece.name < parts[b].piece.name;
  });
  std::vector<Stretch> stretches;
  const auto is_of_file = [&](const Stretch& stretch, int64_t rank) {
    return parts[stretch.parts.front()].rank == rank;
  };
  const auto join_short_end = [&] {
    if (stretches.size() < 2 || stretches.back().num_bytes >= least_bytes) return;
    const Stretch end = stretches.back();
    if (!is_of_file(stretches[stretches.size() - 2], parts[end.parts.front()].rank)) return;
    stretches.pop_back();
    Stretch& last = stretches.back();
    last.parts.insert(last.parts.end(), end.parts.begin(), end.parts.end());
    for (const auto& [rank, count] : end.wants) last.wants[rank] += count;
    last.num_bytes += end.num_bytes;
  };
  for (const size_t part : order) {
    const bool is_new_file = stretches.empty() || !is_of_file(stretches.back(), parts[part].rank);
    if (is_new_file) join_short_end();
    if (is_new_file || stretches.back().num_bytes >= least_bytes) stretches.emplace_back();
    Stretch& stretch = stretches.back();
    stretch.parts.push_back(part);
    for (const auto& [rank, count] : wants[part]) stretch.wants[rank] += count;
    if (!wants[part].empty()) stretch.num_bytes += stored_bytes(parts[part]);
  }
  join_short_end();
  return stretches;
}

}  // namespace

std::vector<int64_t> assign_readers(const PartIndex& held, const std::vector<RoutedPart>& wanted,
                                    const std::vector<RoutedCopy>& copies, int64_t least_bytes) {
  std::vector<std::map<int64_t, int64_t>> wants(held.parts().size());  // elements by rank
  for (const RoutedCopy& copy : copies)
    wants[copy.held][wanted[copy.wanted].rank] += copy.box.num_rows * copy.box.num_columns;
  std::map<int64_t, int64_t> load;
  std::vector<int64_t> readers(held.parts().size());
  for (const Stretch& stretch : stretches_of(held, wants, least_bytes)) {
    int64_t reader = held.parts()[stretch.parts.front()].rank;
    const auto is_better = [&](const auto& a, const auto& b) {
      if (a.second != b.second) return a.second > b.second;
      return load[a.first] < load[b.first];
    };
    if (!stretch.wants.empty()) {
      const auto best = std::min_element(stretch.wants.begin(), stretch.wants.end(), is_better);
      // Who wrote it reads it again, if nobody wants more of it.
      const auto own = stretch.wants.find(reader);
      if (own == stretch.wants.end() || own->second < best->second) reader = best->first;
    }
    load[reader] += stretch.num_bytes;
    for (const size_t part : stretch.parts) readers[part] = reader;
  }
  return readers;
}

std::vector<RoutedPart> gather_parts(Group& everyone, const std::vector<RoutedPart>& mine) {
  PartWriter writer;
  for (const RoutedPart& part : mine) writer.add(part);
  const std::string& own = writer.bytes();
  const int64_t size = std::ssize(own);
  std::vector<int64_t> sizes(static_cast<size_t>(everyone.size()));
  everyone
      .all_gather(ConstBuffer(&size, 1, DataType::kInt64),
                  Buffer{.data = sizes.data(), .count = everyone.size(), .type = DataType::kInt64})
      .wait();
  std::string all(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})), ' ');
  everyone
      .all_gather(ConstBuffer(own.data(), size, DataType::kUint8),
                  Buffer{.data = all.data(), .count = std::ssize(all), .type = DataType::kUint8}, sizes)
      .wait();
  std::vector<RoutedPart> parts;
  for (PartReader reader(all); !reader.is_done();) parts.push_back(reader.next());
  return parts;
}

}  // namespace weft
