#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/data/text/characters.h"

namespace weft {

/// The regular expression by which a tokenizer cuts text into pieces before it merges bytes. Each of its alternatives
/// is recognised as one of those that byte-level families use, and matched by hand: no regular expression runs.
class SplitPattern {
 public:
  /// More than any tokenizer has: each is tried at each place of a text.
  static constexpr size_t kMostAlternatives = 64;

  /// What byte-level tokenizers use when their file gives none.
  static SplitPattern of_byte_level();
  /// An alternative that is not known is refused by name.
  static Result<SplitPattern> parse(std::string_view pattern, const std::string& source, const std::string& field);

  /// What a text was searched for in vain, so that its next pieces do not go through the same run again.
  struct Misses {
    struct Stretch {
      size_t begin = 0, end = 0;
      bool has(size_t place) const { return place >= begin && place < end; }
    };
    Stretch line_ends;   ///< blanks without one
    Stretch cased_word;  ///< where no word begins that ends in lower case
  };
  /// The end of the piece of a valid text that begins at `begin`. Text that no alternative matches is a piece, too.
  /// Pieces are asked for from the left, with the `misses` of those before.
  size_t piece_end(std::string_view text, size_t begin, Misses& misses) const;

 private:
  enum class Kind : uint8_t {
    kContraction,    ///< 's and the like, in any case
    kLiteral,        ///< a given text
    kRun,            ///< perhaps a space, a run of a class, then perhaps a run of given bytes
    kPrefixedRun,    ///< perhaps one that is no letter, number or line end, then a run
    kCasedWord,      ///< the same before a word that ends in lower case
    kCapitals,       ///< the same before capitals and then lower case
    kLineEnds,       ///< blanks up to the last line end among them
    kTrailingSpace,  ///< blanks, but for the last where something follows
    kSpace           ///< blanks
  };
  struct Alternative {
    Kind kind = Kind::kSpace;
    bool takes_space = false;
    bool is_negated = false;  ///< kRun: of what has none of the properties
    bool takes_contraction = false;
    uint8_t properties = 0;      ///< of the run's characters
    uint32_t most = UINT32_MAX;  ///< characters of the run
    std::string text;            ///< the literal, or the bytes that may follow a run
  };

  size_t match(const Alternative& alternative, std::string_view text, size_t begin, Misses& misses) const;
  size_t match_run(const Alternative& alternative, std::string_view text, size_t begin) const;
  size_t match_prefixed(const Alternative& alternative, std::string_view text, size_t begin) const;
  size_t match_cased(const Alternative& alternative, std::string_view text, size_t begin, Misses& misses) const;
  size_t match_line_ends(std::string_view text, size_t begin, Misses& misses) const;
  size_t run_end(std::string_view text, size_t begin, uint8_t properties, bool negated, uint32_t most) const;
  uint8_t properties_at(std::string_view text, size_t offset) const {
    return characters_->properties(utf8_code(text, offset));
  }
  static char32_t utf8_code(std::string_view text, size_t offset);
  static bool parse_alternative(std::string_view pattern, Alternative& alternative);

  std::vector<Alternative> alternatives_;
  const Characters* characters_ = &Characters::get();
};

}  // namespace weft
