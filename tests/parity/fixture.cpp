#include "tests/parity/fixture.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "tests/support/source_tree.h"
#include "weft/models/load_weights.h"
#include "weft/models/tensor_file.h"
#include "weft/spec/model_reader.h"

namespace weft::parity {
namespace {

const std::set<std::string> kInputNames = {"input_ids",      "lengths",
                                           "targets",        "pixel_values",
                                           "image_grid_thw", "pixel_values_videos",
                                           "video_grid_thw", "second_per_grid_ts",
                                           "input_features", "audio_feature_lengths"};

template <typename T>
T must(Result<T> result) {
  WEFT_CHECK(result.ok(), "{}", result.error().message());
  return *std::move(result);
}

}  // namespace

std::filesystem::path fixtures_folder() {
  const char* other = std::getenv("WEFT_FIXTURES");
  return other != nullptr ? std::filesystem::path(other) : source_tree() / "tests/parity/fixtures";
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& folder : std::filesystem::directory_iterator(fixtures_folder())) {
    if (!folder.is_directory()) continue;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      const std::filesystem::path facts = std::filesystem::path(file.path()).replace_extension(".json");
      if (file.path().extension() != ".safetensors" || !std::filesystem::exists(facts)) continue;
      cases.push_back(
          {.fixture = folder.path().filename().string(), .name = file.path().stem().string(), .folder = folder.path()});
    }
  }
  std::sort(cases.begin(), cases.end(), [](const Case& a, const Case& b) { return a.text() < b.text(); });
  return cases;
}

LoadedModel load_model(const std::filesystem::path& folder, at::TensorOptions options) {
  return load_model(folder, options, Json::object());
}

LoadedModel load_model(const std::filesystem::path& folder, at::TensorOptions options, const Json& changes) {
  Document config = must(read_document((folder / "config.json").string()));
  config.root.merge_patch(changes);
  Model model = must(read_model(config, folder.filename().string()));
  WholeParameters maker(options);
  Network network = must(Network::create(model, maker));
  const WeightFolder files = must(WeightFolder::open(folder));
  const auto error = load_weights(files, maker.all(), network.numbers().files);
  WEFT_CHECK(!error, "{}", error->message());
  return {std::move(model), maker.all(), std::move(network)};
}

LoadedCase load_case(const Case& which, const LoadedModel& loaded, at::TensorOptions options,
                     const std::optional<StepDraws>& draws) {
  LoadedCase result;
  std::ifstream(which.folder / (which.name + ".json")) >> result.facts;
  std::map<std::string, at::Tensor> inputs;
  for (auto& [name, tensor] : must(read_tensors(which.folder / (which.name + ".safetensors")))) {
    (kInputNames.contains(name) ? inputs : result.expected)[name] = tensor;
  }
  result.raw = must(raw_inputs(std::move(inputs)));
  result.raw.has_audio_in_video = result.facts.value("use_audio_in_video", false);
  result.raw.draws = draws;
  result.inputs =
      must(prepare_inputs(loaded.network.numbers(), loaded.network.decoder().vocabulary(), result.raw)).to(options);
  return result;
}

double relative_difference(const at::Tensor& found, const at::Tensor& expected, double floor) {
  WEFT_CHECK(found.sizes() == expected.sizes(), "[{}] compared with [{}]", fmt::join(found.sizes(), ", "),
             fmt::join(expected.sizes(), ", "));
  if (found.numel() == 0) return 0;
  const at::Tensor a = found.detach().cpu().to(at::kDouble);
  const at::Tensor b = expected.cpu().to(at::kDouble);
  const double scale = std::max({b.abs().max().item<double>(), floor, 1e-30});
  return (a - b).abs().max().item<double>() / scale;
}

}  // namespace weft::parity
