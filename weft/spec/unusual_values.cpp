#include <array>
#include <string_view>

#include <fmt/format.h>

#include "weft/spec/cluster.h"

namespace weft {
namespace {

/// One direction of a device's links inside a node, by a word of its name. Data sheets add both directions up.
struct KnownLink {
  std::string_view word;
  double gb_per_s;
};
constexpr std::array<KnownLink, 6> kKnownLinks = {
    {{"V100", 150}, {"A100", 300}, {"H100", 450}, {"H200", 450}, {"B200", 900}, {"910B", 196}}};

class Collector {
 public:
  void check(std::string_view field, double value, NumberRange usual, std::string_view unit, std::string_view hint) {
    if (value >= usual.min && value <= usual.max) return;
    sentences_.push_back(
        fmt::format("{} is {:.6g} {}, usual are {:.6g} to {:.6g}: {}", field, value, unit, usual.min, usual.max, hint));
  }
  void add(std::string sentence) { sentences_.push_back(std::move(sentence)); }
  std::vector<std::string> take() { return std::move(sentences_); }

 private:
  std::vector<std::string> sentences_;
};

}  // namespace

std::vector<std::string> unusual_values(const Cluster& c) {
  Collector found;
  found.check("device.memory_gib", c.device.memory_gib, {0.25, 1024}, "GiB", "is it in MiB or bytes?");
  found.check("device.memory_bandwidth_gb_per_s", c.device.memory_bandwidth_gb_per_s, {5, 20'000}, "GB/s",
              "is it in TB/s or MB/s?");
  for (const auto& [precision, tflops] : c.device.matrix_tflops) {
    found.check("device.matrix_tflops." + name_of(precision), tflops, {0.01, 20'000}, "TFLOP/s",
                "is it in PFLOP/s or GFLOP/s?");
  }
  found.check("links.within_node.bandwidth_gb_per_s", c.within_node.bandwidth_gb_per_s, {2, 1000}, "GB/s",
              "it is the bandwidth of one device in one direction, in gigabytes");
  for (const KnownLink& known : kKnownLinks) {
    const bool is_it = c.device.name.find(known.word) != std::string::npos;
    if (is_it && c.within_node.bandwidth_gb_per_s > 1.05 * known.gb_per_s) {
      found.add(
          fmt::format("links.within_node.bandwidth_gb_per_s is {:.6g} GB/s, usual for {} are at most {:.6g}: it is "
                      "one direction, data sheets give both together",
                      c.within_node.bandwidth_gb_per_s, known.word, known.gb_per_s));
    }
  }
  found.check("links.between_nodes.bandwidth_gb_per_s", c.between_nodes.bandwidth_gb_per_s, {0.1, 130}, "GB/s",
              "it is the bandwidth of one card in gigabytes a second; a 200 Gb/s card has 25");
  found.check("links.within_node.latency_us", c.within_node.latency_us, {0.1, 200}, "us", "is it in seconds or ns?");
  found.check("links.between_nodes.latency_us", c.between_nodes.latency_us, {0.5, 500}, "us",
              "is it in seconds or ns?");
  if (c.host.bandwidth_gb_per_s > 0) {
    found.check("links.host.bandwidth_gb_per_s", c.host.bandwidth_gb_per_s, {1, 1000}, "GB/s",
                "it is one direction, in gigabytes");
  }
  return found.take();
}

}  // namespace weft
