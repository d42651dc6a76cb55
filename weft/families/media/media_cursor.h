#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/result.h"
#include "weft/families/media/rope_index.h"

namespace weft {

/// Goes through a sample's media in the order of their tokens and judges whether the tokens are what the media give.
class MediaCursor {
 public:
  MediaCursor(const RopeRules& rules, std::span<const int64_t> tokens, const SampleMedia& media)
      : rules_(rules), tokens_(tokens), media_(media) {}

  /// The index of the media that begin at `at`: the next of their kind.
  Result<size_t> take_image(int64_t at);
  Result<size_t> take_video(int64_t at);
  Result<size_t> take_audio(int64_t at);

  /// From `at` stand exactly `expected` tokens like that at `at`. Returns `expected`.
  Result<int64_t> check_run(int64_t at, int64_t expected, std::string_view what) const;

  /// From `at` stand exactly `expected` tokens of video or audio. Returns `expected`.
  Result<int64_t> check_mixed_run(int64_t at, int64_t expected, std::string_view what) const;

  /// The token before `at`, where `what` begins, is `id`, called `name`. Returns `at`.
  Result<int64_t> check_before(int64_t at, int64_t id, std::string_view name, std::string_view what) const;

  /// The token at `at` is `id`, called `name`, because `what` needs it there. Returns the token after it.
  Result<int64_t> check_token(int64_t at, int64_t id, std::string_view name, std::string_view what) const;

  /// No media are left over. Returns how many there were.
  Result<int64_t> check_all_taken() const;

 private:
  std::string found_at(int64_t at) const;

  const RopeRules& rules_;
  std::span<const int64_t> tokens_;
  const SampleMedia& media_;
  size_t images_taken_ = 0;
  size_t videos_taken_ = 0;
  size_t audios_taken_ = 0;
};

}  // namespace weft
