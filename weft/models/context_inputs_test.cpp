#include "weft/models/context_inputs.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tests/support/mesh/row_route.h"
#include "tests/support/source_tree.h"
#include "weft/families/media/audio_index.h"
#include "weft/models/audio/audio_encoder.h"
#include "weft/models/initialize.h"
#include "weft/models/network.h"
#include "weft/models/vision/vision_encoder.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

using List = std::vector<int64_t>;
constexpr double kTolerance = 1e-12;

/// A tiny model in double precision.
struct TinyModel {
  std::string fixture;
  Model model;
  WholeParameters maker{at::TensorOptions().dtype(at::kDouble)};
  Network network;
  int64_t vocabulary;

  explicit TinyModel(const std::string& name)
      : fixture(name),
        model(*read_model_file(source_tree() / "tests/parity/fixtures" / name)),
        network(*Network::create(model, maker)),
        vocabulary(network.decoder().vocabulary()) {
    at::set_num_threads(1);
    initialize_weights(maker.all(), 3);
    // Biases, too, are to matter.
    for (const ParameterPtr& parameter : maker.all()) {
      const at::NoGradGuard no_graph;
      if (parameter->value.dim() == 1)
        parameter->value.add_(at::linspace(-0.3, 0.4, parameter->value.size(0), at::kDouble));
    }
  }
  const ModelNumbers& numbers() const { return network.numbers(); }
};

/// What samples of a batch have at most; numbers are drawn below these.
struct Media {
  int64_t images = 3;
  int64_t videos = 2;
  int64_t clips = 3;
  int64_t side = 5;         ///< merged rows and columns of a frame
  int64_t frames = 40;      ///< of a clip
  bool has_text = true;     ///< more of it than what must be
  bool is_exactly = false;  ///< as many as given, not fewer
};

class BatchDrawer {
 public:
  BatchDrawer(const TinyModel& model, uint64_t seed) : model_(model), random_(seed) {}

  Inputs draw(int64_t num_samples, const Media& media) {
    for (int64_t i = 0; i < num_samples; ++i) add_sample(media);
    raw_.input_ids = at::tensor(ids_, at::kLong);
    List targets(ids_.size(), -100);
    for (size_t i = 0; i + 1 < ids_.size(); ++i) {
      if (below(3) > 0) targets[i] = ids_[i + 1];
    }
    raw_.targets = at::tensor(targets, at::kLong);
    if (!images_.empty()) raw_.pixel_values = at::cat(images_);
    if (!videos_.empty()) raw_.pixel_values_videos = at::cat(videos_);
    if (!clips_.empty()) raw_.input_features = at::cat(clips_, 1);
    auto inputs = prepare_inputs(model_.numbers(), model_.vocabulary, raw_);
    WEFT_CHECK(inputs.ok(), "{}", inputs.error().message());
    return *std::move(inputs);
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  at::Tensor noise(int64_t rows, int64_t columns) {
    std::normal_distribution<double> normal;
    at::Tensor values = at::zeros({rows, columns}, at::kDouble);
    for (int64_t i = 0; i < values.numel(); ++i) values.data_ptr<double>()[i] = normal(random_);
    return values;
  }

  void add_text(int64_t count) {
    const MediaTokens& special = model_.numbers().media.tokens;
    while (count > 0) {
      const int64_t id = below(model_.vocabulary);
      if (id == special.image || id == special.video || id == special.audio || id == special.vision_start ||
          id == special.vision_end || id == special.audio_start || id == special.audio_end)
        continue;
      ids_.push_back(id);
      --count;
    }
  }

  void add_media(int64_t start, int64_t token, int64_t count, int64_t end) {
    ids_.push_back(start);
    ids_.insert(ids_.end(), static_cast<size_t>(count), token);
    ids_.push_back(end);
    add_text(1 + below(3));
  }

  void add_sample(const Media& media) {
    const ModelNumbers& numbers = model_.numbers();
    const MediaTokens& special = numbers.media.tokens;
    const auto begin = ids_.size();
    const auto count = [&](int64_t most) { return media.is_exactly ? most : below(most + 1); };
    add_text(media.has_text ? 1 + below(20) : 1);
    for (int64_t left = numbers.vision ? count(media.images) : 0; left > 0; --left) {
      const int64_t merge = numbers.vision->merge_size;
      const Grid grid{1, merge * (1 + below(media.side)), merge * (1 + below(media.side))};
      add_media(special.vision_start, special.image, num_merged_tokens(grid, merge), special.vision_end);
      raw_.image_grids.push_back(grid);
      images_.push_back(noise(num_patches(grid), numbers.vision->patch_elements()));
    }
    for (int64_t left = numbers.vision ? count(media.videos) : 0; left > 0; --left) {
      const int64_t merge = numbers.vision->merge_size;
      const Grid grid{1 + below(4), merge * (1 + below(media.side)), merge * (1 + below(media.side))};
      add_media(special.vision_start, special.video, num_merged_tokens(grid, merge), special.vision_end);
      raw_.video_grids.push_back(grid);
      raw_.video_frame_seconds.push_back(1);
      videos_.push_back(noise(num_patches(grid), numbers.vision->patch_elements()));
    }
    for (int64_t left = numbers.audio ? count(media.clips) : 0; left > 0; --left) {
      const int64_t length = 3 + below(media.frames);
      add_media(special.audio_start, special.audio, num_audio_tokens(length), special.audio_end);
      raw_.audio_frames.push_back(length);
      clips_.push_back(noise(numbers.audio->mel_bins, length));
    }
    raw_.lengths.push_back(static_cast<int64_t>(ids_.size() - begin));
  }

  const TinyModel& model_;
  std::mt19937_64 random_;
  List ids_;
  RawInputs raw_;
  std::vector<at::Tensor> images_;
  std::vector<at::Tensor> videos_;
  std::vector<at::Tensor> clips_;
};

List list_of(const at::Tensor& numbers) {
  return {numbers.data_ptr<int64_t>(), numbers.data_ptr<int64_t>() + numbers.numel()};
}

at::Tensor index_of(const List& numbers) {
  return at::tensor(numbers, at::kLong);
}

List count_up(int64_t size) {
  List numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

List joined(const RowLists& lists) {
  List all;
  for (const List& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

List sorted(List list) {
  std::sort(list.begin(), list.end());
  return list;
}

List rows_by_rank(const RowDeal& deal) {
  List all;
  for (int64_t rank = 0; rank < deal.num_ranks(); ++rank) {
    const List own = deal.rows(rank);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

struct Case {
  std::string name;
  Inputs whole;
};

/// Batches of a model, from none of anything to long ones.
std::vector<Case> cases_of(const TinyModel& model) {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, int64_t num_samples, const Media& media, uint64_t seed) {
    cases.push_back({name, BatchDrawer(model, seed).draw(num_samples, media)});
  };
  for (uint64_t seed = 1; seed <= 6; ++seed)
    add("any " + std::to_string(seed), 1 + static_cast<int64_t>(seed % 4), {}, seed);
  add("text", 2, {.images = 0, .videos = 0, .clips = 0}, 11);
  add("one token", 1, {.images = 0, .videos = 0, .clips = 0, .has_text = false}, 12);
  add("one tiny image", 1, {.images = 1, .videos = 0, .clips = 0, .side = 1, .has_text = false, .is_exactly = true},
      13);
  add("one tiny clip", 1, {.images = 0, .videos = 0, .clips = 1, .frames = 1, .has_text = false, .is_exactly = true},
      14);
  add("large", 3, {.images = 2, .videos = 2, .clips = 2, .side = 8, .frames = 60, .is_exactly = true}, 15);
  return cases;
}

using Body = std::function<void(const TinyModel&, const Inputs&, const std::vector<ContextBatch>&)>;

/// For models and batches, what each of 1, 2, 3, 4 and 8 ranks has.
void for_all(const std::vector<std::string>& fixtures, const Body& body) {
  for (const std::string& fixture : fixtures) {
    const TinyModel model(fixture);
    for (const Case& one : cases_of(model)) {
      const Inputs whole = one.whole.to(at::TensorOptions().dtype(at::kDouble));
      for (const int64_t num_ranks : {1, 2, 3, 4, 8}) {
        SCOPED_TRACE(fixture + ", " + one.name + ", " + std::to_string(num_ranks) + " ranks");
        std::vector<ContextBatch> shares;
        for (int64_t rank = 0; rank < num_ranks; ++rank)
          shares.push_back(context_batch(whole, model.numbers(), num_ranks, rank));
        body(model, whole, shares);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

const std::vector<std::string> kAll = {"qwen2_vl_tied", "qwen2_vl_train", "qwen2_5_vl", "qwen2_5_omni", "qwen3"};
const std::vector<std::string> kWithVision = {"qwen2_vl_tied", "qwen2_5_vl", "qwen2_5_omni"};

TEST(ContextInputs, EveryTokenAndTargetIsOnOneRankAsInTheWhole) {
  for_all(kAll, [](const TinyModel&, const Inputs& whole, const std::vector<ContextBatch>& shares) {
    const RowDeal& tokens = shares.front().tokens;
    EXPECT_EQ(sorted(rows_by_rank(tokens)), count_up(whole.ids.size(0)));
    List target_rows, target_ids;
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      const ContextBatch& share = shares[rank];
      EXPECT_EQ(share.tokens, tokens);
      const List rows = tokens.rows(static_cast<int64_t>(rank));
      EXPECT_TRUE(share.own.ids.equal(whole.ids.index_select(0, index_of(rows))));
      EXPECT_TRUE(share.own.positions.equal(whole.positions.index_select(1, index_of(rows))));
      EXPECT_EQ(share.own.samples.lengths(), whole.samples.lengths());
      EXPECT_EQ(share.own.position_delta, whole.position_delta);
      for (const int64_t row : list_of(share.own.target_rows)) target_rows.push_back(rows.at(static_cast<size_t>(row)));
      const List ids = list_of(share.own.targets);
      target_ids.insert(target_ids.end(), ids.begin(), ids.end());
    }
    const List expected_rows = list_of(whole.target_rows), expected_ids = list_of(whole.targets);
    ASSERT_EQ(target_rows.size(), expected_rows.size());
    for (size_t i = 0; i < expected_rows.size(); ++i) {
      const auto found = std::find(target_rows.begin(), target_rows.end(), expected_rows[i]);
      ASSERT_NE(found, target_rows.end());
      EXPECT_EQ(target_ids[static_cast<size_t>(found - target_rows.begin())], expected_ids[i]);
    }
  });
}

TEST(ContextInputs, MediaRowsThatAreMadeComeToTheirTokens) {
  for_all(kAll, [](const TinyModel&, const Inputs& whole, const std::vector<ContextBatch>& shares) {
    const auto expect_right = [&](const at::Tensor& whole_places, auto own_places, auto made, auto needed) {
      const RowRoute route = plan_row_route(made(shares.front()), needed(shares.front()));
      // What comes to every token.
      List row_of_token(static_cast<size_t>(whole.ids.size(0)), -1);
      std::vector<List> got;
      for (size_t rank = 0; rank < shares.size(); ++rank) {
        EXPECT_EQ(made(shares[rank]), made(shares.front()));
        EXPECT_EQ(needed(shares[rank]), needed(shares.front()));
        got.emplace_back(needed(shares.front())[rank].size(), -1);
      }
      for (const auto* messages : {&route.messages, &route.kept}) {
        for (const RowMessage& message : *messages) {
          const List& from = made(shares.front())[static_cast<size_t>(message.from)];
          for (size_t i = 0; i < message.sender_places.size(); ++i)
            got[static_cast<size_t>(message.to)][static_cast<size_t>(message.receiver_places[i])] =
                from[static_cast<size_t>(message.sender_places[i])];
        }
      }
      for (size_t rank = 0; rank < shares.size(); ++rank) {
        const List places = list_of(own_places(shares[rank]));
        const List tokens = shares[rank].tokens.rows(static_cast<int64_t>(rank));
        ASSERT_EQ(places.size(), got[rank].size());
        for (size_t i = 0; i < places.size(); ++i)
          row_of_token.at(static_cast<size_t>(tokens.at(static_cast<size_t>(places[i])))) = got[rank][i];
      }
      List expected(row_of_token.size(), -1);
      const List places = list_of(whole_places);
      for (size_t row = 0; row < places.size(); ++row)
        expected[static_cast<size_t>(places[row])] = static_cast<int64_t>(row);
      EXPECT_EQ(row_of_token, expected);
      EXPECT_EQ(sorted(joined(made(shares.front()))), count_up(std::ssize(places)));
    };
    using Share = ContextBatch;
    expect_right(
        whole.vision_places, [](const Share& s) { return s.own.vision_places; },
        [](const Share& s) -> const RowLists& { return s.vision_made; },
        [](const Share& s) -> const RowLists& { return s.vision_needed; });
    expect_right(
        whole.audio_places, [](const Share& s) { return s.own.audio_places; },
        [](const Share& s) -> const RowLists& { return s.audio_made; },
        [](const Share& s) -> const RowLists& { return s.audio_needed; });
  });
}

/// Sums of parameters' gradients, which start anew.
std::vector<at::Tensor> take_gradients(const TinyModel& model) {
  std::vector<at::Tensor> gradients;
  for (const ParameterPtr& parameter : model.maker.all()) {
    gradients.push_back(parameter->gradient.defined() ? parameter->gradient.clone()
                                                      : at::zeros_like(parameter->value.detach()));
    parameter->gradient = at::Tensor();
  }
  return gradients;
}

void expect_equal_gradients(const TinyModel& model, const std::vector<at::Tensor>& a,
                            const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_LE(difference(a[i], b[i]), kTolerance * (1 + b[i].abs().max().item<double>()))
        << model.maker.all()[i]->name();
}

/// A loss that no two rows have the same share of.
at::Tensor loss_of(const at::Tensor& rows, const List& numbers) {
  return (rows.sin() * (1 + index_of(numbers).to(at::kDouble)).unsqueeze(1)).sum();
}

TEST(ContextInputs, PatchesAreCutBetweenWhatIsMergedAndEmbedAndMergeAsInTheWhole) {
  for_all(kWithVision, [](const TinyModel& model, const Inputs& whole, const std::vector<ContextBatch>& shares) {
    const auto& encoder = dynamic_cast<const VisionEncoder&>(*model.network.find(ModuleKind::kVision));
    const int64_t unit = encoder.numbers().merge_size * encoder.numbers().merge_size;
    const RunContext context;
    for (const ContextBatch& share : shares) ASSERT_EQ(share.own.vision.has_value(), whole.vision.has_value());
    if (!whole.vision) return;
    const at::Tensor patches = encoder.embed_patches(*whole.vision, context);
    const at::Tensor merged = encoder.merge(patches, *whole.vision, context, context);
    loss_of(merged, count_up(merged.size(0))).backward();
    const std::vector<at::Tensor> gradients = take_gradients(model);

    std::vector<at::Tensor> pixels, positions, embedded, turned;
    const RotaryTable table = encoder.rotary(whole.vision->positions, at::kDouble);
    at::Tensor put_together = at::full_like(merged.detach(), 1e9);
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      const ContextBatch& share = shares[rank];
      const VisionInputs& own = *share.own.vision;
      EXPECT_EQ(share.patches, shares.front().patches);
      EXPECT_EQ(own.pixels.size(0), share.patches.num_rows(static_cast<int64_t>(rank)));
      EXPECT_EQ(own.pixels.size(0) % unit, 0);
      EXPECT_EQ(own.num_rows, own.pixels.size(0) / unit);
      EXPECT_EQ(own.frames.lengths(), whole.vision->frames.lengths());
      EXPECT_EQ(own.windows.lengths(), whole.vision->windows.lengths());
      EXPECT_FALSE(own.output_order.defined());
      pixels.push_back(own.pixels);
      positions.push_back(own.positions);
      turned.push_back(encoder.rotary(own.positions, at::kDouble).cos);
      embedded.push_back(encoder.embed_patches(own, context));
      const at::Tensor rows = encoder.merge(embedded.back(), own, context, context);
      put_together.index_copy_(0, index_of(share.vision_made[rank]), rows.detach());
      loss_of(rows, share.vision_made[rank]).backward();
    }
    EXPECT_TRUE(at::cat(pixels).equal(whole.vision->pixels));
    EXPECT_TRUE(at::cat(positions).equal(whole.vision->positions));
    EXPECT_LE(difference(at::cat(turned), table.cos), kTolerance);
    EXPECT_LE(difference(at::cat(embedded), patches), kTolerance);
    EXPECT_LE(difference(put_together, merged), kTolerance);
    expect_equal_gradients(model, take_gradients(model), gradients);
  });
}

TEST(ContextInputs, AudioIsCutBetweenPairsAndConvolvesAndPoolsAsInTheWhole) {
  for_all({"qwen2_5_omni"}, [](const TinyModel& model, const Inputs& whole, const std::vector<ContextBatch>& shares) {
    const auto& encoder = dynamic_cast<const AudioEncoder&>(*model.network.find(ModuleKind::kAudio));
    const RunContext context;
    for (const ContextBatch& share : shares) ASSERT_EQ(share.own.audio.has_value(), whole.audio.has_value());
    if (!whole.audio) return;
    const at::Tensor convolved = encoder.convolve(*whole.audio, context);
    const at::Tensor pooled = encoder.pool(convolved, *whole.audio, context, context);
    loss_of(pooled, count_up(pooled.size(0))).backward();
    const std::vector<at::Tensor> gradients = take_gradients(model);

    std::vector<at::Tensor> rows_of_ranks, pooled_of_ranks;
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      const ContextBatch& share = shares[rank];
      const AudioInputs& own = *share.own.audio;
      EXPECT_EQ(share.audio_rows, shares.front().audio_rows);
      EXPECT_EQ(own.row_positions.size(0), share.audio_rows.num_rows(static_cast<int64_t>(rank)));
      EXPECT_EQ(own.chunks.lengths(), whole.audio->chunks.lengths());
      EXPECT_EQ(own.first_taps.size(0), 3 * own.frames.size(0));
      // Two frames become a row, and two more are seen at each side.
      EXPECT_LE(own.frames.size(0), 2 * own.row_positions.size(0) + 4);
      rows_of_ranks.push_back(encoder.convolve(own, context));
      pooled_of_ranks.push_back(encoder.pool(rows_of_ranks.back(), own, context, context));
      EXPECT_EQ(pooled_of_ranks.back().size(0), own.num_rows);
      loss_of(pooled_of_ranks.back(), share.audio_made[rank]).backward();
    }
    EXPECT_LE(difference(at::cat(rows_of_ranks), convolved), kTolerance);
    EXPECT_LE(difference(at::cat(pooled_of_ranks), pooled), kTolerance);
    expect_equal_gradients(model, take_gradients(model), gradients);
  });
}

TEST(ContextInputs, SequenceParallelismDividesARanksAudioFurther) {
  for_all({"qwen2_5_omni"}, [](const TinyModel& model, const Inputs& whole, const std::vector<ContextBatch>& shares) {
    if (!whole.audio) return;
    const auto& encoder = dynamic_cast<const AudioEncoder&>(*model.network.find(ModuleKind::kAudio));
    for (const ContextBatch& share : shares) {
      const AudioInputs& own = *share.own.audio;
      const at::Tensor rows = encoder.convolve(own, {});
      const at::Tensor pooled = encoder.pool(rows, own, {}, {});
      std::vector<at::Tensor> rows_of_parts, pooled_of_parts;
      constexpr int64_t kParts = 3;
      for (int64_t part = 0; part < kParts; ++part) {
        const auto sites_of = [&](int64_t count) {
          ActivationSites sites;
          sites.enter = [&](const at::Tensor&) { return rows; };
          sites.divides_rows = true;
          sites.first_row = count * part / kParts;
          sites.num_rows = count * (part + 1) / kParts - sites.first_row;
          return sites;
        };
        const ActivationSites row_sites = sites_of(rows.size(0)), pooled_sites = sites_of(own.num_rows);
        const RunContext context{.sites = &row_sites}, pooled_context{.sites = &pooled_sites};
        rows_of_parts.push_back(encoder.convolve(own, context));
        pooled_of_parts.push_back(encoder.pool(rows_of_parts.back(), own, context, pooled_context));
      }
      EXPECT_LE(difference(at::cat(rows_of_parts), rows), kTolerance);
      EXPECT_LE(difference(at::cat(pooled_of_parts), pooled), kTolerance);
    }
  });
}

TEST(ContextInputs, CutsAreAtBordersOfWindowsFramesAndChunksWhereTheyAreNear) {
  const auto borders = [](const PackedSegments& segments) {
    List at{0};
    for (const int64_t length : segments.lengths()) at.push_back(at.back() + length);
    return at;
  };
  const auto expect_at_borders = [](const RowDeal& deal, const List& allowed) {
    for (int64_t rank = 0; rank < deal.num_ranks(); ++rank) {
      ASSERT_EQ(deal.ranges(rank).size(), 1u);
      const int64_t end = deal.ranges(rank).front().end;
      EXPECT_TRUE(std::binary_search(allowed.begin(), allowed.end(), end)) << end;
    }
  };
  const auto pack = [&](const TinyModel& model, const std::vector<Grid>& images, const List& clips) {
    RawInputs raw;
    List ids{1};
    const MediaTokens& tokens = model.numbers().media.tokens;
    for (const Grid& grid : images) {
      ids.push_back(tokens.vision_start);
      ids.insert(ids.end(), static_cast<size_t>(num_merged_tokens(grid, 2)), tokens.image);
      ids.push_back(tokens.vision_end);
    }
    for (const int64_t clip : clips) {
      ids.push_back(tokens.audio_start);
      ids.insert(ids.end(), static_cast<size_t>(num_audio_tokens(clip)), tokens.audio);
      ids.push_back(tokens.audio_end);
    }
    int64_t patches = 0;
    for (const Grid& grid : images) patches += num_patches(grid);
    raw.input_ids = at::tensor(ids, at::kLong);
    raw.lengths = {std::ssize(ids)};
    if (patches > 0) raw.pixel_values = at::zeros({patches, model.numbers().vision->patch_elements()}, at::kFloat);
    raw.image_grids = images;
    const int64_t frames = std::accumulate(clips.begin(), clips.end(), int64_t{0});
    if (frames > 0) raw.input_features = at::zeros({model.numbers().audio->mel_bins, frames}, at::kFloat);
    raw.audio_frames = clips;
    return *prepare_inputs(model.numbers(), model.vocabulary, raw);
  };
  // Twenty frames of 16 patches and one of 4: the third even cut would be at 243.
  const TinyModel frames("qwen2_vl_tied");
  std::vector<Grid> grids(20, Grid{1, 4, 4});
  grids.push_back({1, 2, 2});
  const Inputs by_frames = pack(frames, grids, {});
  const RowDeal frame_deal = context_batch(by_frames, frames.numbers(), 4, 0).patches;
  expect_at_borders(frame_deal, borders(by_frames.vision->frames));
  // Windows of 3 by 3 merge units, 36 patches each.
  const TinyModel windows("qwen2_5_vl");
  const Inputs by_windows = pack(windows, {{1, 24, 24}, {1, 2, 2}}, {});
  ASSERT_EQ(by_windows.vision->windows.lengths().front(), 36);
  const RowDeal window_deal = context_batch(by_windows, windows.numbers(), 4, 0).patches;
  expect_at_borders(window_deal, borders(by_windows.vision->windows));
  // Chunks of 5 rows: every second border is inside of a pair. The second even cut would be at row 82.
  const TinyModel chunks("qwen2_5_omni");
  const Inputs by_chunks = pack(chunks, {}, {240, 6});
  const RowDeal chunk_deal = context_batch(by_chunks, chunks.numbers(), 3, 0).audio_rows;
  expect_at_borders(chunk_deal, borders(by_chunks.audio->chunks));
}

TEST(ContextInputs, TargetsMayBeLeftOut) {
  const TinyModel model("qwen2_vl_tied");
  Inputs whole = BatchDrawer(model, 1).draw(1, {});
  whole.targets = whole.target_rows = at::Tensor();
  const ContextBatch share = context_batch(whole, model.numbers(), 2, 1);
  EXPECT_FALSE(share.own.targets.defined());
  EXPECT_EQ(share.own.num_targets(), 0);
}

}  // namespace
}  // namespace weft
