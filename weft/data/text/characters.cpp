#include "weft/data/text/characters.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "weft/data/text/unicode_tables.h"

namespace weft {
namespace {

/// The numbers of a packed table, one after the other.
class Unpacker {
 public:
  explicit Unpacker(const char* packed) : next_(packed) {}

  bool at_end() const { return *next_ == 0; }
  uint32_t number() {
    uint32_t number = 0;
    for (int shift = 0;; shift += 5) {
      const uint32_t letter = value_of(*next_++);
      number |= (letter & 31) << shift;
      if (letter < 32) return number;
    }
  }
  int32_t difference() {
    const uint32_t n = number();
    return n % 2 == 0 ? static_cast<int32_t>(n / 2) : -static_cast<int32_t>(n / 2) - 1;
  }

 private:
  static uint32_t value_of(char letter) {
    if (letter >= 'A' && letter <= 'Z') return static_cast<uint32_t>(letter - 'A');
    if (letter >= 'a' && letter <= 'z') return static_cast<uint32_t>(letter - 'a') + 26;
    if (letter >= '0' && letter <= '9') return static_cast<uint32_t>(letter - '0') + 52;
    return letter == '+' ? 62 : 63;
  }

  const char* next_;
};

constexpr char32_t kHangulFirstVowel = 0x1161, kHangulLastTail = 0x11c2;

}  // namespace

const Characters& Characters::get() {
  static const Characters characters;
  return characters;
}

Characters::Decompositions Characters::unpack_decompositions(const char* packed) {
  Decompositions all;
  Unpacker unpacker(packed);
  char32_t code = 0;
  int32_t part = 0;
  while (!unpacker.at_end()) {
    code += unpacker.number();
    const uint32_t length = unpacker.number();
    all.entries.push_back({code, static_cast<uint32_t>(all.parts.size()), length});
    for (uint32_t i = 0; i < length; ++i) {
      part += unpacker.difference();
      all.parts.push_back(static_cast<char32_t>(part));
    }
  }
  return all;
}

std::span<const char32_t> Characters::Decompositions::find(char32_t code) const {
  const auto it = std::lower_bound(entries.begin(), entries.end(), code,
                                   [](const Decomposition& entry, char32_t c) { return entry.code < c; });
  if (it == entries.end() || it->code != code) return {};
  return {parts.data() + it->begin, it->length};
}

Characters::Characters() {
  namespace tables = unicode_tables;
  std::vector<uint8_t> all(0x110000);
  const auto mark = [&](const char* packed, uint8_t property) {
    Unpacker unpacker(packed);
    uint32_t end = 0;
    while (!unpacker.at_end()) {
      const uint32_t first = end + unpacker.number();
      end = first + unpacker.number() + 1;
      for (uint32_t c = first; c < end; ++c) all[c] |= property;
    }
  };
  mark(tables::kLetters, kLetter);
  mark(tables::kUpperLetters, kUpper);
  mark(tables::kLowerLetters, kLower);
  mark(tables::kNumbers, kNumber);
  mark(tables::kMarks, kMark);
  mark(tables::kSpaces, kSpace);
  mark(tables::kWords, kWord);
  canonical_ = unpack_decompositions(tables::kCanonical);
  compatible_ = unpack_decompositions(tables::kCompatible);

  Unpacker classes(tables::kClasses);
  for (uint32_t end = 0; !classes.at_end();) {
    const uint32_t first = end + classes.number();
    end = first + classes.number() + 1;
    const auto combining = static_cast<uint8_t>(classes.number());
    for (uint32_t c = first; c < end; ++c) {
      classes_[c] = combining;
      all[c] |= kChanging;
    }
  }
  Unpacker pairs(tables::kCompositions);
  char32_t first = 0;
  int32_t made = 0;
  std::unordered_map<char32_t, bool> is_made;
  while (!pairs.at_end()) {
    first += pairs.number();
    const char32_t second = pairs.number();
    made += pairs.difference();
    compositions_[uint64_t{first} << 32 | second] = static_cast<char32_t>(made);
    is_made[static_cast<char32_t>(made)] = true;
    all[second] |= kChanging;
  }
  for (const Decomposition& entry : canonical_.entries) {
    // What is put together again from its parts stays, unless its first part is itself changing.
    if (!is_made.contains(entry.code)) all[entry.code] |= kChanging;
  }
  for (char32_t c = kHangulFirstVowel; c <= kHangulLastTail; ++c) all[c] |= kChanging;

  std::map<std::array<uint8_t, 256>, uint16_t> known;
  for (size_t page = 0; page < page_of_.size(); ++page) {
    std::array<uint8_t, 256> bytes{};
    std::memcpy(bytes.data(), all.data() + page * 256, 256);
    const auto [it, is_new] = known.try_emplace(bytes, static_cast<uint16_t>(pages_.size()));
    if (is_new) pages_.push_back(bytes);
    page_of_[page] = it->second;
  }
}

std::span<const char32_t> Characters::decomposition(char32_t code, bool compatible) const {
  if (compatible) {
    const std::span<const char32_t> parts = compatible_.find(code);
    if (!parts.empty()) return parts;
  }
  return canonical_.find(code);
}

uint8_t Characters::combining_class(char32_t code) const {
  const auto it = classes_.find(code);
  return it == classes_.end() ? 0 : it->second;
}

char32_t Characters::composition(char32_t first, char32_t second) const {
  const auto it = compositions_.find(uint64_t{first} << 32 | second);
  return it == compositions_.end() ? 0 : it->second;
}

}  // namespace weft
