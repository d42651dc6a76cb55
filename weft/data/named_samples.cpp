#include "weft/data/named_samples.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/counted.h"
#include "weft/base/text.h"
#include "weft/weights/safetensors_file.h"

namespace weft {
namespace {

template <typename T>
double element(std::span<const std::byte> bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return static_cast<double>(value);
}

/// One number of a tensor; nothing for types that data do not have.
std::optional<double> number_at(const WeightEntry& tensor, int64_t index) {
  switch (tensor.info.type) {
    case WeightType::kI64:
      return element<int64_t>(tensor.bytes, index);
    case WeightType::kI32:
      return element<int32_t>(tensor.bytes, index);
    case WeightType::kI16:
      return element<int16_t>(tensor.bytes, index);
    case WeightType::kU8:
      return element<uint8_t>(tensor.bytes, index);
    case WeightType::kF64:
      return element<double>(tensor.bytes, index);
    case WeightType::kF32:
      return element<float>(tensor.bytes, index);
    case WeightType::kBf16: {
      uint16_t half = 0;
      std::memcpy(&half, tensor.bytes.data() + 2 * index, sizeof(half));
      return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
    }
    default:
      return std::nullopt;
  }
}

bool is_whole(WeightType type) {
  return type == WeightType::kI64 || type == WeightType::kI32 || type == WeightType::kI16 || type == WeightType::kU8;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Error refused(const std::string& source, const std::string& input, std::string problem, std::string advice) {
  return {.source = source, .field = "inputs." + input, .problem = std::move(problem), .advice = std::move(advice)};
}

/// The file, or those of a folder by their names.
Result<std::vector<std::filesystem::path>> files_of(const NamedFile& file, const std::string& source) {
  std::error_code problem;
  if (!std::filesystem::is_directory(file.path, problem)) return std::vector<std::filesystem::path>{file.path};
  std::vector<std::filesystem::path> files;
  std::filesystem::directory_iterator entry(file.path, problem);
  for (; !problem && entry != std::filesystem::directory_iterator(); entry.increment(problem)) {
    if (entry->path().extension() == ".safetensors") files.push_back(entry->path());
  }
  if (problem) {
    return refused(
        source, file.input,
        fmt::format("is {}, a folder that cannot be read: {}", in_quotes(file.path.string()), problem.message()),
        "Check the path and its permissions.");
  }
  std::sort(files.begin(), files.end());
  if (files.empty())
    return refused(source, file.input,
                   fmt::format("is {}, a folder without safetensors files", in_quotes(file.path.string())),
                   "Give a file, or a folder that has some.");
  return files;
}

/// Why a tensor does not fit an input.
std::optional<Error> find_unfit(const NamedInput& input, const WeightInfo& tensor, const std::string& source,
                                const std::string& file) {
  const auto say = [&](std::string problem, std::string advice) {
    return refused(source, input.name, fmt::format("{} of {} {}", in_quotes(tensor.name), file, problem),
                   std::move(advice));
  };
  const std::string wanted =
      fmt::format("[samples{}{}]", input.shape.empty() ? "" : ", ", fmt::join(input.shape, ", "));
  if (tensor.shape.size() != input.shape.size() + 1) {
    const size_t missing = tensor.shape.empty() ? 0 : tensor.shape.size() - 1;
    return say(
        fmt::format(
            "has the shape {}{}; {} is needed", shape_text(tensor.shape),
            missing < input.dims.size() ? fmt::format(", which lacks the dim {}", in_quotes(input.dims[missing])) : "",
            wanted),
        "Its first dim is samples, the others are those that the program declares.");
  }
  for (size_t i = 0; i < input.shape.size(); ++i) {
    if (tensor.shape[i + 1] != input.shape[i])
      return say(fmt::format("has the shape {}, but the dim {} has {} elements; {} is needed", shape_text(tensor.shape),
                             in_quotes(input.dims[i]), input.shape[i], wanted),
                 "Change the data, or the program's dim.");
  }
  const bool is_number = is_whole(tensor.type) || tensor.type == WeightType::kF64 || tensor.type == WeightType::kF32 ||
                         tensor.type == WeightType::kBf16;
  if (!is_number || (input.num_entries && !is_whole(tensor.type)))
    return say(fmt::format("is of type {}, {} is needed", name_of(tensor.type),
                           input.num_entries ? "I64, I32, I16 or U8" : "F64, F32, BF16 or whole numbers"),
               input.num_entries ? "The program reads whole numbers there: entries or classes." : "Convert it.");
  return std::nullopt;
}

/// Numbers that depend on nothing but their seed (splitmix64).
uint64_t mixed(uint64_t z) {
  z += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

SampleLoad load_of(const ProgramNumbers& numbers) {
  SampleLoad load;
  load.llm = {{static_cast<double>(numbers.rows.rows_per_sample), 1}};
  return load;
}

}  // namespace

Result<std::shared_ptr<NamedSamples>> NamedSamples::open(const ProgramNumbers& numbers, const Settings& settings,
                                                         uint64_t seed) {
  std::vector<std::string> known;
  for (const NamedInput& input : numbers.inputs) known.push_back(input.name);
  for (const NamedFile& file : settings.files) {
    if (std::find(known.begin(), known.end(), file.input) == known.end())
      return refused(settings.source, file.input,
                     fmt::format("is no input of the program, which has {}", joined_or(known)),
                     "Leave it out." + did_you_mean(file.input, known));
  }
  std::vector<std::vector<Part>> parts;
  int64_t num_samples = -1;
  for (const NamedInput& input : numbers.inputs) {
    const auto file = std::find_if(settings.files.begin(), settings.files.end(),
                                   [&](const NamedFile& each) { return each.input == input.name; });
    if (file == settings.files.end())
      return refused(settings.source, input.name, "is missing, but the program reads it",
                     fmt::format("Give its file: 'inputs: {{{}: train.safetensors}}'.", input.name));
    WEFT_TRY(const std::vector<std::filesystem::path> files, files_of(*file, settings.source));
    std::vector<Part>& own = parts.emplace_back();
    int64_t count = 0;
    for (const std::filesystem::path& path : files) {
      WEFT_TRY(const SafetensorsFile opened, SafetensorsFile::open(path));
      const WeightEntry* tensor = opened.find(file->tensor);
      if (tensor == nullptr) {
        std::vector<std::string> there;
        for (const WeightEntry& entry : opened.entries()) there.push_back(entry.info.name);
        return refused(
            settings.source, input.name, fmt::format("{} has no tensor {}", path.string(), in_quotes(file->tensor)),
            fmt::format("It has {}.{}", there.empty() ? "none" : joined_or(there), did_you_mean(file->tensor, there)));
      }
      if (auto error = find_unfit(input, tensor->info, settings.source, path.string())) return *std::move(error);
      own.push_back(
          {.file = path.string(), .tensor = *tensor, .first_sample = count, .num_samples = tensor->info.shape[0]});
      count += tensor->info.shape[0];
    }
    if (num_samples >= 0 && count != num_samples)
      return refused(settings.source, input.name,
                     fmt::format("has {}, but {} has {}", counted(count, "sample"),
                                 in_quotes(numbers.inputs.front().name), num_samples),
                     "Every input has a row for every sample.");
    num_samples = count;
  }
  const auto held_out = static_cast<int64_t>(std::floor(settings.held_out_share * static_cast<double>(num_samples)));
  if (num_samples - held_out < 1)
    return refused(settings.source, numbers.inputs.front().name, "has no sample to train on", "Give more data.");
  SampleOrder order({{.num_records = num_samples, .weight = 0, .num_held_out = held_out}}, seed);
  std::shared_ptr<NamedSamples> samples(new NamedSamples(numbers, std::move(order)));
  samples->parts_ = std::move(parts);
  return samples;
}

std::shared_ptr<NamedSamples> NamedSamples::held_out() const {
  if (order_.num_held_out() == 0) return nullptr;
  std::shared_ptr<NamedSamples> others(new NamedSamples(numbers_, order_));
  others->parts_ = parts_;
  others->gives_held_out_ = true;
  return others;
}

int64_t NamedSamples::num_different() const {
  return gives_held_out_ ? order_.num_held_out() : order_.epoch_samples();
}

void NamedSamples::leave_out(const std::vector<SkippedSample>& /*skipped*/) {
  WEFT_CHECK(false, "no sample of named tensors is ever left out");
}

Result<SampleLengths> NamedSamples::lengths_of(int64_t /*index*/, std::vector<SkippedSample>& /*skipped*/) const {
  return SampleLengths{.load = load_of(numbers_), .rows = {}};
}

Result<std::vector<double>> NamedSamples::numbers_of(size_t index, int64_t record) const {
  const NamedInput& input = numbers_.inputs[index];
  const auto part = std::find_if(parts_[index].begin(), parts_[index].end(),
                                 [&](const Part& each) { return record < each.first_sample + each.num_samples; });
  const int64_t elements = input.num_elements(), first = (record - part->first_sample) * elements;
  std::vector<double> numbers;
  numbers.reserve(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) {
    const double number = *number_at(part->tensor, first + i);
    const bool is_entry = !input.num_entries ||
                          ((number >= 0 || input.may_be_negative) && number < static_cast<double>(*input.num_entries));
    if (!is_entry)
      return Error{.source = part->file,
                   .field = part->tensor.info.name,
                   .problem = fmt::format("has {} in sample {}; the program's table or classes have {} entries", number,
                                          record - part->first_sample, *input.num_entries),
                   .advice = "Correct the data, or the program's dim."};
    numbers.push_back(number);
  }
  return numbers;
}

Result<Sample> NamedSamples::read(int64_t index, const SampleContent& /*wanted*/,
                                  std::vector<SkippedSample>& /*skipped*/) const {
  const SampleOrder::Place place = gives_held_out_ ? order_.held_out(index % order_.num_held_out()) : order_.at(index);
  Sample sample;
  sample.load = load_of(numbers_);
  // What fills up the last batch of an evaluation has no targets.
  sample.stands_in = gives_held_out_ && index >= order_.num_held_out();
  for (size_t input = 0; input < numbers_.inputs.size(); ++input) {
    WEFT_TRY(std::vector<double> numbers, numbers_of(input, place.record));
    if (sample.stands_in && numbers_.targets == input) std::fill(numbers.begin(), numbers.end(), kNoTarget);
    sample.named.push_back(std::move(numbers));
  }
  return sample;
}

Result<SampleLengths> DrawnNamedSamples::lengths_of(int64_t /*index*/, std::vector<SkippedSample>& /*skipped*/) const {
  return SampleLengths{.load = load_of(numbers_), .rows = {}};
}

Result<Sample> DrawnNamedSamples::read(int64_t index, const SampleContent& /*wanted*/,
                                       std::vector<SkippedSample>& /*skipped*/) const {
  Sample sample;
  sample.load = load_of(numbers_);
  for (size_t i = 0; i < numbers_.inputs.size(); ++i) {
    const NamedInput& input = numbers_.inputs[i];
    std::vector<double>& numbers = sample.named.emplace_back();
    uint64_t state = mixed(mixed(seed_ ^ static_cast<uint64_t>(index)) + i);
    for (int64_t element = 0; element < input.num_elements(); ++element) {
      state = mixed(state);
      constexpr double kHalfWidth = 1.7320508;
      numbers.push_back(input.num_entries ? static_cast<double>(state % static_cast<uint64_t>(*input.num_entries))
                                          : (static_cast<double>(state >> 40) * 0x1p-23 - 1.0) * kHalfWidth);
    }
  }
  return sample;
}

}  // namespace weft
