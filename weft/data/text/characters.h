#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weft {

/// What Unicode says of characters, as Hugging Face's `tokenizers` has it (its version differs from that of system
/// libraries).
class Characters {
 public:
  enum Property : uint8_t {
    kLetter = 1,
    kNumber = 2,
    kMark = 4,
    kSpace = 8,
    kWord = 16,
    kUpper = 32,     ///< Lu and Lt
    kLower = 64,     ///< Ll
    kChanging = 128  ///< canonical composition may change it, or join it to what is before
  };

  /// The tables, unpacked when they are first asked for.
  static const Characters& get();

  uint8_t properties(char32_t code) const { return pages_[page_of_[code >> 8]][code & 0xff]; }
  bool has(char32_t code, uint8_t any) const { return (properties(code) & any) != 0; }

  /// Its full decomposition, empty where it has none. Hangul syllables are not in it: they follow a rule.
  std::span<const char32_t> decomposition(char32_t code, bool compatible) const;
  /// 0 for what is no combining mark.
  uint8_t combining_class(char32_t code) const;
  /// The character that two are composed to; 0: none.
  char32_t composition(char32_t first, char32_t second) const;

 private:
  struct Decomposition {
    char32_t code;
    uint32_t begin;
    uint32_t length;
  };
  struct Decompositions {
    std::vector<Decomposition> entries;
    std::vector<char32_t> parts;
    std::span<const char32_t> find(char32_t code) const;
  };

  Characters();
  static Decompositions unpack_decompositions(const char* packed);

  std::array<uint16_t, 0x1100> page_of_{};
  std::vector<std::array<uint8_t, 256>> pages_;
  Decompositions canonical_;
  Decompositions compatible_;
  std::unordered_map<char32_t, uint8_t> classes_;
  std::unordered_map<uint64_t, char32_t> compositions_;
};

}  // namespace weft
