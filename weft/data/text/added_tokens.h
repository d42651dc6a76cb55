#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// A token that is found in the text as it stands, before anything is split.
struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool is_special = false;     ///< decoding may leave it out
  bool is_normalized = false;  ///< looked for in the normalized text
  bool is_single_word = false;
  bool takes_left = false;   ///< blanks before it belong to it
  bool takes_right = false;  ///< and after it

  bool operator==(const AddedToken&) const = default;
};

/// Finds added tokens: at each place the longest, from the left.
class AddedTokens {
 public:
  /// Bytes of a token, more than any real one has. The time that a place of a text takes grows with it alone, not with
  /// how many tokens there are.
  static constexpr size_t kMostBytes = 1024;

  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// Bytes [begin, end) of a text, which are a token (`id` >= 0) or other text.
  struct Part {
    size_t begin = 0;
    size_t end = 0;
    int64_t id = -1;
  };
  /// The parts of a valid text, in order.
  void split(std::string_view text, std::vector<Part>& parts) const;

  bool empty() const { return tokens_.empty(); }

 private:
  /// The longest token that begins here; nullptr: none.
  const AddedToken* at(std::string_view text) const;

  static constexpr size_t kNone = static_cast<size_t>(-1);

  std::vector<AddedToken> tokens_;                  ///< by their bytes
  std::vector<size_t> shorter_;                     ///< of each the longest other that it begins with
  std::vector<std::pair<size_t, size_t>> by_byte_;  ///< for each first byte, its range of tokens
};

}  // namespace weft
