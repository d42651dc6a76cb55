#include "weft/engine/event_file.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/checkpoint/crc32c.h"

namespace weft {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Integers and floating-point numbers, the lowest byte first.
template <typename Number>
void put(std::string& bytes, Number number) {
  static_assert(std::endian::native == std::endian::little);
  char raw[sizeof(Number)];
  std::memcpy(raw, &number, sizeof(Number));
  bytes.append(raw, sizeof(Number));
}

// Wire types of protocol buffers.
constexpr uint64_t kVarint = 0, kFixed64 = 1, kText = 2, kFixed32 = 5;

void put_varint(std::string& bytes, uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes.push_back(static_cast<char>((number & 0x7f) | 0x80));
  bytes.push_back(static_cast<char>(number));
}

void put_field(std::string& bytes, uint64_t field, uint64_t type) {
  put_varint(bytes, field << 3 | type);
}

void put_text(std::string& bytes, uint64_t field, const std::string& text) {
  put_field(bytes, field, kText);
  put_varint(bytes, text.size());
  bytes += text;
}

/// The beginning of an Event: wall_time (1) and step (2).
std::string begin_event(int64_t step) {
  std::string event;
  put_field(event, 1, kFixed64);
  put(event, seconds_now());
  put_field(event, 2, kVarint);
  put_varint(event, static_cast<uint64_t>(step));
  return event;
}

/// A checksum that is stored beside what it is of is turned and moved, so that one of it can be taken as well.
uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
  return std::rotr(crc, 15) + 0xa282ead8U;
}

}  // namespace

std::string event_record(const std::string& bytes) {
  std::string record;
  put(record, static_cast<uint64_t>(bytes.size()));
  put(record, masked_crc(record));
  record += bytes;
  put(record, masked_crc(bytes));
  return record;
}

Result<EventFile> EventFile::create(const std::filesystem::path& folder, int64_t first_step) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    return Error{.kind = ErrorKind::kJob,
                 .source = folder.string(),
                 .problem = "cannot be made: " + failure.message(),
                 .advice = "Choose another run folder, or make room and give permission there."};
  }
  const std::string name =
      fmt::format("events.out.tfevents.{:010}.weft.{}", static_cast<int64_t>(seconds_now()), getpid());
  WEFT_TRY(LineFile opened, LineFile::open(folder / name));
  EventFile file(std::move(opened));
  std::string version = begin_event(0);
  put_text(version, 3, "brain.Event:2");
  // A session that starts at a step takes the place of what others have from there on.
  std::string start = begin_event(first_step + 1);
  put_text(start, 7, std::string("\x08\x01", 2));
  if (auto error = file.file_.append(event_record(version) + event_record(start))) return *std::move(error);
  return file;
}

std::optional<Error> EventFile::add(int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_text(value, 1, tag);
    put_field(value, 2, kFixed32);
    put(value, static_cast<float>(number));
    put_text(summary, 1, value);
  }
  std::string event = begin_event(step);
  put_text(event, 5, summary);
  return file_.append(event_record(event));
}

EventFile::Scalars scalars_of(const StepMetrics& metrics) {
  EventFile::Scalars scalars = {{"loss", metrics.loss},
                                {"gradient_norm", metrics.gradient_norm},
                                {"learning_rate", metrics.learning_rate},
                                {"step_ms", metrics.step_ms},
                                {"tokens_per_s", metrics.tokens_per_s()}};
  if (metrics.module_gradient_norms.size() > 1) {
    for (const auto& [module, norm] : metrics.module_gradient_norms)
      scalars.emplace_back("gradient_norm/" + module, norm);
  }
  if (metrics.utilization) scalars.emplace_back("model_flops_utilization", *metrics.utilization);
  double memory = 0;
  for (const RankStep& rank : metrics.ranks) memory = std::max(memory, rank.peak_memory_bytes);
  scalars.emplace_back("peak_memory_gib", memory / 0x1p30);
  if (metrics.balance_loss != 0) scalars.emplace_back("balance_loss", metrics.balance_loss);
  if (metrics.experts) scalars.emplace_back("expert_imbalance", metrics.experts->imbalance);
  return scalars;
}

}  // namespace weft
