#include "weft/record/recorded_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/as_double.h"
#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/plan_batch.h"
#include "weft/meaning/routers.h"
#include "weft/program/module_kinds.h"

namespace weft {
namespace {

constexpr int64_t kMostIndex = 1 << 20;
/// Of routers and places together, before lists are made for them.
constexpr int64_t kMostLists = 1 << 24;
/// Lengths, rows and numbers of samples: sums of as many as a record has can be counted in 64 bits.
constexpr IntegerRange kRowRange{0, 1 << 30};

Error malformed(std::string field, const char* needed) {
  return {.field = std::move(field), .problem = fmt::format("is not {}", needed)};
}

Result<std::vector<int64_t>> read_runs(const Json& json, const char* key, const std::string& path,
                                       NumberBudget& budget) {
  if (!json.contains(key)) return std::vector<int64_t>();
  auto numbers = numbers_in(json[key], kRowRange, budget);
  if (!numbers) return malformed(path + "." + key, "a list of runs (first, count, step) of numbers from 0 to 2^30");
  return *std::move(numbers);
}

void add_runs(const char* key, const std::vector<int64_t>& numbers, Json& json) {
  if (!numbers.empty()) json[key] = runs_of(numbers);
}

Json encoder_json(const EncoderLoad& load) {
  Json json = Json::object();
  add_runs("segments", load.segments, json);
  add_runs("windows", load.windows, json);
  add_runs("order", load.order, json);
  add_runs("pairs", load.pairs, json);
  if (load.frames > 0) json["frames"] = load.frames;
  return json;
}

Result<EncoderLoad> read_encoder(const Json& json, const std::string& path, NumberBudget& budget) {
  if (!json.is_object()) return malformed(path, "an object");
  EncoderLoad load;
  WEFT_TRY(load.segments, read_runs(json, "segments", path, budget));
  WEFT_TRY(load.windows, read_runs(json, "windows", path, budget));
  WEFT_TRY(load.order, read_runs(json, "order", path, budget));
  WEFT_TRY(load.pairs, read_runs(json, "pairs", path, budget));
  if (json.contains("frames")) {
    const auto frames = whole_number(json["frames"], kRowRange);
    if (!frames) return malformed(path + ".frames", "a whole number from 0 to 2^30");
    load.frames = *frames;
  }
  return load;
}

Json microbatch_json(const MicrobatchLoad& load) {
  Json json = Json::object();
  add_runs("samples", load.samples, json);
  add_runs("targets", load.targets, json);
  for (const auto& [kind, places] : load.places) {
    if (!places.empty()) json["places"][std::string(name_of(kind))] = runs_of(places);
  }
  for (const auto& [kind, media] : load.media) json["media"][std::string(name_of(kind))] = encoder_json(media);
  return json;
}

Result<MicrobatchLoad> read_microbatch(const Json& json, const std::string& path, NumberBudget& budget) {
  if (!json.is_object()) return malformed(path, "an object");
  MicrobatchLoad load;
  WEFT_TRY(load.samples, read_runs(json, "samples", path, budget));
  WEFT_TRY(load.targets, read_runs(json, "targets", path, budget));
  for (const ModuleKind kind : kEncoderKinds) load.places[kind] = {};
  if (json.contains("places")) {
    if (!json["places"].is_object()) return malformed(path + ".places", "an object of modules");
    for (const auto& [name, places] : json["places"].items()) {
      const auto kind = module_kind_named(name);
      auto numbers = numbers_in(places, kRowRange, budget);
      if (!kind || !numbers) return malformed(path + ".places", "an object of modules with runs");
      load.places[*kind] = *std::move(numbers);
    }
  }
  if (json.contains("media")) {
    if (!json["media"].is_object()) return malformed(path + ".media", "an object of modules");
    for (const auto& [name, media] : json["media"].items()) {
      const auto kind = module_kind_named(name);
      if (!kind) return malformed(path + ".media", "an object of modules");
      WEFT_TRY(load.media[*kind], read_encoder(media, path + ".media." + name, budget));
    }
  }
  return load;
}

Json macro_batches_json(const RecordedLoad::MacroBatches& batches) {
  Json list = Json::array();
  for (const auto& batch : batches) list.push_back(batch ? encoder_json(*batch) : Json());
  return list;
}

Result<RecordedLoad::MacroBatches> read_macro_batches(const Json& json, const std::string& path, NumberBudget& budget) {
  if (!json.is_array()) return malformed(path, "a list of macro batches");
  RecordedLoad::MacroBatches batches;
  for (size_t i = 0; i < json.size(); ++i) {
    auto& batch = batches.emplace_back();
    if (json[i].is_null()) continue;
    WEFT_TRY(batch, read_encoder(json[i], fmt::format("{}[{}]", path, i), budget));
  }
  return batches;
}

Json microbatches_json(const std::vector<MicrobatchLoad>& microbatches) {
  Json list = Json::array();
  for (const MicrobatchLoad& microbatch : microbatches) list.push_back(microbatch_json(microbatch));
  return list;
}

Result<std::vector<MicrobatchLoad>> read_microbatches(const Json& json, const std::string& path, NumberBudget& budget) {
  if (!json.is_array()) return malformed(path, "a list of microbatches");
  std::vector<MicrobatchLoad> microbatches;
  for (size_t i = 0; i < json.size(); ++i) {
    WEFT_TRY(MicrobatchLoad microbatch, read_microbatch(json[i], fmt::format("{}[{}]", path, i), budget));
    microbatches.push_back(std::move(microbatch));
  }
  return microbatches;
}

Json shares_json(const BatchAssignment::Shares& shares) {
  Json ranks = Json::array();
  for (const auto& turns : shares) {
    Json& rank = ranks.emplace_back(Json::array());
    for (const auto& samples : turns) rank.push_back(runs_of(samples));
  }
  return ranks;
}

Result<BatchAssignment::Shares> read_shares(const Json& json, const std::string& path, NumberBudget& budget) {
  if (!json.is_array()) return malformed(path, "a list by data-parallel rank");
  BatchAssignment::Shares shares;
  for (const Json& turns : json) {
    if (!turns.is_array()) return malformed(path, "a list by data-parallel rank and microbatch");
    auto& rank = shares.emplace_back();
    for (const Json& samples : turns) {
      auto numbers = numbers_in(samples, kRowRange, budget);
      if (!numbers) return malformed(path, "a list by data-parallel rank and microbatch of runs");
      rank.push_back(*std::move(numbers));
    }
  }
  return shares;
}

std::optional<std::array<int64_t, 3>> routed_key(const Json& entry) {
  if (!entry.is_array() || entry.size() != 4) return std::nullopt;
  std::array<int64_t, 3> key{};
  for (size_t i = 0; i < key.size(); ++i) {
    const auto index = whole_number(entry[i], {0, kMostIndex - 1});
    if (!index) return std::nullopt;
    key[i] = *index;
  }
  return key;
}

/// [router, place, microbatch, runs], ...
Result<std::map<std::array<int64_t, 3>, std::vector<int64_t>>> read_routed(const Json& json, NumberBudget& budget) {
  std::map<std::array<int64_t, 3>, std::vector<int64_t>> routed;
  if (!json.is_array()) return malformed("routed", "a list");
  for (const Json& entry : json) {
    const auto key = routed_key(entry);
    auto rows = key ? numbers_in(entry[3], kRowRange, budget) : std::nullopt;
    if (!rows) return malformed("routed", "a list of router, place, microbatch and runs");
    if (!routed.emplace(*key, *std::move(rows)).second)
      return malformed("routed", "a list without repetitions: a router, place and microbatch stand there twice");
  }
  return routed;
}

template <typename T>
T& grown(std::vector<T>& list, int64_t index) {
  if (std::ssize(list) <= index) list.resize(static_cast<size_t>(index) + 1);
  return list[static_cast<size_t>(index)];
}

/// Whether all are of a range, and rise.
bool rise_below(const std::vector<int64_t>& numbers, int64_t end) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 0 || numbers[i] >= end || (i > 0 && numbers[i] <= numbers[i - 1])) return false;
  }
  return true;
}

bool are_lengths(const std::vector<int64_t>& lengths) {
  return std::all_of(lengths.begin(), lengths.end(), [](int64_t length) { return length >= 0; });
}

/// Whether each sample of a batch is there once.
bool has_each_once(const BatchAssignment::Shares& shares, int64_t num_samples) {
  std::vector<int64_t> all;
  for (const auto& turns : shares) {
    for (const auto& samples : turns) all.insert(all.end(), samples.begin(), samples.end());
  }
  std::sort(all.begin(), all.end());
  return std::ssize(all) == num_samples && rise_below(all, num_samples);
}

bool have_same_sizes(const BatchAssignment::Shares& a, const BatchAssignment::Shares& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](const auto& s, const auto& t) { return s.size() == t.size(); });
  });
}

}  // namespace

StepLoad RecordedLoad::step_load() const {
  StepLoad load{.llm = llm, .samples = assignment.llm, .routed = routed, .balances_experts = balances_experts};
  for (const auto& [kind, shares] : assignment.encoders) {
    const auto found = encoders.find(kind);
    load.beside[kind] = {
        .macro_batches = found == encoders.end() ? std::vector<MacroBatches>() : found->second,
        .numbers = RowNumbers(kind, shares, media),
    };
  }
  return load;
}

Json to_json(const RecordedLoad& load) {
  Json json = {{"assignment", shares_json(load.assignment.llm)}};
  json["llm"] = Json::array();
  for (const auto& microbatches : load.llm) json["llm"].push_back(microbatches_json(microbatches));
  for (const auto& [kind, shares] : load.assignment.encoders) {
    Json& encoder = json["encoders"][std::string(name_of(kind))];
    encoder["assignment"] = shares_json(shares);
    encoder["macro_batches"] = Json::array();
    const auto found = load.encoders.find(kind);
    if (found == load.encoders.end()) continue;
    for (const auto& batches : found->second) encoder["macro_batches"].push_back(macro_batches_json(batches));
  }
  if (!load.media.empty()) {
    std::vector<int64_t> image, video, audio;
    for (const MediaRowCounts& rows : load.media) {
      image.push_back(rows.image);
      video.push_back(rows.video);
      audio.push_back(rows.audio);
    }
    json["media"] = {{"image", runs_of(image)}, {"video", runs_of(video)}, {"audio", runs_of(audio)}};
  }
  for (size_t router = 0; router < load.routed.size(); ++router) {
    for (size_t place = 0; place < load.routed[router].size(); ++place) {
      for (size_t microbatch = 0; microbatch < load.routed[router][place].size(); ++microbatch)
        json["routed"].push_back({router, place, microbatch, runs_of(load.routed[router][place][microbatch])});
    }
  }
  if (load.balances_experts) json["balances_experts"] = true;
  return json;
}

Result<RecordedLoad> read_load(const Json& json, NumberBudget& budget) {
  RecordedLoad load;
  if (!json.is_object()) return malformed("", "an object");
  if (!json.contains("assignment")) return malformed("assignment", "there");
  WEFT_TRY(load.assignment.llm, read_shares(json["assignment"], "assignment", budget));
  if (!json.contains("llm") || !json["llm"].is_array()) return malformed("llm", "a list by data-parallel rank");
  for (size_t rank = 0; rank < json["llm"].size(); ++rank) {
    WEFT_TRY(auto microbatches, read_microbatches(json["llm"][rank], fmt::format("llm[{}]", rank), budget));
    load.llm.push_back(std::move(microbatches));
  }
  if (json.contains("encoders")) {
    if (!json["encoders"].is_object()) return malformed("encoders", "an object of modules");
    for (const auto& [name, encoder] : json["encoders"].items()) {
      const std::string path = "encoders." + name;
      const auto kind = module_kind_named(name);
      if (!kind || !encoder.is_object() || !encoder.contains("assignment") || !encoder.contains("macro_batches"))
        return malformed(path, "an encoder with assignment and macro_batches");
      WEFT_TRY(load.assignment.encoders[*kind], read_shares(encoder["assignment"], path + ".assignment", budget));
      if (!encoder["macro_batches"].is_array()) return malformed(path + ".macro_batches", "a list");
      for (const Json& batches : encoder["macro_batches"]) {
        WEFT_TRY(auto read, read_macro_batches(batches, path + ".macro_batches", budget));
        load.encoders[*kind].push_back(std::move(read));
      }
    }
  }
  if (json.contains("media")) {
    const Json& media = json["media"];
    if (!media.is_object()) return malformed("media", "an object");
    WEFT_TRY(const std::vector<int64_t> image, read_runs(media, "image", "media", budget));
    WEFT_TRY(const std::vector<int64_t> video, read_runs(media, "video", "media", budget));
    WEFT_TRY(const std::vector<int64_t> audio, read_runs(media, "audio", "media", budget));
    if (image.size() != video.size() || image.size() != audio.size()) return malformed("media", "of one length");
    for (size_t i = 0; i < image.size(); ++i) load.media.push_back({image[i], video[i], audio[i]});
  }
  if (json.contains("routed")) {
    WEFT_TRY(const auto routed, read_routed(json["routed"], budget));
    // A router of no other number may follow: a wrong index would ask for memory without end.
    if (static_cast<int64_t>(routed.size()) < 1) return malformed("routed", "a list of rows");
    std::array<int64_t, 3> most{};
    for (const auto& [key, rows] : routed) {
      for (size_t i = 0; i < 3; ++i) most[i] = std::max(most[i], key[i] + 1);
    }
    if (most[0] * most[1] > kMostLists || most[0] * most[1] * most[2] != static_cast<int64_t>(routed.size()))
      return malformed("routed", "whole: every router, place and microbatch once");
    for (const auto& [key, rows] : routed) grown(grown(grown(load.routed, key[0]), key[1]), key[2]) = rows;
  }
  if (json.contains("balances_experts")) {
    if (!json["balances_experts"].is_boolean()) return malformed("balances_experts", "true or false");
    load.balances_experts = json["balances_experts"].get<bool>();
  }
  return load;
}

std::optional<std::string> find_misfit(const Plan& plan, const RecordedLoad& load) {
  const BatchShape shape = batch_shape(plan);
  const BatchAssignment in_order = assign_in_order(shape);
  const int64_t num_samples = plan.workload.global_batch_samples;
  if (!have_same_sizes(load.assignment.llm, in_order.llm) || !has_each_once(load.assignment.llm, num_samples))
    return "the llm's samples are dealt out as no batch of the plan is";
  if (load.llm.size() != in_order.llm.size()) return "microbatches of a data-parallel rank are missing";
  if (load.assignment.encoders.size() != in_order.encoders.size()) return "it has other encoders";
  if (!in_order.encoders.empty() && std::ssize(load.media) != num_samples) return "media of samples are missing";
  for (const MediaRowCounts& rows : load.media) {
    if (rows.image < 0 || rows.video < 0 || rows.audio < 0) return "a sample has fewer rows than none";
  }
  for (const auto& [kind, shares] : in_order.encoders) {
    const auto given = load.assignment.encoders.find(kind);
    const auto batches = load.encoders.find(kind);
    if (given == load.assignment.encoders.end() || batches == load.encoders.end()) return "an encoder is missing";
    if (!has_each_once(given->second, num_samples) || given->second.size() != shares.size() ||
        batches->second.size() != shares.size())
      return "an encoder's samples are dealt out as no batch of the plan is";
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      if (given->second[rank].size() != shares[rank].size() || batches->second[rank].size() != shares[rank].size())
        return "macro batches of an encoder are missing";
    }
  }
  for (size_t rank = 0; rank < load.llm.size(); ++rank) {
    if (load.llm[rank].size() != in_order.llm[rank].size()) return "microbatches are missing";
    for (size_t turn = 0; turn < load.llm[rank].size(); ++turn) {
      const MicrobatchLoad& microbatch = load.llm[rank][turn];
      const std::vector<int64_t>& samples = load.assignment.llm[rank][turn];
      // A packed sample is several.
      if (microbatch.samples.size() < samples.size() || !are_lengths(microbatch.samples))
        return "a microbatch has other samples than were dealt to it";
      const int64_t tokens = std::accumulate(microbatch.samples.begin(), microbatch.samples.end(), int64_t{0});
      if (!rise_below(microbatch.targets, tokens)) return "a target lies outside its microbatch";
      for (const auto& [kind, places] : microbatch.places) {
        if (std::any_of(places.begin(), places.end(), [&](int64_t p) { return p < 0 || p >= tokens; }))
          return "a row of an encoder lies outside its microbatch";
        if (!in_order.encoders.contains(kind)) continue;
        int64_t rows = 0;
        for (const int64_t sample : samples) rows += load.media[static_cast<size_t>(sample)].of(kind);
        if (rows != std::ssize(places)) return "an encoder's rows do not fit their places";
      }
    }
  }
  if (plan.llm().ep == 1) return std::nullopt;
  const Routers routers = routers_of(plan);
  if (std::ssize(load.routed) != routers.count()) return "choices of routers are missing";
  for (const auto& places : load.routed) {
    if (std::ssize(places) != num_expert_ranks(plan.llm())) return "choices of ranks are missing";
    for (const auto& microbatches : places) {
      if (std::ssize(microbatches) != plan.schedule.microbatches) return "choices of microbatches are missing";
      for (const auto& rows : microbatches) {
        if (rows.empty() || std::ssize(rows) % plan.llm().ep != 0 || !are_lengths(rows))
          return "choices of experts are missing";
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> find_other_lengths(const RecordedLoad& load, const std::vector<SampleLoad>& samples) {
  for (size_t rank = 0; rank < load.llm.size(); ++rank) {
    for (size_t turn = 0; turn < load.llm[rank].size(); ++turn) {
      const std::vector<int64_t>& lengths = load.llm[rank][turn].samples;
      double tokens = 0;
      for (const int64_t sample : load.assignment.llm[rank][turn])
        tokens += num_tokens(samples[static_cast<size_t>(sample)].llm);
      const auto loaded = as_double(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
      if (std::abs(loaded - tokens) > 0.5)
        return fmt::format("a microbatch has {} tokens, but its samples have {}", loaded, tokens);
    }
  }
  return std::nullopt;
}

Json to_json(const LoadPart& part) {
  Json json = Json::object();
  if (part.llm_rank) json["llm"] = {*part.llm_rank, microbatches_json(part.microbatches)};
  for (const auto& [kind, encoder] : part.encoders)
    json["encoders"][std::string(name_of(kind))] = {encoder.first, macro_batches_json(encoder.second)};
  for (const auto& [key, rows] : part.routed) json["routed"].push_back({key[0], key[1], key[2], runs_of(rows)});
  return json;
}

Result<LoadPart> read_load_part(const Json& json) {
  LoadPart part;
  NumberBudget budget{INT64_MAX};  // the rank's own, which are there already
  if (json.contains("llm")) {
    part.llm_rank = json["llm"][0].get<int64_t>();
    WEFT_TRY(part.microbatches, read_microbatches(json["llm"][1], "llm", budget));
  }
  if (json.contains("encoders")) {
    for (const auto& [name, encoder] : json["encoders"].items()) {
      WEFT_TRY(auto batches, read_macro_batches(encoder[1], name, budget));
      part.encoders[*module_kind_named(name)] = {encoder[0].get<int64_t>(), std::move(batches)};
    }
  }
  if (json.contains("routed")) {
    WEFT_TRY(part.routed, read_routed(json["routed"], budget));
  }
  return part;
}

void add_part(const LoadPart& part, RecordedLoad& load) {
  if (part.llm_rank) grown(load.llm, *part.llm_rank) = part.microbatches;
  for (const auto& [kind, encoder] : part.encoders) grown(load.encoders[kind], encoder.first) = encoder.second;
  for (const auto& [key, rows] : part.routed) grown(grown(grown(load.routed, key[0]), key[1]), key[2]) = rows;
}

}  // namespace weft
