#include "weft/spec/workload.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weft/base/file_kind.h"
#include "weft/base/file_name.h"
#include "weft/base/text.h"
#include "weft/program/module_kinds.h"
#include "weft/spec/batch_limit.h"

namespace weft {
namespace {

constexpr DistributionRange kTokenRange{1, 1e8, true};
constexpr DistributionRange kImageCountRange{0, 4096, true};
constexpr DistributionRange kPatchCountRange{1, 1 << 22, true};
constexpr DistributionRange kClipCountRange{0, 256, true};
constexpr DistributionRange kClipSecondsRange{0.05, 36'000, false};
constexpr NumberRange kSequencesRange{1, 1e6};

std::span<const std::string> optimizer_names() {
  static const std::array<std::string, 1> names = {"adamw"};
  return names;
}

std::span<const std::string> attention_kernel_names() {
  static const std::array<std::string, 2> names = {"fused", "unfused"};
  return names;
}

/// Two keys that only make sense together: a count and the size of each piece.
Media read_media(Fields& fields, std::string_view count_key, DistributionRange counts, std::string_view size_key,
                 DistributionRange sizes) {
  Media media;
  if (!fields.has(count_key) && !fields.has(size_key)) return media;
  media.pieces_per_sample = read_distribution(fields, count_key, counts);
  media.size = read_distribution(fields, size_key, sizes);
  return media;
}

std::vector<ModuleKind> read_frozen(Fields& fields) {
  const std::vector<std::string> names = module_names();
  std::vector<ModuleKind> frozen;
  for (const std::string& name : fields.texts_or_empty("frozen")) {
    const auto kind = module_kind_named(name);
    if (!kind) {
      fields.complain("frozen", fmt::format("names the module {}, {} is needed.{}", in_quotes(name), joined_or(names),
                                            did_you_mean(name, names)));
      continue;
    }
    if (std::find(frozen.begin(), frozen.end(), *kind) != frozen.end()) {
      fields.complain("frozen", fmt::format("names the module {} twice", in_quotes(name)));
    }
    frozen.push_back(*kind);
  }
  return frozen;
}

}  // namespace

const std::string& name_of(Optimizer optimizer) {
  return optimizer_names()[static_cast<size_t>(optimizer)];
}

const std::string& name_of(AttentionKernel kernel) {
  return attention_kernel_names()[static_cast<size_t>(kernel)];
}

bool Workload::is_frozen(ModuleKind kind) const {
  return std::find(frozen.begin(), frozen.end(), kind) != frozen.end();
}

Json to_json(const Workload& w) {
  Json json = {{"name", w.name}, {"global_batch_samples", w.global_batch_samples}};
  json[w.tokens_include_media ? "sequence_tokens" : "text_tokens"] = to_json(w.tokens);
  if (w.sequences_per_sample != 1) json["sequences_per_sample"] = w.sequences_per_sample;
  const auto add_media = [&](const Media& media, const char* count_key, const char* size_key) {
    if (media.pieces_per_sample.max() == 0) return;
    json[count_key] = to_json(media.pieces_per_sample);
    json[size_key] = to_json(media.size);
  };
  add_media(w.images, "images_per_sample", "patches_per_image");
  add_media(w.audio, "audio_clips_per_sample", "audio_seconds_per_clip");
  json["frozen"] = Json::array();
  for (const ModuleKind kind : w.frozen) json["frozen"].push_back(name_of(kind));
  json["precision"] = name_of(w.precision);
  json["optimizer"] = name_of(w.optimizer);
  json["attention"] = name_of(w.attention);
  return json;
}

Result<Workload> read_workload(const Document& document, std::string default_name) {
  if (auto error = find_wrong_kind(document, FileKind::kWorkload)) return *std::move(error);
  Findings findings(document.source);
  Fields fields(document, findings);
  Workload workload{.source = document.source};
  workload.name = fields.name_or("name", std::move(default_name));
  workload.global_batch_samples = fields.integer("global_batch_samples", {1, kMostBatchSamples});
  workload.tokens_include_media = fields.has("sequence_tokens");
  if (fields.has("sequence_tokens") && fields.has("text_tokens")) {
    fields.complain(
        "text_tokens", "and sequence_tokens are both given, one of them is allowed",
        "Give sequence_tokens for the whole sequence, media embeddings included, or text_tokens for the text alone.");
  }
  if (!workload.tokens_include_media && !fields.has("text_tokens")) {
    fields.complain(
        "sequence_tokens", "is missing, and so is text_tokens",
        "Give sequence_tokens for the whole sequence, media embeddings included, or text_tokens for the text alone.");
  }
  workload.tokens =
      read_distribution(fields, workload.tokens_include_media ? "sequence_tokens" : "text_tokens", kTokenRange);
  fields.raw("text_tokens");
  workload.sequences_per_sample = fields.number_or("sequences_per_sample", 1, kSequencesRange);
  workload.images = read_media(fields, "images_per_sample", kImageCountRange, "patches_per_image", kPatchCountRange);
  workload.audio =
      read_media(fields, "audio_clips_per_sample", kClipCountRange, "audio_seconds_per_clip", kClipSecondsRange);
  workload.frozen = read_frozen(fields);
  // Their lengths are whole tokens or more. How many rows media add to a text is the model's to say.
  const bool knows_rows = workload.tokens_include_media ||
                          (workload.images.pieces_per_sample.max() == 0 && workload.audio.pieces_per_sample.max() == 0);
  if (knows_rows && workload.sequences_per_sample > workload.tokens.mean()) {
    fields.complain(
        "sequences_per_sample",
        fmt::format("is {}, but samples have {:.6g} tokens on average, which make as many sequences at most",
                    workload.sequences_per_sample, workload.tokens.mean()),
        "Give fewer, or more tokens.");
  }
  workload.precision =
      static_cast<Precision>(fields.choice_or("precision", static_cast<size_t>(Precision::kBf16), precision_names()));
  workload.optimizer = static_cast<Optimizer>(fields.choice_or("optimizer", 0, optimizer_names()));
  workload.attention = static_cast<AttentionKernel>(fields.choice_or("attention", 0, attention_kernel_names()));
  // Asked for, so that the list of known fields is whole even where a file leaves them out.
  for (const char* key : {"sequence_tokens", "images_per_sample", "patches_per_image", "audio_clips_per_sample",
                          "audio_seconds_per_clip"}) {
    fields.raw(key);
  }
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return workload;
}

Result<Workload> read_workload_file(const std::filesystem::path& path) {
  WEFT_TRY(const Document document, read_document(path));
  return read_workload(document, name_of_file(path));
}

}  // namespace weft
