#include "weft/engine/run_samples.h"

#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/base/counted.h"
#include "weft/base/text.h"
#include "weft/data/named_samples.h"
#include "weft/data/once_each.h"
#include "weft/data/synthetic.h"
#include "weft/engine/sample_inputs.h"
#include "weft/loader/packed_source.h"
#include "weft/models/module_network.h"

namespace weft {
namespace {

/// Keeps the samples that are evaluated on apart from those that are trained on.
constexpr uint64_t kUnseen = 0x5eed0fe5a1ULL;

std::string packing_text(const PackedSource& rows, double index_ms) {
  const PackedOrder& order = rows.order();
  return fmt::format(
      "packed: {} of data in {} of {} tokens, {:.1f} a row, {:.1f} % full; lengths were read in {:.2f} s",
      counted(order.epoch_records(), "record"), counted(order.epoch_rows(), "row"), with_commas(rows.capacity()),
      static_cast<double>(order.epoch_records()) / static_cast<double>(order.epoch_rows()), 100 * order.fill_share(),
      1e-3 * index_ms);
}

/// Those of one data set that are trained on and, where there are any, those that are held out.
Result<RunSamples> open_data(const Model& model, const SampleForm& form, const TrainData& given, uint64_t seed,
                             WorkerThreads& workers) {
  WEFT_TRY(const std::shared_ptr<ConversationData> data,
           ConversationData::open(model, form, given.model, given.settings));
  const bool holds_out = data->sets().order(seed).num_held_out() > 0;
  RunSamples samples;
  if (!given.settings.packs) {
    samples.trained = std::make_shared<ConversationSource>(data, seed, false);
    if (holds_out) samples.unseen = std::make_shared<ConversationSource>(data, seed, true);
    return samples;
  }
  const double start = now_ms();
  const auto lengths = std::make_shared<const RecordLengths>(record_lengths(
      *data, [&](int64_t count, const std::function<void(int64_t)>& work) { workers.for_each(count, work); }));
  const double index_ms = now_ms() - start;
  const std::string& source = given.settings.source;
  WEFT_TRY(const std::shared_ptr<PackedSource> rows, PackedSource::create(data, lengths, seed, false, source));
  samples.trained = rows;
  samples.packing = packing_text(*rows, index_ms);
  if (holds_out) {
    WEFT_TRY(samples.unseen, PackedSource::create(data, lengths, seed, true, source));
  }
  return samples;
}

/// Data that are evaluated by themselves are gone through whole, whatever share of them another run may hold out.
Result<std::shared_ptr<SampleSource>> open_evaluated(const Model& model, const SampleForm& form,
                                                     const TrainConfig& config, WorkerThreads& workers) {
  TrainData own = *config.evaluation.data;
  own.settings.held_out_share = 0;
  for (DataFile& file : own.settings.files) file.weight = 0;
  WEFT_TRY(const RunSamples samples, open_data(model, form, own, config.seed, workers));
  return samples.trained;
}

/// Of a user's own program: named tensors of files, or drawn numbers.
Result<RunSamples> open_named(const ProgramNumbers& numbers, const TrainConfig& config) {
  RunSamples samples;
  const auto open = [&](const TrainData& data, const char* field) -> Result<std::shared_ptr<NamedSamples>> {
    if (data.inputs.empty()) {
      std::string files;
      for (const NamedInput& input : numbers.inputs)
        files += fmt::format("{}{}: train.safetensors", files.empty() ? "" : ", ", input.name);
      return Error{.source = config.source,
                   .field = data.are_named ? fmt::format("{}.inputs", field) : field,
                   .problem = data.are_named
                                  ? "is empty, but the program reads tensors"
                                  : "are conversations, but the model is a program, which reads named tensors",
                   .advice = fmt::format("Give a file for each: '{}: {{inputs: {{{}}}}}'.", field, files)};
    }
    auto opened = NamedSamples::open(
        numbers, {.files = data.inputs, .held_out_share = data.settings.held_out_share, .source = config.source},
        config.seed);
    if (opened) return opened;
    Error error = std::move(opened).error();
    if (error.field.starts_with("inputs.")) error.field = std::string(field) + "." + error.field;
    return error;
  };
  if (config.data) {
    WEFT_TRY(const std::shared_ptr<NamedSamples> trained, open(*config.data, "data"));
    samples.trained = trained;
    samples.unseen = trained->held_out();
  } else {
    samples.trained = std::make_shared<DrawnNamedSamples>(numbers, config.seed);
    samples.unseen = std::make_shared<DrawnNamedSamples>(numbers, config.seed ^ kUnseen);
  }
  if (config.evaluation.data) {
    WEFT_TRY(samples.unseen, open(*config.evaluation.data, "evaluation.data"));
  }
  return samples;
}

}  // namespace

Result<RunSamples> open_run_samples(const Plan& plan, const TrainConfig& config, WorkerThreads& workers) {
  WEFT_TRY(const ModelNumbers numbers, numbers_to_run(plan.model));
  const SampleForm form = sample_form(numbers, vocabulary_of(plan.model));
  RunSamples samples;
  if (numbers.program) {
    WEFT_TRY(samples, open_named(*numbers.program, config));
  } else if (config.data) {
    if (config.data->are_named)
      return Error{.source = config.source,
                   .field = "data.inputs",
                   .problem = fmt::format("names inputs of a program, but {} is a model of the family {}",
                                          printable(plan.model.name), plan.model.family),
                   .advice = "Give conversations, or leave data out."};
    WEFT_TRY(samples, open_data(plan.model, form, *config.data, config.seed, workers));
  } else {
    WEFT_TRY(SyntheticSamples drawn, SyntheticSamples::create(plan.model, plan.workload, form, config.seed));
    samples.trained = std::make_shared<SyntheticSamples>(std::move(drawn));
    samples.unseen = std::make_shared<SyntheticSamples>(
        *SyntheticSamples::create(plan.model, plan.workload, form, config.seed ^ kUnseen));
  }
  if (config.evaluation.data && !numbers.program) {
    WEFT_TRY(samples.unseen, open_evaluated(plan.model, form, config, workers));
  } else if (config.evaluation.split == TrainConfig::Evaluation::Split::kTrained) {
    samples.unseen = samples.trained;
  }
  if (samples.unseen) samples.unseen = std::make_shared<OnceEach>(samples.unseen);
  return samples;
}

}  // namespace weft
