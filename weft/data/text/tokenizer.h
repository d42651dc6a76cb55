#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/document.h"
#include "weft/data/text/added_tokens.h"
#include "weft/data/text/byte_pairs.h"
#include "weft/data/text/normalize.h"
#include "weft/data/text/split_pattern.h"

namespace weft {

/// Text to tokens and back, as Hugging Face's `tokenizers` does it with a byte-level BPE `tokenizer.json`. It does not
/// change, and several threads may use it, each with a cache of its own.
class Tokenizer {
 public:
  /// What is not a byte-level BPE, or needs a step that is not known, is refused by name.
  static Result<Tokenizer> read(const Document& document);
  /// `folder`/tokenizer.json.
  static Result<Tokenizer> read_folder(const std::filesystem::path& folder);

  /// Appends the text's tokens. Broken UTF-8 is replaced. With `begins`, also where each token begins in the text (in
  /// what is left of it after replacement).
  void encode(std::string_view text, PieceCache& cache, std::vector<int64_t>& ids,
              std::vector<size_t>* begins = nullptr) const;
  std::vector<int64_t> encode(std::string_view text) const;
  /// With the tokens that the file puts before and after a text.
  std::vector<int64_t> encode_with_ends(std::string_view text) const;

  /// The text; bytes that are no characters are replaced. Unknown ids are left out.
  std::string decode(const std::vector<int64_t>& ids, bool skip_special = false) const;
  /// The bytes of one token, which need not be whole characters.
  std::string_view bytes_of(int64_t id) const;
  bool is_special(int64_t id) const;

  /// The id of a token as it is written in the file, like "<|image_pad|>".
  std::optional<int64_t> find(std::string_view token) const;
  /// One more than the largest id.
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }

 private:
  struct Reader;

  void encode_text(std::string_view text, size_t offset, PieceCache& cache, std::vector<int64_t>& ids,
                   std::vector<size_t>* begins) const;
  void encode_normal(std::string_view text, PieceCache& cache, std::vector<int64_t>& ids,
                     std::vector<size_t>* begins) const;
  void encode_pieces(std::string_view text, size_t level, size_t offset, PieceCache& cache, std::vector<int64_t>& ids,
                     std::vector<size_t>* begins) const;

  std::optional<NormalForm> form_;
  std::vector<SplitPattern> splits_;
  AddedTokens plain_added_;
  AddedTokens normalized_added_;
  BytePairs pairs_;
  std::vector<std::string> bytes_;  ///< of each token
  std::vector<bool> is_special_;
  std::unordered_map<std::string, int64_t> ids_;
  std::vector<int64_t> before_, after_;
};

/// The text of tokens that come one at a time: each call gives the characters that became whole.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  std::string add(int64_t id);
  /// What is left at the end: replacement characters for bytes that never became one.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string held_;
};

}  // namespace weft
