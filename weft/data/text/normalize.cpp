#include "weft/data/text/normalize.h"

#include <algorithm>

#include "weft/base/utf8.h"
#include "weft/data/text/characters.h"

namespace weft {
namespace {

// Hangul syllables are made of a lead, a vowel and perhaps a tail, by arithmetic.
constexpr char32_t kSyllables = 0xac00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11a7;
constexpr char32_t kNumLeads = 19, kNumVowels = 21, kNumTails = 28;

char32_t compose(const Characters& characters, char32_t a, char32_t b) {
  if (a >= kLeads && a < kLeads + kNumLeads && b >= kVowels && b < kVowels + kNumVowels)
    return kSyllables + ((a - kLeads) * kNumVowels + (b - kVowels)) * kNumTails;
  const bool is_open_syllable =
      a >= kSyllables && a < kSyllables + kNumLeads * kNumVowels * kNumTails && (a - kSyllables) % kNumTails == 0;
  if (is_open_syllable && b > kTails && b < kTails + kNumTails) return a + (b - kTails);
  return characters.composition(a, b);
}

/// A part whose borders nothing is composed across.
class PartNormalizer {
 public:
  PartNormalizer(const Characters& characters, NormalForm form)
      : characters_(characters), is_compatible_(form == NormalForm::kNfkc) {}

  void append(std::string_view part, std::string& out) {
    decompose(part);
    sort_marks();
    compose_pairs();
    for (const char32_t code : codes_) append_utf8(out, code);
  }

 private:
  void decompose(std::string_view part) {
    codes_.clear();
    for (size_t i = 0; i < part.size();) {
      const Utf8Character next = utf8_at(part, i);
      i += next.length;
      if (next.code >= kSyllables && next.code < kSyllables + kNumLeads * kNumVowels * kNumTails) {
        const char32_t index = next.code - kSyllables;
        codes_.push_back(kLeads + index / (kNumVowels * kNumTails));
        codes_.push_back(kVowels + index % (kNumVowels * kNumTails) / kNumTails);
        if (index % kNumTails != 0) codes_.push_back(kTails + index % kNumTails);
        continue;
      }
      const std::span<const char32_t> parts = characters_.decomposition(next.code, is_compatible_);
      if (parts.empty()) {
        codes_.push_back(next.code);
      } else {
        codes_.insert(codes_.end(), parts.begin(), parts.end());
      }
    }
    classes_.resize(codes_.size());
    for (size_t i = 0; i < codes_.size(); ++i) classes_[i] = characters_.combining_class(codes_[i]);
  }

  void sort_marks() {
    for (size_t i = 0; i < codes_.size();) {
      if (classes_[i] == 0) {
        ++i;
        continue;
      }
      size_t end = i;
      while (end < codes_.size() && classes_[end] != 0) ++end;
      marks_.clear();
      for (size_t k = i; k < end; ++k) marks_.emplace_back(classes_[k], codes_[k]);
      std::stable_sort(marks_.begin(), marks_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t k = i; k < end; ++k) {
        classes_[k] = marks_[k - i].first;
        codes_[k] = marks_[k - i].second;
      }
      i = end;
    }
  }

  void compose_pairs() {
    constexpr size_t kNone = static_cast<size_t>(-1);
    size_t starter = kNone, size = 0;
    uint8_t last_class = 0;
    for (size_t i = 0; i < codes_.size(); ++i) {
      const uint8_t own = classes_[i];
      // A mark is blocked from the starter by one of its own or a higher class between them, and a starter by anything.
      const bool is_next = starter != kNone && starter + 1 == size;
      const bool is_blocked = !is_next && (own == 0 || last_class >= own);
      if (starter != kNone && !is_blocked) {
        if (const char32_t made = compose(characters_, codes_[starter], codes_[i]); made != 0) {
          codes_[starter] = made;
          continue;
        }
      }
      if (own == 0) starter = size;
      last_class = own;
      codes_[size] = codes_[i];
      classes_[size] = own;
      ++size;
    }
    codes_.resize(size);
  }

  const Characters& characters_;
  bool is_compatible_;
  std::vector<char32_t> codes_;
  std::vector<uint8_t> classes_;
  std::vector<std::pair<uint8_t, char32_t>> marks_;
};

}  // namespace

Normalized normalize(std::string_view text, NormalForm form) {
  const Characters& characters = Characters::get();
  const auto is_changing = [&](char32_t code) {
    return code >= 0x80 && (characters.has(code, Characters::kChanging) ||
                            (form == NormalForm::kNfkc && !characters.decomposition(code, true).empty()));
  };
  Normalized result;
  PartNormalizer normalizer(characters, form);
  size_t done = 0;       // text before it is in the result, once there is one
  size_t last_kept = 0;  // where the last character that does not change begins
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      last_kept = i++;
      continue;
    }
    const Utf8Character next = utf8_at(text, i);
    if (!is_changing(next.code)) {
      last_kept = i;
      i += next.length;
      continue;
    }
    // From the character before, which may take marks, to the next that does not change.
    size_t end = i;
    while (end < text.size()) {
      const Utf8Character other = utf8_at(text, end);
      if (!is_changing(other.code)) break;
      end += other.length;
    }
    result.text.append(text, done, last_kept - done);
    result.borders.push_back({last_kept, result.text.size()});
    normalizer.append(text.substr(last_kept, end - last_kept), result.text);
    result.borders.push_back({end, result.text.size()});
    done = end;
    last_kept = end;
    i = end;
  }
  if (result.borders.empty()) return {};
  result.text.append(text, done);
  result.changed = result.text != text;
  return result;
}

}  // namespace weft
