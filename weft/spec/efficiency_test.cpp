#include "weft/spec/efficiency.h"

#include <functional>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/spec/cluster_yaml.h"
#include "weft/spec/scenario.h"

namespace weft::efficiency_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

Result<Cluster> cluster_with(const std::string& efficiency) {
  const std::string text =
      "nodes: 2\ndevices_per_node: 8\n"
      "device: {name: X, memory_gib: 80, memory_bandwidth_gb_per_s: 2000, matrix_tflops: {bf16: 300}}\n"
      "links:\n  within_node: {bandwidth_gb_per_s: 300, latency_us: 3}\n"
      "  between_nodes: {bandwidth_gb_per_s: 25, latency_us: 5, cards_per_node: 8}\n" +
      efficiency;
  return read_cluster(*parse_document(text, "c.yaml", Syntax::kYaml), "c");
}

TEST(Efficiency, WhatAFileLeavesOutHasItsDefault) {
  const Efficiency defaults;
  EXPECT_EQ(to_json(cluster_with("")->efficiency), to_json(defaults));
  const Efficiency some = cluster_with("efficiency: {matrix: 0.5, overlap: 0}\n")->efficiency;
  EXPECT_EQ(some.matrix, 0.5);
  EXPECT_EQ(some.overlap, 0);
  EXPECT_EQ(some.memory, defaults.memory);
}

TEST(Efficiency, EveryFieldIsReadUnderItsOwnName) {
  for (const EfficiencyField& field : efficiency_fields()) {
    const double value = field.range.max / 2;
    const Result<Cluster> cluster =
        cluster_with("efficiency: {" + std::string(field.name) + ": " + std::to_string(value) + "}\n");
    ASSERT_TRUE(cluster.ok()) << cluster.error().message();
    for (const EfficiencyField& other : efficiency_fields()) {
      if (other.name == "passes_per_operator" && field.name == "kernel_us") continue;
      EXPECT_EQ(cluster->efficiency.*other.value, other.name == field.name ? value : Efficiency{}.*other.value)
          << other.name << " when " << field.name << " is given";
    }
  }
}

TEST(Efficiency, FilesFromBeforeThereWerePassesMeanOneKernelAnOperator) {
  EXPECT_EQ(cluster_with("efficiency: {kernel_us: 8}\n")->efficiency.passes_per_operator, 1);
  EXPECT_EQ(cluster_with("efficiency: {kernel_us: 8, passes_per_operator: 3}\n")->efficiency.passes_per_operator, 3);
}

TEST(Efficiency, ImpossibleSharesAndUnknownFieldsAreRefused) {
  const auto finding = [](const std::string& text) { return cluster_with(text).error().message(); };
  EXPECT_EQ(finding("efficiency: {matrix: 1.5}\n"),
            "c.yaml: efficiency.matrix: is the number 1.5, a number from 0.01 to 1 is needed");
  EXPECT_EQ(finding("efficiency: {matrix: 75}\n"),
            "c.yaml: efficiency.matrix: is the number 75, a number from 0.01 to 1 is needed");
  EXPECT_EQ(finding("efficiency: {kernel_us: -1}\n").substr(0, 35), "c.yaml: efficiency.kernel_us: is th");
  EXPECT_NE(finding("efficiency: {matrx: 0.5}\n").find("Did you mean 'matrix'?"), std::string::npos);
}

TEST(Efficiency, ClustersAsYamlReadBackTheSame) {
  for (const std::string& name : kScenarios.names("clusters")) {
    const Cluster cluster = *kScenarios.cluster(name);
    const std::string text = to_yaml(cluster, "a comment");
    EXPECT_EQ(text.substr(0, 12), "# a comment\n");
    const Result<Cluster> again = read_cluster(*parse_document(text, "again.yaml", Syntax::kYaml), "other");
    ASSERT_TRUE(again.ok()) << again.error().message() << "\n" << text;
    EXPECT_EQ(to_json(*again), to_json(cluster)) << text;
  }
}

TEST(Efficiency, RoundingKeepsFourDigits) {
  EXPECT_EQ(rounded({.matrix = 0.853712}).matrix, 0.8537);
  EXPECT_EQ(rounded({.action_us = 311.04}).action_us, 311);
}

std::vector<std::string> unusual_with(const std::function<void(Cluster&)>& change) {
  Cluster cluster = *kScenarios.cluster("dgx_a100_80g");
  change(cluster);
  return unusual_values(cluster);
}

TEST(UnusualValues, ShippedClustersHaveNone) {
  for (const std::string& name : kScenarios.names("clusters"))
    EXPECT_TRUE(unusual_values(*kScenarios.cluster(name)).empty()) << name;
}

TEST(UnusualValues, MistakenUnitsAreNamedWithTheUsualRange) {
  const auto only = [](const std::vector<std::string>& sentences) {
    EXPECT_EQ(sentences.size(), 1u);
    return sentences.empty() ? "" : sentences.front();
  };
  EXPECT_EQ(only(unusual_with([](Cluster& c) { c.between_nodes.bandwidth_gb_per_s = 200; })),
            "links.between_nodes.bandwidth_gb_per_s is 200 GB/s, usual are 0.1 to 130: it is the bandwidth of one card "
            "in gigabytes a second; a 200 Gb/s card has 25");
  EXPECT_EQ(only(unusual_with([](Cluster& c) { c.within_node.bandwidth_gb_per_s = 600; })),
            "links.within_node.bandwidth_gb_per_s is 600 GB/s, usual for A100 are at most 300: it is one direction, "
            "data sheets give both together");
  EXPECT_EQ(only(unusual_with([](Cluster& c) { c.device.memory_bandwidth_gb_per_s = 2.039; })),
            "device.memory_bandwidth_gb_per_s is 2.039 GB/s, usual are 5 to 20000: is it in TB/s or MB/s?");
  EXPECT_NE(only(unusual_with([](Cluster& c) { c.device.memory_gib = 81920; })).find("is it in MiB or bytes?"),
            std::string::npos);
  EXPECT_NE(only(unusual_with([](Cluster& c) {
              c.device.matrix_tflops[Precision::kBf16] = 312e3;
            })).find("device.matrix_tflops.bf16 is 312000 TFLOP/s"),
            std::string::npos);
  EXPECT_NE(only(unusual_with([](Cluster& c) { c.between_nodes.latency_us = 6000; })).find("between_nodes.latency_us"),
            std::string::npos);
  EXPECT_NE(only(unusual_with([](Cluster& c) { c.host.bandwidth_gb_per_s = 2e4; })).find("links.host"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::efficiency_test
