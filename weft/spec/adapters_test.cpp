#include "weft/spec/adapters.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/program/adapter_ops.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

Model model_of(const char* fixture) {
  auto model = read_model_file(source_tree() / "tests/parity/fixtures" / fixture);
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  return *std::move(model);
}

std::vector<AdapterRule> rules_of(const std::string& text) {
  const auto document = parse_document(text, "adapters.yaml", Syntax::kYaml);
  WEFT_CHECK(document.ok(), "{}", document.error().message());
  auto rules = read_adapters(*document);
  WEFT_CHECK(rules.ok(), "{}", rules.error().message());
  return *std::move(rules);
}

TEST(Adapters, HaveRankTimesInputsAndOutputsOfEveryTarget) {
  const Model base = model_of("llama_bias");
  constexpr int64_t kRank = 3;
  int64_t expected = 0;
  for (const char* op : {"attention.out", "mlp.down"}) {
    const auto& product = std::get<Matmul>(op_named(base.modules.back().distinct_layers.front(), op).shape);
    expected += std::ssize(base.modules.back().layers) * kRank * (product.in + product.out);
  }
  const auto adapted = with_adapters(base, rules_of("{rank: 3, targets: [o_proj, down_proj]}"), "adapters.yaml");
  ASSERT_TRUE(adapted.ok()) << adapted.error().message();
  EXPECT_EQ(num_adapter_parameters(*adapted), expected);
  EXPECT_EQ(num_parameters(*adapted), num_parameters(base) + expected);
  const auto again = without_adapters(*adapted);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(num_parameters(*again), num_parameters(base));
}

TEST(Adapters, AreReadAgainFromTheModelsConfiguration) {
  const std::vector<AdapterRule> rules = rules_of(
      "adapters: [{rank: 4, alpha: 8, dropout: 0.1, targets: q_proj}, {rank: 2, targets: ['*.layers.0.mlp.*']}]");
  EXPECT_EQ(rules[1].alpha, 2) << "the rank, where nothing is said";
  const auto adapted = with_adapters(model_of("llama_bias"), rules, "adapters.yaml");
  ASSERT_TRUE(adapted.ok()) << adapted.error().message();
  EXPECT_EQ(adapters_of(*adapted), rules);
  const auto read = read_model({.source = "plan.json", .root = adapted->config}, "again");
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(num_adapter_parameters(*read), num_adapter_parameters(*adapted));
  EXPECT_EQ(read->config, adapted->config);
  EXPECT_EQ(read->modules.back().distinct_layers.size(), 2u) << "the first layer differs from the others";
}

TEST(Adapters, ExpertsOfALayerHaveThemTogether) {
  const Model base = model_of("qwen3_moe_norm");
  const Block& layer = base.modules.back().distinct_layers.front();
  const auto& down = std::get<Matmul>(op_named(layer, "mlp.down").shape);
  const int64_t of_one_layer = down.experts * 2 * (down.in + down.out);
  for (const auto& [targets, layers] :
       {std::pair{"'*.experts.*.down_proj'", std::ssize(base.modules.back().layers)},
        {"[model.layers.1.mlp.experts.0.down_proj, model.layers.1.mlp.experts.3.down_proj]", std::ptrdiff_t{1}}}) {
    const auto adapted = with_adapters(base, rules_of(fmt::format("{{rank: 2, targets: {}}}", targets)), "a.yaml");
    ASSERT_TRUE(adapted.ok()) << adapted.error().message();
    EXPECT_EQ(num_adapter_parameters(*adapted), layers * of_one_layer) << targets;
  }
  const auto dropped = with_adapters(base, rules_of("{rank: 2, dropout: 0.1, targets: ['*.mlp.*']}"), "a.yaml");
  ASSERT_FALSE(dropped.ok());
  EXPECT_NE(dropped.error().message().find("experts"), std::string::npos) << dropped.error().message();
}

TEST(Adapters, TargetsThatCannotBeMeantAreNamed) {
  const auto problem_of = [](const char* fixture, const std::string& target) {
    const auto adapted = with_adapters(model_of(fixture), rules_of("{rank: 2, targets: ['" + target + "']}"), "a.yaml");
    return adapted ? std::string("none") : adapted.error().message();
  };
  EXPECT_EQ(problem_of("llama_bias", "q_prj"),
            "a.yaml: adapters[0].targets[0]: is 'q_prj', which fits the name of no linear layer. Name linear layers: "
            "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj or lm_head. Did you mean 'q_proj'?");
  EXPECT_NE(problem_of("llama_bias", "embed_tokens").find("no linear layer"), std::string::npos);
  EXPECT_NE(problem_of("llama_bias", "*norm").find("no linear layer"), std::string::npos);
  EXPECT_EQ(problem_of("qwen3_moe_norm", "*.experts.*"), "none");
  EXPECT_NE(problem_of("qwen3_moe_norm", "*.mlp.gate").find("chooses experts"), std::string::npos);
  EXPECT_EQ(problem_of("qwen3_moe_norm", "*"), "none");
  const auto apart = with_adapters(model_of("llama_bias"),
                                   rules_of("adapters: [{rank: 2, targets: q_proj}, {rank: 3, targets: k_proj}]"), "a");
  ASSERT_FALSE(apart.ok());
  EXPECT_NE(apart.error().problem.find("one matrix"), std::string::npos) << apart.error().message();
}

TEST(Adapters, OfMoreParametersThanAModelMayHaveAreRefused) {
  const Json config = {{"model_type", "qwen3_moe"},
                       {"vocab_size", 2},
                       {"hidden_size", 2},
                       {"num_hidden_layers", 10'000},
                       {"num_attention_heads", 1},
                       {"num_key_value_heads", 1},
                       {"head_dim", 2},
                       {"intermediate_size", 1},
                       {"num_experts", 16'384},
                       {"num_experts_per_tok", 1},
                       {"moe_intermediate_size", 2'097'152}};
  const auto base = read_model({.source = "config.json", .root = config}, "m");
  ASSERT_TRUE(base.ok()) << base.error().message();
  const auto adapted = with_adapters(*base, rules_of("{rank: 65536, targets: '*.experts.*'}"), "a.yaml");
  ASSERT_FALSE(adapted.ok());
  EXPECT_EQ(adapted.error().message().find("a.yaml: adapters: with these sizes the model would have"), 0u)
      << adapted.error().message();
  Json own = config;
  own["adapters"] = {{{"rank", 65'536}, {"targets", {"*.experts.*"}}}};
  EXPECT_FALSE(read_model({.source = "config.json", .root = own}, "m").ok());
}

TEST(Adapters, OfMoreTargetsThanAnyoneNamesAreRefused) {
  Json document = {{"rank", 2}, {"targets", Json::array()}};
  for (int i = 0; i < 1'001; ++i) document["targets"].push_back("*_proj");
  const auto rules = read_adapters({.source = "a.yaml", .root = document});
  ASSERT_FALSE(rules.ok());
  EXPECT_EQ(rules.error().message(),
            "a.yaml: targets: name 1,001 targets in all, at most 1,000 are allowed. Name many layers by one pattern: "
            "'*_proj'.");
  document["targets"].erase(0);
  EXPECT_TRUE(read_adapters({.source = "a.yaml", .root = document}).ok());
  const Json of_each = {{"adapters", Json::array({document, document})}};
  EXPECT_FALSE(read_adapters({.source = "a.yaml", .root = of_each}).ok());
}

TEST(Adapters, OfNullAreNone) {
  const Model base = model_of("llama_bias");
  Json config = base.config;
  config["adapters"] = nullptr;
  const auto model = read_model({.source = "config.json", .root = config}, "m");
  ASSERT_TRUE(model.ok()) << model.error().message();
  EXPECT_FALSE(has_adapters(*model));
  EXPECT_TRUE(with_adapters(*model, rules_of("{rank: 2, targets: q_proj}"), "a.yaml").ok());
}

}  // namespace
}  // namespace weft
