#include "weft/loader/conversation_source.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/loader/media_content.h"

namespace weft {
namespace {

/// A sample for which so many records in turn cannot be used is no accident.
constexpr int64_t kMostAttempts = 100;

/// Of a picture that is several images, tiles one after the other, the part of all its patches: from the first that is
/// wanted to the last. `all` are the patches of all tiles.
Range joined(std::span<const Range> tiles, int64_t num_tiles, Range all) {
  const int64_t patches = all.size() / num_tiles;
  Range part;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const Range own = tiles[static_cast<size_t>(tile)];
    if (own.empty()) continue;
    if (part.empty()) part.begin = tile * patches + own.begin;
    part.end = tile * patches + own.end;
  }
  return part;
}

}  // namespace

Result<std::shared_ptr<ConversationData>> ConversationData::open(const Model& model, const SampleForm& form,
                                                                 const std::filesystem::path& model_folder,
                                                                 const DataSettings& settings) {
  WEFT_TRY(ConversationSets sets, ConversationSets::open(settings));
  return open_with(std::move(sets), model, form, model_folder, settings);
}

Result<std::shared_ptr<ConversationData>> ConversationData::open_for_prompts(
    const Model& model, const SampleForm& form, const std::filesystem::path& model_folder) {
  return open_with({}, model, form, model_folder, {});
}

Result<std::shared_ptr<ConversationData>> ConversationData::open_with(ConversationSets sets, const Model& model,
                                                                      const SampleForm& form,
                                                                      const std::filesystem::path& model_folder,
                                                                      const DataSettings& settings) {
  WEFT_TRY(ModelText text, read_model_text(model_folder));
  const std::shared_ptr<ConversationData> data(new ConversationData(std::move(sets), std::move(text)));
  WEFT_TRY(data->chat_, data->text_.chat_template(model_folder));
  const std::string tokenizer_file = (model_folder / "tokenizer.json").string();
  if (auto error = find_foreign_tokenizer(model, data->text_.tokenizer, tokenizer_file)) return *std::move(error);
  WEFT_TRY(data->tokens_, media_token_rule(model, data->text_.tokenizer, tokenizer_file));
  WEFT_TRY(data->media_, read_media_rules(model, model_folder, settings.limits));
  data->encode_ = settings.encode;
  data->encode_.max_tokens = form.max_tokens;
  data->form_ = form;
  return data;
}

std::unique_ptr<ConversationData::Bench> ConversationData::take_bench() const {
  const std::lock_guard lock(mutex_);
  if (benches_.empty()) return std::make_unique<Bench>();
  std::unique_ptr<Bench> bench = std::move(benches_.back());
  benches_.pop_back();
  return bench;
}

void ConversationData::give_back(std::unique_ptr<Bench> bench) const {
  const std::lock_guard lock(mutex_);
  benches_.push_back(std::move(bench));
}

void ConversationData::add_shape(const MediaReference& media, const MediaShape& shape, Draft& draft) const {
  Sample& sample = draft.sample;
  const ImageGrid frame{.rows = shape.grid.h, .columns = shape.grid.w};
  if (media.kind == MediaKind::kAudio) {
    sample.clip_frames.push_back(shape.mel_frames);
    sample.load.audio.push_back({static_cast<double>(shape.positions), 1});
    draft.rows.audio += shape.size.tokens;
  } else if (shape.num_tiles > 0) {
    const ImageGrid tile{.rows = form_.tile_side, .columns = form_.tile_side};
    sample.images.insert(sample.images.end(), static_cast<size_t>(shape.num_tiles), tile);
    sample.load.vision.push_back(
        {static_cast<double>(media_.geometry.rows_per_tile()), static_cast<double>(shape.num_tiles)});
    draft.rows.image += shape.size.tokens;
  } else if (media.kind == MediaKind::kImage) {
    sample.images.push_back(frame);
    sample.load.vision.push_back({static_cast<double>(frame.num_patches()), 1});
    draft.rows.image += shape.size.tokens;
  } else {
    // Patches of a video see those of their own frame only.
    sample.videos.push_back({.frames = shape.grid.t, .frame = frame, .frame_seconds = shape.frame_seconds});
    sample.load.vision.push_back({static_cast<double>(frame.num_patches()), static_cast<double>(shape.grid.t)});
    draft.rows.video += shape.size.tokens;
  }
}

Result<ConversationData::Draft> ConversationData::read(const SampleOrder::Place& place) const {
  WEFT_TRY(const Conversation conversation, sets_.read(place));
  return draft_of(conversation, encode_, sets_.name_of_sample(place));
}

Result<ConversationData::Draft> ConversationData::read_prompt(const Conversation& conversation,
                                                              const std::string& name) const {
  return draft_of(conversation, {.max_tokens = encode_.max_tokens, .asks = true}, name);
}

Result<ConversationData::Draft> ConversationData::draft_of(const Conversation& conversation,
                                                           const EncodeSettings& settings,
                                                           const std::string& name) const {
  Draft draft;
  std::vector<MediaSize> sizes;
  for (const MediaReference& media : conversation.media) {
    WEFT_TRY(MediaShape shape, measure_media(media_, media));
    add_shape(media, shape, draft);
    sizes.push_back(shape.size);
    draft.shapes.push_back(std::move(shape));
  }
  std::unique_ptr<Bench> bench = take_bench();
  Result<EncodedText> encoded =
      encode_conversation(text_, *chat_, tokens_, settings, conversation, sizes, bench->cache, name);
  give_back(std::move(bench));
  if (!encoded) return std::move(encoded).error();
  const int64_t length = std::ssize(encoded->ids);
  draft.sample.ids = std::move(encoded->ids);
  draft.sample.targets = std::move(encoded->targets);
  draft.sample.load.llm = {{static_cast<double>(length), 1}};
  draft.media = conversation.media;
  return draft;
}

std::optional<Error> ConversationData::add_content(Draft& draft, const SampleContent& wanted) const {
  std::vector<std::vector<float>> clips;
  size_t num_images = 0, num_videos = 0, num_clips = 0;
  for (size_t i = 0; i < draft.media.size(); ++i) {
    const MediaReference& media = draft.media[i];
    const MediaShape& shape = draft.shapes[i];
    if (media.kind == MediaKind::kAudio) {
      const size_t number = num_clips++;
      const Range part = wanted.ranges ? wanted.ranges->clips[number] : Range{0, shape.mel_frames};
      if (!wanted.features) continue;
      auto features = read_clip(media, shape, part);
      if (!features) return features.error();
      clips.push_back(*std::move(features));
      continue;
    }
    // Tiles are images to the model, those of a video, too.
    const bool is_video = media.kind == MediaKind::kVideo, has_tiles = shape.num_tiles > 0;
    Range part{0, has_tiles ? shape.num_tiles * form_.tile_side * form_.tile_side : shape.grid.num_patches()};
    if (has_tiles) {
      if (wanted.ranges) part = joined(std::span(wanted.ranges->images).subspan(num_images), shape.num_tiles, part);
      num_images += static_cast<size_t>(shape.num_tiles);
    } else if (is_video) {
      if (wanted.ranges) part = wanted.ranges->videos[num_videos];
      ++num_videos;
    } else {
      if (wanted.ranges) part = wanted.ranges->images[num_images];
      ++num_images;
    }
    if (!wanted.pixels || part.empty()) continue;
    auto error = has_tiles ? append_tiles(media, is_video ? *media_.frame_tiles : *media_.tiles, shape, part,
                                          draft.sample.pixels)
                           : append_patches(media, is_video ? *media_.video : *media_.image, shape, part,
                                            is_video ? draft.sample.video_pixels : draft.sample.pixels);
    if (error) return error;
  }
  // Clips lie one after the other in every band.
  const auto bands = static_cast<size_t>(form_.mel_bins);
  for (size_t band = 0; band < bands; ++band) {
    for (const std::vector<float>& clip : clips) {
      const auto length = static_cast<std::ptrdiff_t>(clip.size() / bands);
      const auto begin = clip.begin() + static_cast<std::ptrdiff_t>(band) * length;
      draft.sample.features.insert(draft.sample.features.end(), begin, begin + length);
    }
  }
  return std::nullopt;
}

Result<std::vector<float>> ConversationData::read_clip(const MediaReference& media, const MediaShape& shape,
                                                       Range part) const {
  if (part.empty()) return std::vector<float>();
  std::unique_ptr<Bench> bench = take_bench();
  if (!bench->mel) bench->mel = std::make_unique<LogMel>(*media_.audio);
  auto features = clip_features(media, *bench->mel, shape, part);
  give_back(std::move(bench));
  return features;
}

void LeftOutRecords::add(const SampleOrder::Place& place, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  problems_.emplace(std::pair(place.set, place.record), problem);
}

std::optional<std::string> LeftOutRecords::find(const SampleOrder::Place& place) const {
  const std::lock_guard lock(mutex_);
  const auto it = problems_.find({place.set, place.record});
  return it == problems_.end() ? std::nullopt : std::optional(it->second);
}

ConversationSource::ConversationSource(std::shared_ptr<const ConversationData> data, uint64_t seed, bool is_held_out)
    : data_(std::move(data)), order_(data_->sets().order(seed)), is_held_out_(is_held_out) {
  WEFT_CHECK(!is_held_out || order_.num_held_out() > 0, "no samples are held out");
}

int64_t ConversationSource::num_different() const {
  return is_held_out_ ? order_.num_held_out() : order_.epoch_samples();
}

SampleOrder::Place ConversationSource::place_of(int64_t index, int64_t attempt) const {
  if (is_held_out_) return order_.held_out((index + attempt) % order_.num_held_out());
  return order_.at(index, attempt);
}

Result<ConversationSource::Found> ConversationSource::find(int64_t index, std::vector<SkippedSample>& skipped) const {
  std::optional<Error> last;
  for (int64_t attempt = 0; attempt < kMostAttempts; ++attempt) {
    const SampleOrder::Place place = place_of(index, attempt);
    const std::string name = data_->sets().name_of_sample(place);
    if (auto problem = left_out_.find(place)) {
      skipped.push_back({.sample = index, .attempt = attempt, .source = name, .problem = *problem});
      last = Error{.problem = *std::move(problem)};
      continue;
    }
    auto draft = data_->read(place);
    if (draft) return Found{.draft = *std::move(draft), .attempt = attempt};
    skipped.push_back({.sample = index, .attempt = attempt, .source = name, .problem = draft.error().message()});
    last = draft.error();
  }
  return Error{.source = data_->sets().name_of_sample(place_of(index, 0)),
               .problem = fmt::format("cannot be used, and neither can {} others that were to stand in for it: {}",
                                      kMostAttempts - 1, last->message()),
               .advice = "Mend the data."};
}

Result<SampleLengths> ConversationSource::lengths_of(int64_t index, std::vector<SkippedSample>& skipped) const {
  WEFT_TRY(Found found, find(index, skipped));
  return SampleLengths{.load = std::move(found.draft.sample.load), .rows = found.draft.rows};
}

Result<Sample> ConversationSource::read(int64_t index, const SampleContent& wanted,
                                        std::vector<SkippedSample>& skipped) const {
  WEFT_TRY(Found found, find(index, skipped));
  if (const auto error = data_->add_content(found.draft, wanted)) {
    skipped.push_back({.sample = index,
                       .attempt = found.attempt,
                       .source = data_->sets().name_of_sample(place_of(index, found.attempt)),
                       .problem = error->message(),
                       .is_new = true});
    return Sample();
  }
  found.draft.sample.stands_in = found.attempt > 0;
  return std::move(found.draft.sample);
}

void ConversationSource::leave_out(const std::vector<SkippedSample>& skipped) {
  for (const SkippedSample& sample : skipped) left_out_.add(place_of(sample.sample, sample.attempt), sample.problem);
}

}  // namespace weft
