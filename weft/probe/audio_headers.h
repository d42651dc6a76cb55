#pragma once

#include <string>

#include "weft/probe/audio_info.h"
#include "weft/probe/header_bytes.h"

namespace weft {

/// What one format's header gives: a clip, or why there is none.
struct AudioFinding {
  AudioInfo clip;
  std::string problem;  ///< empty where there is a clip
  std::string advice;
};

// Each is called on bytes that begin with the format's mark.
AudioFinding read_wav_header(HeaderBytes& bytes);
AudioFinding read_flac_header(HeaderBytes& bytes);
AudioFinding read_ogg_header(HeaderBytes& bytes);

}  // namespace weft
