#include "weft/data/conversations/record_list.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/document.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

constexpr size_t kBlockBytes = 1 << 20;
constexpr uint64_t kMostRecordBytes = 64u << 20;
constexpr DocumentLimits kRecordLimits{.max_bytes = kMostRecordBytes, .max_depth = 64, .max_values = 2'000'000};

bool is_json_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

Error broken_set(const std::filesystem::path& path, std::string problem) {
  return Error{.source = path.string(),
               .problem = std::move(problem),
               .advice = "A data set is a JSON list of records, or a record a line (JSONL)."};
}

}  // namespace

void RecordList::Closer::operator()(const int* descriptor) const {
  close(*descriptor);
  delete descriptor;
}

RecordList::RecordList(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), file_(new int(descriptor), Closer{}) {}

bool RecordList::read_block(uint64_t offset, std::string& block) const {
  block.resize(kBlockBytes);
  const ssize_t got = pread(*file_, block.data(), block.size(), static_cast<off_t>(offset));
  block.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return got > 0;
}

Result<RecordList> RecordList::open(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return broken_set(path, "is a folder, a file is needed");
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return Error{.source = path.string(),
                 .problem = std::string("cannot be read: ") + std::strerror(errno),
                 .advice = "Check the path and its permissions."};
  }
  RecordList file(path, descriptor);
  std::string block;
  if (!file.read_block(0, block)) return broken_set(path, "is empty");
  const uint64_t first = block.starts_with("\xef\xbb\xbf") ? 3 : 0;  // a byte order mark
  uint64_t begin = first;
  while (begin < block.size() && is_json_blank(block[begin])) ++begin;
  const bool is_list = begin < block.size() && block[begin] == '[';
  if (auto error = is_list ? file.find_items(begin + 1) : file.find_lines(first)) return *std::move(error);
  if (file.places_.empty()) return broken_set(path, "has no records");
  return file;
}

std::optional<Error> RecordList::find_lines(uint64_t begin) {
  std::string block;
  uint64_t line = begin;
  bool is_blank = true;
  const auto end_line = [&](uint64_t end) {
    if (!is_blank) places_.push_back({line, end - line});
    is_blank = true;
    line = end + 1;
  };
  uint64_t offset = begin;
  for (; read_block(offset, block); offset += block.size()) {
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i] == '\n') {
        end_line(offset + i);
      } else if (is_blank && !is_json_blank(block[i])) {
        is_blank = false;
      }
    }
  }
  end_line(offset);
  return std::nullopt;
}

std::optional<Error> RecordList::find_items(uint64_t begin) {
  std::string block;
  int64_t depth = 1;
  bool in_text = false, is_escaped = false, is_item = false;
  uint64_t item = 0, item_end = 0;
  const auto broken_at = [&](uint64_t place, std::string_view problem) {
    return broken_set(path_,
                      fmt::format("{} at byte {}, after {}", problem, place, counted(std::ssize(places_), "record")));
  };
  uint64_t offset = begin;
  for (; read_block(offset, block); offset += block.size()) {
    for (size_t i = 0; i < block.size(); ++i) {
      const char c = block[i];
      if (!in_text && is_json_blank(c)) continue;
      if (depth == 0) return broken_at(offset + i, "goes on behind the end of its list");
      if (in_text) {
        in_text = is_escaped || c != '"';
        is_escaped = !is_escaped && c == '\\';
      } else if (depth == 1 && (c == ',' || c == ']' || c == '}')) {
        if (c == '}') return broken_at(offset + i, "has a brace that closes nothing");
        // Only a list without any record ends before one.
        if (!is_item && (c == ',' || !places_.empty())) return broken_at(offset + i, "lacks a record beside a comma");
        if (is_item) places_.push_back({item, item_end - item});
        is_item = false;
        if (c == ']') depth = 0;
        continue;
      } else if (c == '"') {
        in_text = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        --depth;
      }
      if (!is_item) item = offset + i;
      is_item = true;
      item_end = offset + i + 1;
    }
  }
  if (depth > 0) {
    return broken_set(path_, fmt::format("ends inside its list, after {}", counted(std::ssize(places_), "record")));
  }
  return std::nullopt;
}

Result<Json> RecordList::read(int64_t index) const {
  const Place& place = places_[static_cast<size_t>(index)];
  const std::string source = fmt::format("{}, record {}", path_.string(), index);
  if (place.bytes > kMostRecordBytes) {
    return Error{.source = source,
                 .problem = fmt::format("has {} bytes, {} are allowed", place.bytes, kMostRecordBytes),
                 .advice = "Keep media in files of their own."};
  }
  std::string text(place.bytes, '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t got = pread(*file_, text.data() + done, text.size() - done, static_cast<off_t>(place.offset + done));
    if (got <= 0) {
      return Error{.kind = ErrorKind::kJob,
                   .source = source,
                   .problem = "cannot be read any more",
                   .advice = "Leave data files alone while they are used."};
    }
    done += static_cast<size_t>(got);
  }
  if (!is_valid_utf8(text)) text = with_replacements(text);
  WEFT_TRY(Document document, parse_document(text, source, Syntax::kJson, kRecordLimits));
  return std::move(document.root);
}

}  // namespace weft
