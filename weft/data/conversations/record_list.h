#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"

namespace weft {

/// The records of a JSON list or of a JSONL file, read one at a time by number. Only where each begins is kept in
/// memory.
class RecordList {
 public:
  /// Goes through the file once. The error says where it is neither form, or that it has no records.
  static Result<RecordList> open(const std::filesystem::path& path);

  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  const std::filesystem::path& path() const { return path_; }
  /// Several threads may read. The error names the record: text that is no JSON is the sample's fault, not the set's.
  Result<Json> read(int64_t index) const;

 private:
  struct Place {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  struct Closer {
    void operator()(const int* descriptor) const;
  };

  RecordList(std::filesystem::path path, int descriptor);
  /// From `begin` on, where the file's text, or its list, begins.
  std::optional<Error> find_lines(uint64_t begin);
  std::optional<Error> find_items(uint64_t begin);
  /// Bytes from `offset` on into `block_`; false at the end or where they cannot be read.
  bool read_block(uint64_t offset, std::string& block) const;

  std::filesystem::path path_;
  std::shared_ptr<const int> file_;
  std::vector<Place> places_;
};

}  // namespace weft
