#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/document.h"
#include "weft/base/fields.h"
#include "weft/base/text.h"
#include "weft/weights/safetensors_header.h"
#include "weft/weights/weight_entry.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little, "weights are used as they are stored, little-endian");

constexpr const char* kDamaged = "The file is damaged or was written wrongly: copy, download or convert it again.";
constexpr const char* kIncomplete = "Copying or downloading it was cut short: do that again.";

std::string shown(const std::vector<int64_t>& numbers) {
  return fmt::format("[{}]",
                     fmt::join(numbers.begin(), numbers.begin() + std::min<ptrdiff_t>(std::ssize(numbers), 16), ", ")) +
         (numbers.size() > 16 ? " and more" : "");
}

/// A tensor as the header describes it.
struct HeaderRow {
  WeightInfo info;
  int64_t begin = 0;
  int64_t end = 0;
};

/// Other files that are mistaken for weights, by their first bytes.
std::string advice_for(std::string_view start) {
  if (start.starts_with("version https://git-lfs"))
    return "This is a Git LFS pointer, not the weights: run `git lfs pull` in its folder.";
  if (start.starts_with("PK\x03\x04") || start.starts_with("\x80\x02"))
    return "This looks like a PyTorch file: save its tensors with the Python package safetensors.";
  return kDamaged;
}

/// Reads one file; every step says what is wrong or goes on.
class Reader {
 public:
  Reader(std::span<const std::byte> file, const std::string& source) : file_(file), source_(source) {}

  Result<SafetensorsContent> read() {
    WEFT_TRY(const std::string_view text, header_text());
    WEFT_TRY(const Document document,
             parse_document(text, source_, Syntax::kJson,
                            {.max_bytes = kMaxHeaderBytes, .max_depth = 4, .max_values = 16'000'000}));
    SafetensorsContent content;
    std::vector<HeaderRow> rows;
    for (const auto& [name, value] : document.root.items()) {
      if (name == "__metadata__") {
        WEFT_TRY(content.metadata, metadata(value));
      } else {
        WEFT_TRY(rows.emplace_back(), row(name, value));
      }
    }
    std::stable_sort(rows.begin(), rows.end(), [](const HeaderRow& a, const HeaderRow& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    const auto data = file_.subspan(static_cast<size_t>(kHeaderLengthBytes) + text.size());
    if (auto error = check_places(rows, std::ssize(data))) return *std::move(error);
    content.entries.reserve(rows.size());
    for (HeaderRow& r : rows) {
      const auto bytes = data.subspan(static_cast<size_t>(r.begin), static_cast<size_t>(r.end - r.begin));
      content.entries.push_back({.info = std::move(r.info), .bytes = bytes, .owner = nullptr});
    }
    return content;
  }

 private:
  Error refuse(std::string_view field, std::string problem, std::string advice = kDamaged) const {
    return {.source = source_,
            .field = printable(field, kLongestShownName),
            .problem = std::move(problem),
            .advice = std::move(advice)};
  }

  Result<std::string_view> header_text() const {
    const std::string_view all(reinterpret_cast<const char*>(file_.data()), file_.size());
    if (std::ssize(file_) < kHeaderLengthBytes) {
      return refuse("",
                    fmt::format("is {} bytes long, but a safetensors file starts with 8 that give its header's length",
                                file_.size()),
                    kIncomplete);
    }
    uint64_t length = 0;
    std::memcpy(&length, file_.data(), sizeof length);
    if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
      return refuse(
          "",
          fmt::format("is no safetensors file: its first 8 bytes give a header of {} bytes, and at most {} are allowed",
                      length, with_commas(kMaxHeaderBytes)),
          advice_for(all));
    }
    if (length > file_.size() - sizeof length) {
      return refuse("",
                    fmt::format("ends inside its header: the header takes {} bytes, and {} follow its length", length,
                                file_.size() - sizeof length),
                    kIncomplete);
    }
    const std::string_view text = all.substr(sizeof length, length);
    if (!text.starts_with('{')) {
      return refuse("",
                    fmt::format("is no safetensors file: its header starts with {}, and must start with '{{'",
                                text.empty() ? "nothing" : in_quotes(text.substr(0, 1))),
                    advice_for(all));
    }
    return text;
  }

  Result<WeightMetadata> metadata(const Json& value) const {
    if (value.is_null()) return WeightMetadata();
    if (!value.is_object())
      return refuse("__metadata__", "is " + describe_value(value) + ", and must be an object of texts");
    WeightMetadata texts(std::in_place);
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string())
        return refuse("__metadata__." + key, "is " + describe_value(text) + ", and must be a text");
      texts->emplace_back(key, text.get<std::string>());
    }
    return texts;
  }

  Result<HeaderRow> row(const std::string& name, const Json& value) const {
    if (!value.is_object()) {
      return refuse(name, "is " + describe_value(value) + ", and must be an object with dtype, shape and data_offsets");
    }
    HeaderRow row{.info = {.name = name}};
    const auto missing = [&](const char* key) { return refuse(name, fmt::format("has no {}", key)); };
    const auto dtype = value.find("dtype"), shape = value.find("shape"), offsets = value.find("data_offsets");
    if (dtype == value.end()) return missing("dtype");
    if (shape == value.end()) return missing("shape");
    if (offsets == value.end()) return missing("data_offsets");

    if (!dtype->is_string())
      return refuse(name, "dtype is " + describe_value(*dtype) + ", and must be a text like 'BF16'");
    const auto type = weight_type_named(dtype->get_ref<const std::string&>());
    if (!type) {
      return refuse(name,
                    fmt::format("dtype is {}, and must be {}", in_quotes(dtype->get_ref<const std::string&>()),
                                all_weight_types()),
                    "Convert the weight to one of these.");
    }
    row.info.type = *type;
    WEFT_TRY(row.info.shape, integers(name, "shape", *shape));
    WEFT_TRY(const std::vector<int64_t> places, integers(name, "data_offsets", *offsets));
    if (places.size() != 2 || places[1] < places[0]) {
      return refuse(name, fmt::format("data_offsets are {}, and must be two numbers, begin and end", shown(places)));
    }
    row.begin = places[0];
    row.end = places[1];
    const std::optional<int64_t> size = bytes_of(*type, row.info.shape);
    if (!size) {
      const bool is_packed = bits_of(*type) < 8;
      return refuse(name, fmt::format("shape {} of {} {}", shown(row.info.shape), name_of(*type),
                                      is_packed ? "does not fill whole bytes, or more than 63 bits can count"
                                                : "takes more bytes than 63 bits can count"));
    }
    if (row.end - row.begin != *size) {
      return refuse(name,
                    fmt::format("data_offsets are {}, which is {} bytes, but shape {} of {} takes {}", shown(places),
                                row.end - row.begin, shown(row.info.shape), name_of(*type), *size));
    }
    return row;
  }

  Result<std::vector<int64_t>> integers(const std::string& name, const char* key, const Json& list) const {
    constexpr const char* kAllowed = "must be a list of whole numbers from 0 to 9,223,372,036,854,775,807";
    if (!list.is_array()) return refuse(name, fmt::format("{} is {}, and {}", key, describe_value(list), kAllowed));
    std::vector<int64_t> numbers;
    numbers.reserve(list.size());
    for (const Json& number : list) {
      // A negative number is signed in the parser's hands, all others are not.
      const bool is_right = number.is_number_unsigned() &&
                            number.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      if (!is_right)
        return refuse(name, fmt::format("{}[{}] is {}, and {}", key, numbers.size(), describe_value(number), kAllowed));
      numbers.push_back(number.get<int64_t>());
    }
    return numbers;
  }

  /// Rows in the order of their places follow one another from the first byte of the data to its last.
  std::optional<Error> check_places(const std::vector<HeaderRow>& rows, int64_t data_bytes) const {
    int64_t next = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const HeaderRow& row = rows[i];
      if (row.begin == next) {
        next = row.end;
        continue;
      }
      const std::string before = i == 0 ? "the data begins at byte 0"
                                        : fmt::format("{} ends at byte {}", in_quotes(rows[i - 1].info.name), next);
      return refuse(row.info.name, fmt::format("begins at byte {} of the data, but {}, and there may be {}", row.begin,
                                               before, row.begin > next ? "no hole between tensors" : "no overlap"));
    }
    if (data_bytes < next) {
      const auto cut = std::find_if(rows.begin(), rows.end(), [&](const HeaderRow& r) { return r.end > data_bytes; });
      return refuse(
          cut->info.name,
          fmt::format("ends at byte {} of the data, but the file holds only {} of {}", cut->end, data_bytes, next),
          kIncomplete);
    }
    if (data_bytes > next) {
      return refuse("", fmt::format("goes on for {} bytes after its last tensor, which ends at byte {} of the data",
                                    data_bytes - next, next));
    }
    return std::nullopt;
  }

  std::span<const std::byte> file_;
  const std::string& source_;
};

}  // namespace

Result<SafetensorsContent> read_safetensors(std::span<const std::byte> file, const std::string& source) {
  return Reader(file, source).read();
}

}  // namespace weft
