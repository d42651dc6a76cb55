#include "weft/spec/cluster.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/fields.h"
#include "weft/base/file_kind.h"
#include "weft/base/file_name.h"

namespace weft {
namespace {

constexpr NumberRange kBandwidthRange{1e-3, 1e6};
constexpr NumberRange kLatencyRange{0, 1e6};
constexpr NumberRange kMemoryRange{1e-3, 1e6};
constexpr NumberRange kRateRange{1e-6, 1e6};
constexpr NumberRange kPowerRange{0.1, 1e6};
constexpr int64_t kMostCardsPerNode = 1024;

Link read_link(Fields& fields) {
  return {.bandwidth_gb_per_s = fields.number("bandwidth_gb_per_s", kBandwidthRange),
          .latency_us = fields.number("latency_us", kLatencyRange)};
}

ClusterDevice read_device(Fields fields) {
  ClusterDevice device{.name = fields.name("name"),
                       .memory_gib = fields.number("memory_gib", kMemoryRange),
                       .reserved_memory_gib = fields.number_or("reserved_memory_gib", 0, {0, kMemoryRange.max}),
                       .memory_bandwidth_gb_per_s = fields.number("memory_bandwidth_gb_per_s", kBandwidthRange),
                       .matrix_tflops = {}};
  if (fields.has("power_w")) device.power_w = fields.number("power_w", kPowerRange);
  fields.raw("power_w");
  if (fields.has("power_limit_w")) device.power_limit_w = fields.number("power_limit_w", kPowerRange);
  fields.raw("power_limit_w");
  if (device.power_limit_w > 0 && device.power_w == 0) {
    fields.complain("power_limit_w", fmt::format("is {}, but power_w, for which matrix_tflops are given, is missing",
                                                 device.power_limit_w));
  }
  if (device.reserved_memory_gib >= device.memory_gib) {
    fields.complain("reserved_memory_gib", fmt::format("is {}, which leaves nothing of the {} GiB of memory",
                                                       device.reserved_memory_gib, device.memory_gib));
  }
  Fields rates = fields.object("matrix_tflops");
  for (size_t i = 0; i < precision_names().size(); ++i) {
    const std::string& name = precision_names()[i];
    if (rates.has(name)) device.matrix_tflops[static_cast<Precision>(i)] = rates.number(name, kRateRange);
    rates.raw(name);
  }
  rates.reject_unknown();
  if (device.matrix_tflops.empty()) fields.complain("matrix_tflops", "gives no rate, at least one precision is needed");
  fields.reject_unknown();
  return device;
}

Json link_json(const Link& link) {
  return {{"bandwidth_gb_per_s", link.bandwidth_gb_per_s}, {"latency_us", link.latency_us}};
}

}  // namespace

double ClusterDevice::power_share() const {
  return power_limit_w > 0 ? std::min(1.0, std::cbrt(power_limit_w / power_w)) : 1;
}

Json to_json(const Cluster& c) {
  Json rates = Json::object();
  for (const auto& [precision, tflops] : c.device.matrix_tflops) rates[name_of(precision)] = tflops;
  Json between = link_json(c.between_nodes);
  between["cards_per_node"] = c.cards_per_node;
  Json links = {{"within_node", link_json(c.within_node)}, {"between_nodes", between}};
  if (c.host.bandwidth_gb_per_s > 0) links["host"] = link_json(c.host);
  Json device = {{"name", c.device.name},
                 {"memory_gib", c.device.memory_gib},
                 {"reserved_memory_gib", c.device.reserved_memory_gib},
                 {"memory_bandwidth_gb_per_s", c.device.memory_bandwidth_gb_per_s},
                 {"matrix_tflops", rates}};
  if (c.device.power_w > 0) device["power_w"] = c.device.power_w;
  if (c.device.power_limit_w > 0) device["power_limit_w"] = c.device.power_limit_w;
  Json json = {{"name", c.name},   {"nodes", c.nodes}, {"devices_per_node", c.devices_per_node},
               {"device", device}, {"links", links},   {"efficiency", to_json(c.efficiency)}};
  if (!c.calibrated_to.empty()) json["calibrated_to"] = c.calibrated_to;
  return json;
}

std::optional<std::string> find_too_many_devices(const Cluster& c) {
  if (c.num_devices() <= kMostDevices) return std::nullopt;
  return fmt::format("has {} × {} = {}, at most {} can be planned", counted(c.nodes, "node"), c.devices_per_node,
                     counted(c.num_devices(), "device"), kMostDevices);
}

void set_devices_per_node(int64_t devices, Cluster& cluster) {
  const double share = static_cast<double>(devices) / static_cast<double>(cluster.devices_per_node);
  const int64_t cards = std::llround(share * static_cast<double>(cluster.cards_per_node));
  cluster.cards_per_node = std::clamp<int64_t>(cards, 1, kMostCardsPerNode);
  cluster.devices_per_node = devices;
}

Result<Cluster> read_cluster(const Document& document, std::string default_name) {
  if (auto error = find_wrong_kind(document, FileKind::kCluster)) return *std::move(error);
  Findings findings(document.source);
  Fields fields(document, findings);
  Cluster cluster;
  cluster.name = fields.name_or("name", std::move(default_name));
  cluster.nodes = fields.integer("nodes", {1, kMostNodes});
  cluster.devices_per_node = fields.integer("devices_per_node", {1, kMostDevicesPerNode});
  if (const auto problem = find_too_many_devices(cluster))
    fields.complain("nodes", fmt::format("is {}; the cluster {}", cluster.nodes, *problem), "Give fewer nodes.");
  cluster.device = read_device(fields.object("device"));
  Fields links = fields.object("links");
  Fields within = links.object("within_node");
  Fields between = links.object("between_nodes");
  cluster.within_node = read_link(within);
  cluster.between_nodes = read_link(between);
  cluster.cards_per_node = between.integer("cards_per_node", {1, kMostCardsPerNode});
  if (links.has("host")) {
    Fields host = links.object("host");
    cluster.host = read_link(host);
    host.reject_unknown();
  }
  links.raw("host");
  if (fields.has("efficiency")) cluster.efficiency = read_efficiency(fields.object("efficiency"));
  fields.raw("efficiency");
  cluster.calibrated_to = fields.name_or("calibrated_to", "");
  within.reject_unknown();
  between.reject_unknown();
  links.reject_unknown();
  fields.reject_unknown();
  if (findings.first()) return *findings.first();
  return cluster;
}

Result<Cluster> read_cluster_file(const std::filesystem::path& path) {
  WEFT_TRY(const Document document, read_document(path));
  return read_cluster(document, name_of_file(path));
}

}  // namespace weft
