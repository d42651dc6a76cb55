#include "weft/spec/cluster.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/spec/cluster_yaml.h"
#include "weft/spec/scenario.h"

namespace weft {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

const std::string kGood =
    "nodes: 2\ndevices_per_node: 8\n"
    "device: {name: X, memory_gib: 80, reserved_memory_gib: 2, memory_bandwidth_gb_per_s: 2000, matrix_tflops: {bf16: "
    "300}}\n"
    "links:\n  within_node: {bandwidth_gb_per_s: 300, latency_us: 3}\n"
    "  between_nodes: {bandwidth_gb_per_s: 25, latency_us: 5, cards_per_node: 8}\n";

/// The finding after `from` is replaced by `to` in a good file.
std::string finding_with(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const Result<Document> document = parse_document(text, "c.yaml", Syntax::kYaml);
  if (!document) return document.error().message();
  const Result<Cluster> cluster = read_cluster(*document, "c");
  return cluster ? "" : cluster.error().message();
}

TEST(Cluster, EveryShippedClusterIsReadable) {
  for (const char* name : {"dgx_a100_80g", "dgx_h100", "hgx_h200", "ascend_910b_8", "ascend_910b_16", "local_cpu"}) {
    const Result<Cluster> cluster = kScenarios.cluster(name);
    ASSERT_TRUE(cluster.ok()) << cluster.error().message();
    EXPECT_EQ(cluster->name, name);
  }
  EXPECT_EQ(kScenarios.cluster("ascend_910b_16", 8)->num_devices(), 128);
}

TEST(Cluster, WhatIsWrittenReadsBackTheSame) {
  for (const std::string& name : kScenarios.names("clusters")) {
    const Json json = to_json(*kScenarios.cluster(name));
    const Result<Cluster> again = read_cluster({.source = "again", .root = json}, "");
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_EQ(to_json(*again), json);
  }
}

TEST(Cluster, ReadsEveryField) {
  const Result<Cluster> cluster = read_cluster(*parse_document(kGood, "c.yaml", Syntax::kYaml), "c");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message();
  EXPECT_EQ(cluster->num_devices(), 16);
  EXPECT_EQ(cluster->device.memory_gib, 80);
  EXPECT_EQ(cluster->device.reserved_memory_gib, 2);
  EXPECT_EQ(cluster->device.matrix_tflops.at(Precision::kBf16), 300);
  EXPECT_EQ(cluster->device.matrix_tflops.count(Precision::kFp64), 0u);
  EXPECT_EQ(cluster->within_node.bandwidth_gb_per_s, 300);
  EXPECT_EQ(cluster->between_nodes.latency_us, 5);
  EXPECT_EQ(cluster->cards_per_node, 8);
}

TEST(Cluster, PowerAndCalibrationAreOptionalAndReadBack) {
  const std::string limited = [] {
    std::string text = kGood;
    return text.replace(text.find("memory_gib: 80"), 0, "power_w: 700, power_limit_w: 500, ") +
           "calibrated_to: two runs\n";
  }();
  const Result<Cluster> cluster = read_cluster(*parse_document(limited, "c.yaml", Syntax::kYaml), "c");
  ASSERT_TRUE(cluster.ok()) << cluster.error().message();
  EXPECT_EQ(cluster->calibrated_to, "two runs");
  EXPECT_NEAR(cluster->device.power_share(), 0.8939, 1e-4);
  const Result<Cluster> again = read_cluster({.source = "again", .root = to_json(*cluster)}, "");
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(to_json(*again), to_json(*cluster));
  EXPECT_EQ(finding_with("memory_gib: 80", "memory_gib: 80, power_limit_w: 500"),
            "c.yaml: device.power_limit_w: is 500, but power_w, for which matrix_tflops are given, is missing");
}

TEST(Cluster, MistakesNameTheField) {
  EXPECT_EQ(finding_with("nodes: 2", "nodes: 0"), "c.yaml: nodes: is 0, a whole number from 1 to 1000000 is needed");
  EXPECT_EQ(finding_with("memory_gib: 80", "memory_gb: 80"),
            "c.yaml: device.memory_gib: is missing. Is 'memory_gb' meant to be it? Call it memory_gib.");
  EXPECT_EQ(finding_with("memory_gib: 80", "memory_gib: -80"),
            "c.yaml: device.memory_gib: is the number -80, a number from 0.001 to 1000000 is needed");
  EXPECT_EQ(finding_with("reserved_memory_gib: 2", "reserved_memory_gib: 90"),
            "c.yaml: device.reserved_memory_gib: is 90, which leaves nothing of the 80 GiB of memory");
  EXPECT_EQ(finding_with("{bf16: 300}", "{}"),
            "c.yaml: device.matrix_tflops: gives no rate, at least one precision is needed");
  EXPECT_EQ(finding_with("{bf16: 300}", "{bf17: 300, bf16: 1}"),
            "c.yaml: device.matrix_tflops.bf17: is not a known field; known are bf16, fp16, fp32 or fp64. Correct or "
            "remove it. "
            "Did you mean 'bf16'?");
  EXPECT_EQ(finding_with("cards_per_node: 8", "cards_per_node: 8, speed: 3"),
            "c.yaml: links.between_nodes.speed: is not a known field; known are bandwidth_gb_per_s, cards_per_node or "
            "latency_us. "
            "Correct or remove it.");
  EXPECT_EQ(
      finding_with("bandwidth_gb_per_s: 300", "bandwidth_gb_per_s: .nan"),
      "c.yaml: links.within_node.bandwidth_gb_per_s: is the number nan, a number from 0.001 to 1000000 is needed");
}

TEST(Scenarios, AnUnknownNameIsGuessed) {
  EXPECT_NE(kScenarios.cluster("dgx_h10").error().message().find("Did you mean 'dgx_h100'?"), std::string::npos);
  EXPECT_NE(kScenarios.model("qwen2-vl-70b").error().message().find("Did you mean 'qwen2-vl-72b'?"), std::string::npos);
  EXPECT_NE(kScenarios.workload("").error().message().find("neither a file nor the name of a workload"),
            std::string::npos);
  EXPECT_NE(Scenarios("/nowhere").model("x").error().message().find("set WEFT_SCENARIOS"), std::string::npos);
}

TEST(Cluster, HasNoMoreDevicesThanPlansMayHave) {
  EXPECT_EQ(finding_with("nodes: 2", "nodes: 125001"),
            "c.yaml: nodes: is 125001; the cluster has 125001 nodes × 8 = 1000008 devices, at most 1000000 can be "
            "planned. Give fewer nodes.");
  const auto cluster = kScenarios.cluster("dgx_h100", 200'000);
  ASSERT_FALSE(cluster.ok());
  EXPECT_EQ(cluster.error().message(),
            "--nodes: the cluster has 200000 nodes × 8 = 1600000 devices, at most 1000000 can be planned. Give fewer "
            "nodes, or smaller ones.");
  EXPECT_EQ(kScenarios.cluster("dgx_h100", 1000, 1024).error().source, "--nodes");
  EXPECT_EQ(kScenarios.cluster("dgx_h100", 100'000, 2)->num_devices(), 200'000);
}

TEST(Cluster, OfLargerNodesIsOneThatCanBeReadAgain) {
  Cluster cluster = *kScenarios.cluster("dgx_h100");
  set_devices_per_node(1, cluster);
  cluster.cards_per_node = 8;
  set_devices_per_node(kMostDevicesPerNode, cluster);
  EXPECT_TRUE(read_cluster({.source = "c", .root = to_json(cluster)}, "c").ok());
}

TEST(Cluster, NamesThatWouldBreakALineAreRefused) {
  EXPECT_NE(finding_with("nodes: 2", "name: \"mine\\nnodes: 3 #\"\nnodes: 2").find("c.yaml: name: is"),
            std::string::npos);
  EXPECT_NE(finding_with("name: X", "name: \"X\\e[31m\"").find("c.yaml: device.name: is"), std::string::npos);
}

TEST(Cluster, ACommentInAFileThatIsWrittenStaysOne) {
  const std::string text = to_yaml(*kScenarios.cluster("dgx_h100"), "fitted to mine\nnodes: 3 #");
  const auto document = parse_document(text, "written.yaml", Syntax::kYaml);
  ASSERT_TRUE(document.ok()) << document.error().message();
  EXPECT_EQ(read_cluster(*document, "c")->nodes, kScenarios.cluster("dgx_h100")->nodes);
}

}  // namespace
}  // namespace weft
