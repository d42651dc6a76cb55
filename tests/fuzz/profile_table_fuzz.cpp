#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/profile/profile_table.h"

using namespace weft;

/// A table that is read is a profile that can be written and read back the same.
int weft::fuzz_profile_table(const uint8_t* data, size_t size) {
  if (size > 1 << 14) return 0;
  const Result<Profile> profile = parse_profile_table(as_text(data, size), "input");
  if (!profile) {
    claim_good_message(profile);
    return 0;
  }
  claim(!profile->blocks.empty() || !profile->links.empty() || !profile->updates.empty());
  Profile named = *profile;
  named.device = named.model = named.model_hash = "x";
  const Result<Profile> again = read_profile({.source = "again", .root = to_json(named)});
  claim(again.ok() && to_json(*again) == to_json(named));
  return 0;
}
