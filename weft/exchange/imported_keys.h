#pragma once

#include <cfloat>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/fields.h"
#include "weft/base/json.h"
#include "weft/exchange/shell_script.h"
#include "weft/meaning/violation.h"
#include "weft/spec/cluster.h"

namespace weft {

/// What became of a setting of another system.
enum class KeyFate {
  kRead,
  kDefault,        ///< not given: what the system takes then
  kIgnored,        ///< has no bearing on plan and training, or Weft has nothing like it and says what that means
  kNotUnderstood,  ///< may change what runs, and Weft does not know how
};
/// "read", "default", "ignored", "not understood".
std::string_view name_of(KeyFate fate);

struct ImportedKey {
  std::string key;
  std::string value;
  KeyFate fate = KeyFate::kRead;
  std::string meaning;  ///< in Weft, or why it is not
  Place place;          ///< where the value was written; line 0 where it was not
};

/// Settings that were given, by key, and what became of each. Readers ask for keys one by one; what nobody asked for is
/// not understood. Wrong values and contradictions are collected, all of them.
class ImportedKeys {
 public:
  struct Given {
    std::string key;
    Json value;           ///< null: a flag
    std::string unknown;  ///< why the value is not known
    Place place;
  };

  /// No setting is larger.
  static constexpr int64_t kMostInteger = 1'000'000'000'000'000;
  static constexpr IntegerRange kUsualIntegers{1, kMostInteger};
  static constexpr IntegerRange kWithZero{0, kMostInteger};
  static constexpr NumberRange kAllNumbers{-DBL_MAX, DBL_MAX};
  /// Of ranks along an axis: no more than devices.
  static constexpr IntegerRange kDegrees{1, kMostDevices};

  explicit ImportedKeys(std::vector<std::string> file_names) : file_names_(std::move(file_names)) {}

  /// A later value takes the place of an earlier one, as it does in the systems that are read.
  void give(Given given);
  bool has(const std::string& key) const { return given_.contains(key); }
  const Given* find(const std::string& key) const;

  /// The value, or what the system takes where nothing is given; both are listed with their meaning.
  int64_t integer(const std::string& key, int64_t usual, const std::string& meaning,
                  IntegerRange range = kUsualIntegers);
  std::optional<int64_t> integer_if(const std::string& key, const std::string& meaning,
                                    IntegerRange range = kUsualIntegers);
  /// A whole number that a batch is the product of: above 0, and none whose products overflow.
  int64_t factor(const std::string& key, int64_t usual, const std::string& meaning);
  double number(const std::string& key, double usual, const std::string& meaning, NumberRange range = kAllNumbers);
  std::optional<double> number_if(const std::string& key, const std::string& meaning, NumberRange range = kAllNumbers);
  /// A list of so many numbers, each with its range.
  std::optional<std::vector<double>> numbers_if(const std::string& key, const std::string& meaning,
                                                const std::vector<NumberRange>& ranges);
  std::string text(const std::string& key, const std::string& usual, const std::string& meaning);
  std::optional<std::string> text_if(const std::string& key, const std::string& meaning);
  /// One of these words. The first is usual.
  std::string choice(const std::string& key, std::vector<std::string> words, const std::string& meaning);
  bool flag(const std::string& key, const std::string& meaning, bool usual = false);
  /// Lists of numbers, also in lists; nothing where it is not given.
  const Json* raw(const std::string& key, const std::string& meaning);

  void ignore(const std::string& key, const std::string& why);
  void not_understood(const std::string& key, const std::string& why);
  /// Something that was not given and not decided by a default of the system.
  void assume(const std::string& key, const std::string& value, const std::string& meaning);

  /// Values that contradict each other, or are none.
  void complain(const std::string& key, std::string problem);
  /// What the system accepts without a word, and a user may not expect.
  void note(std::string sentence) { notes_.push_back(std::move(sentence)); }

  /// Keys that nobody asked for.
  std::vector<std::string> left() const;

  const std::vector<ImportedKey>& rows() const { return rows_; }
  const std::vector<Violation>& complaints() const { return complaints_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<std::string>& file_names() const { return file_names_; }
  /// "train.sh, line 12", or nothing.
  std::string where(Place place) const;

 private:
  const Given* take(const std::string& key, const std::string& meaning);
  void list(const std::string& key, std::string value, KeyFate fate, const std::string& meaning, Place place = {});

  std::vector<std::string> file_names_;
  std::map<std::string, Given> given_;
  std::map<std::string, size_t> listed_;  ///< place in rows_
  std::vector<ImportedKey> rows_;
  std::vector<Violation> complaints_;
  std::vector<std::string> notes_;
};

/// The whole number that a value of another system is, none beyond kMostInteger.
std::optional<int64_t> whole_number_in(const Json& value);

/// A value as tables show it.
std::string value_text(const Json& value);

}  // namespace weft
