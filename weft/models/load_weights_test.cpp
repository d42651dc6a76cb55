#include "weft/models/load_weights.h"

#include <gtest/gtest.h>

#include "tests/support/weights/example_files.h"

namespace weft {
namespace {

/// Two experts' matrices, which files may hold in one weight.
WeightList two_experts() {
  return {.weights = {{.name = "mlp.experts.0.down", .shape = {2, 1}}, {.name = "mlp.experts.1.down", .shape = {2, 1}}},
          .files = {.renamed = {},
                    .unused_beginnings = {},
                    .unused_endings = {},
                    .stacked = {{.in_files = "mlp.experts.down_proj", .in_model = "mlp.experts.{}.down"}}}};
}

std::string problem_of(const std::string& shape, const std::string& data) {
  const ScratchFolder scratch;
  const std::string header = R"({"mlp.experts.down_proj": {"dtype": "F32", "shape": )" + shape +
                             R"(, "data_offsets": [0, )" + std::to_string(data.size()) + "]}}";
  scratch.write("model.safetensors", file_of(header, data));
  const auto folder = WeightFolder::open(scratch.path());
  if (!folder) return folder.error().message();
  const auto found = find_weights(*folder, two_experts());
  if (found) return "";
  return found.error().message().substr(scratch.path().string().size());
}

// A header of a few bytes can say that a weight holds 2^62 experts without elements.
TEST(LoadWeights, AStackIsTakenApartOnlyWhereItIsOfTheModelsSize) {
  EXPECT_EQ(problem_of("[2, 2, 1]", std::string(16, '\0')), "");
  const std::string advice = "Are these the weights of another model?";
  EXPECT_EQ(problem_of("[4611686018427387904, 0]", ""),
            ": mlp.experts.down_proj: has the shape [4611686018427387904, 0], but the model's configuration makes 2 of "
            "its first dim. " +
                advice);
  EXPECT_EQ(problem_of("[1, 2, 1]", std::string(8, '\0')),
            ": mlp.experts.down_proj: has the shape [1, 2, 1], but the model's configuration makes 2 of its first "
            "dim. " +
                advice);
  EXPECT_NE(problem_of("[2, 3, 1]", std::string(24, '\0')).find("mlp.experts.0.down: has the shape [3, 1]"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
