#include "weft/checkpoint/checkpoint_json.h"

#include <charconv>
#include <map>
#include <set>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/text.h"
#include "weft/checkpoint/crc32c.h"
#include "weft/meaning/training_ranges.h"
#include "weft/plan/plan_json.h"
#include "weft/spec/batch_limit.h"
#include "weft/weights/weight_type.h"

namespace weft {
namespace {

constexpr IntegerRange kReachedRange{0, kStepRange.max};
constexpr IntegerRange kSizeRange{1, INT64_MAX / 8};
constexpr IntegerRange kRankRange{0, 99'999'999};
/// Of a rank's file: 4 TiB are more than a rank holds, and the sum over all ranks of a plan can still be counted.
constexpr IntegerRange kBytesRange{1, int64_t{1} << 42};
/// A rank writes its rows of a weight in pieces: a few, or some for each head where heads lie one after another. What
/// is missing of a weight is compared with each of its parts, so that more of them would take minutes.
constexpr size_t kMostPartsOfWeight = size_t{1} << 14;
constexpr const char* kChangedAdvice = "The file was changed after it was written: use another checkpoint.";

Json range_json(int64_t begin, int64_t end) {
  return Json::array({begin, end});
}

std::string part_text(const StoredPart& part) {
  const WeightPiece& piece = part.piece;
  Json json = {{"weight", piece.name},
               {"shape", piece.shape},
               {"rows", range_json(piece.first_row, piece.first_row + piece.num_rows)}};
  if (piece.num_columns >= 0) json["columns"] = range_json(piece.first_column, piece.first_column + piece.num_columns);
  json["elements"] = range_json(part.elements.begin, part.elements.end);
  json["tensor"] = part.tensor;
  json["trained"] = part.is_trained;
  if (part.updates >= 0) json["updates"] = part.updates;
  return json.dump();
}

/// Two numbers, the second not below the first and none above `most`.
ElementRange read_range(Fields& fields, const char* key, int64_t most) {
  const std::vector<int64_t> ends = fields.integers_or_empty(key, {0, std::max<int64_t>(most, 0)});
  if (ends.size() == 2 && ends[0] <= ends[1]) return {ends[0], ends[1]};
  fields.complain(key, "must be two numbers, where it begins and where it ends, like [0, 64]");
  return {};
}

StoredPart read_part(Fields& fields) {
  StoredPart part;
  WeightPiece& piece = part.piece;
  piece.name = fields.text("weight");
  piece.shape = fields.integers_or_empty("shape", kSizeRange);
  // A fixed point for all that follows: the bytes of a weight can be counted.
  if (piece.shape.empty() || !bytes_of(WeightType::kF64, piece.shape)) {
    fields.complain("shape", "must be the sizes of a weight's dims, at least one, like [128, 64]");
    piece.shape = {1};
  }
  const ElementRange rows = read_range(fields, "rows", piece.shape[0]);
  piece.first_row = rows.begin;
  piece.num_rows = rows.size();
  if (fields.has("columns")) {
    if (piece.shape.size() < 2) {
      fields.complain("columns", fmt::format("is given for a weight of {} dim", piece.shape.size()));
    } else {
      const ElementRange columns = read_range(fields, "columns", piece.shape[1]);
      piece.first_column = columns.begin;
      piece.num_columns = columns.size();
    }
  }
  fields.raw("columns");
  part.elements = read_range(fields, "elements", piece.num_elements());
  part.tensor = fields.text("tensor");
  part.is_trained = fields.flag_or("trained", true);
  part.updates = fields.integer_or("updates", -1, kReachedRange);
  fields.reject_unknown();
  return part;
}

/// Eight hexadecimal digits.
uint32_t read_checksum(Fields& fields) {
  const std::string text = fields.text("crc32c");
  uint32_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (text.size() != 8 || problem != std::errc() || end != text.data() + text.size())
    fields.complain("crc32c", fmt::format("is {}, eight hexadecimal digits are needed", in_quotes(text)));
  return number;
}

/// Eight hexadecimal digits for every chunk.
void read_chunks(Fields& fields, CheckpointFile& file) {
  file.chunk_bytes = fields.integer("chunk_bytes", kBytesRange);
  const std::string text = fields.text("chunks");
  constexpr size_t kDigits = 8;
  const int64_t count = file.chunk_bytes > 0 ? (file.num_bytes - 1) / file.chunk_bytes + 1 : 0;
  if (text.size() != static_cast<size_t>(count) * kDigits) {
    fields.complain("chunks", fmt::format("has {} digits, but {} bytes in chunks of {} need {}", text.size(),
                                          file.num_bytes, file.chunk_bytes, count * static_cast<int64_t>(kDigits)));
    return;
  }
  for (size_t place = 0; place < text.size(); place += kDigits) {
    uint32_t& number = file.chunks.emplace_back(0);
    const char* begin = text.data() + place;
    const auto [end, problem] = std::from_chars(begin, begin + kDigits, number, 16);
    if (problem == std::errc() && end == begin + kDigits) continue;
    fields.complain("chunks", fmt::format("has {} at place {}, eight hexadecimal digits are needed",
                                          in_quotes(text.substr(place, kDigits)), place));
    return;
  }
}

CheckpointFile read_file_entry(Fields& fields, int64_t version) {
  CheckpointFile file;
  file.rank = fields.integer("rank", kRankRange);
  const std::string name = fields.text("name");
  if (name != checkpoint_file_name(file.rank)) {
    fields.complain("name", fmt::format("is {}, but rank {} writes {}", in_quotes(name), file.rank,
                                        checkpoint_file_name(file.rank)));
  }
  file.num_bytes = fields.integer("bytes", kBytesRange);
  if (version == 1) {
    file.chunk_bytes = std::max<int64_t>(file.num_bytes, 1);
    file.chunks = {read_checksum(fields)};
  } else {
    read_chunks(fields, file);
  }
  for (Fields& part : fields.objects("parts")) file.parts.push_back(read_part(part));
  fields.reject_unknown();
  return file;
}

std::string seal_of(std::string_view text) {
  return fmt::format("\"crc32c\": \"{:08x}\"\n}}\n", crc32c(std::as_bytes(std::span(text))));
}

Result<Plan> read_carried_plan(Fields& fields, const std::string& source) {
  const std::string hash = fields.text("plan_hash");
  const Json* raw = fields.raw("plan");
  if (raw == nullptr) {
    fields.complain("plan", "is missing");
  } else if (hash_of(*raw) != hash) {
    fields.complain("plan_hash", fmt::format("is {}, but the plan below it has {}", in_quotes(hash), hash_of(*raw)),
                    kChangedAdvice);
  }
  if (const auto& error = fields.findings().first()) return *error;
  return read_plan({.source = source + ": plan", .root = *raw});
}

/// A step has one update at most, and a weight no more than the optimizer.
std::optional<Error> find_too_many_updates(const Checkpoint& checkpoint, const std::string& source) {
  const auto refuse = [&](const std::string& field, int64_t updates, const std::string& most) {
    return Error{.source = source,
                 .field = field,
                 .problem = fmt::format("is {}, but {}", updates, most),
                 .advice = kChangedAdvice};
  };
  if (checkpoint.updates > checkpoint.step)
    return refuse("updates", checkpoint.updates, fmt::format("the checkpoint is of step {}", checkpoint.step));
  for (const CheckpointFile& file : checkpoint.files) {
    for (const StoredPart& part : file.parts) {
      if (part.updates <= checkpoint.updates) continue;
      return refuse(fmt::format("updates of {} in {}", printable(part.piece.name), checkpoint_file_name(file.rank)),
                    part.updates, fmt::format("the optimizer has done {}", checkpoint.updates));
    }
  }
  return std::nullopt;
}

/// All parts of a weight are of one shape, and one file has no more of them than a rank writes.
std::optional<Error> find_contradicting_parts(const Checkpoint& checkpoint, const std::string& source) {
  std::map<std::string_view, const std::vector<int64_t>*> shapes;
  for (const CheckpointFile& file : checkpoint.files) {
    std::map<std::string_view, size_t> counts;
    for (const StoredPart& part : file.parts) {
      const std::vector<int64_t>& shape = part.piece.shape;
      const std::vector<int64_t>& first = *shapes.emplace(part.piece.name, &shape).first->second;
      const auto refuse = [&](const char* what, std::string problem) {
        return Error{
            .source = source,
            .field = fmt::format("{} of {} in {}", what, printable(part.piece.name), checkpoint_file_name(file.rank)),
            .problem = std::move(problem),
            .advice = kChangedAdvice};
      };
      if (shape != first) {
        return refuse("shape", fmt::format("is [{}], but another part of the weight has [{}]", fmt::join(shape, ", "),
                                           fmt::join(first, ", ")));
      }
      if (++counts[part.piece.name] > kMostPartsOfWeight)
        return refuse("parts", fmt::format("are more than {}, which no rank writes", kMostPartsOfWeight));
    }
  }
  return std::nullopt;
}

}  // namespace

std::string checkpoint_file_to_text(const CheckpointFile& file) {
  std::string text = fmt::format(R"({{"rank": {}, "name": "{}", "bytes": {}, "chunk_bytes": {}, "chunks": ")",
                                 file.rank, checkpoint_file_name(file.rank), file.num_bytes, file.chunk_bytes);
  for (const uint32_t chunk : file.chunks) text += fmt::format("{:08x}", chunk);
  text += R"(", "parts": [)";
  for (size_t i = 0; i < file.parts.size(); ++i) text += (i == 0 ? "\n  " : ",\n  ") + part_text(file.parts[i]);
  return text + "]}";
}

Result<CheckpointFile> checkpoint_file_from(const Document& document) {
  Findings findings(document.source);
  Fields fields(document, findings);
  CheckpointFile file = read_file_entry(fields, kCheckpointVersion);
  if (findings.first()) return *findings.first();
  return file;
}

std::string checkpoint_to_text(const Checkpoint& checkpoint) {
  const Json plan = plan_to_json(checkpoint.plan);
  std::string text = fmt::format("{{\n\"weft_checkpoint\": {},\n\"step\": {},\n\"updates\": {},\n", kCheckpointVersion,
                                 checkpoint.step, checkpoint.updates);
  text += fmt::format("\"samples\": {},\n\"first_batch_samples\": {},\n\"world_size\": {},\n", checkpoint.samples,
                      checkpoint.first_batch_samples, checkpoint.plan.world_size);
  text += fmt::format("\"plan_hash\": \"{}\",\n\"plan\": {},\n\"run\": {},\n\"files\": [", hash_of(plan), plan.dump(),
                      checkpoint.run.dump());
  for (size_t i = 0; i < checkpoint.files.size(); ++i)
    text += (i == 0 ? "\n " : ",\n ") + checkpoint_file_to_text(checkpoint.files[i]);
  return sealed(text + "]");
}

std::string sealed(std::string text) {
  text += ",\n";
  text += seal_of(text);
  return text;
}

std::optional<Error> check_seal(std::string_view text, const std::string& source) {
  const size_t length = seal_of("").size();
  if (text.size() >= length) {
    const std::string_view before = text.substr(0, text.size() - length);
    if (text.substr(before.size()) == seal_of(before)) return std::nullopt;
  }
  return Error{.source = source,
               .field = "crc32c",
               .problem = "is not that of the text before it, which was changed after it was written",
               .advice = "The checkpoint is damaged: copy it again, or use an older one."};
}

Result<Checkpoint> checkpoint_from(const Document& document) {
  Findings findings(document.source);
  Fields fields(document, findings);
  const int64_t version = fields.integer("weft_checkpoint", {1, INT32_MAX});
  if (findings.first()) return *findings.first();
  if (version > kCheckpointVersion) {
    return Error{.source = document.source,
                 .field = "weft_checkpoint",
                 .problem = fmt::format("is {}, but this program reads versions up to {}", version, kCheckpointVersion),
                 .advice = kNewerVersionAdvice};
  }
  Checkpoint checkpoint;
  checkpoint.step = fields.integer("step", kReachedRange);
  checkpoint.updates = fields.integer("updates", kReachedRange);
  if (version > 1) {
    // No more than its steps can have had, so that a run that goes on from here can count on.
    checkpoint.samples = fields.integer("samples", {0, checkpoint.step * kMostBatchSamples});
    checkpoint.first_batch_samples = fields.integer("first_batch_samples", {1, kMostBatchSamples});
  }
  const int64_t world_size = fields.integer("world_size", {1, kRankRange.max + 1});
  fields.text("crc32c");
  fields.object("run");
  if (const Json* run = fields.raw("run")) checkpoint.run = *run;
  std::set<int64_t> ranks;
  for (Fields& entry : fields.objects("files")) {
    checkpoint.files.push_back(read_file_entry(entry, version));
    const int64_t rank = checkpoint.files.back().rank;
    if (rank >= world_size) entry.complain("rank", fmt::format("is {}, but there are {} ranks", rank, world_size));
    if (!ranks.insert(rank).second) entry.complain("rank", fmt::format("is {}, as of another file", rank));
  }
  WEFT_TRY(checkpoint.plan, read_carried_plan(fields, document.source));
  if (checkpoint.plan.world_size != world_size) {
    fields.complain("world_size",
                    fmt::format("is {}, but the plan is for {} ranks", world_size, checkpoint.plan.world_size));
  }
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  if (auto error = find_too_many_updates(checkpoint, document.source)) return *std::move(error);
  if (auto error = find_contradicting_parts(checkpoint, document.source)) return *std::move(error);
  if (version == 1) {
    // It could not be changed then.
    checkpoint.first_batch_samples = checkpoint.plan.workload.global_batch_samples;
    checkpoint.samples = checkpoint.step * checkpoint.first_batch_samples;
  }
  return checkpoint;
}

}  // namespace weft
