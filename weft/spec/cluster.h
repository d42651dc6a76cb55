#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/document.h"
#include "weft/spec/efficiency.h"
#include "weft/spec/measured_machine.h"
#include "weft/spec/precision.h"

namespace weft {

/// One accelerator, or the share of a machine that one rank has.
struct ClusterDevice {
  std::string name;
  double memory_gib = 0;
  double reserved_memory_gib = 0;  ///< taken by driver, context and communication library before training starts
  double memory_bandwidth_gb_per_s = 0;
  std::map<Precision, double> matrix_tflops;  ///< dense peak, for the precisions that the device has
  double power_w = 0;                         ///< for which the peak is given; 0 where it is not known
  double power_limit_w = 0;                   ///< below that; 0 where there is none

  /// Share of the peak that a power limit leaves. Power goes with the clock and the square of the voltage, which goes
  /// with the clock: the rate falls with the cube root of the power.
  double power_share() const;
};

/// Bandwidth in one direction, and the time that an empty message takes.
struct Link {
  double bandwidth_gb_per_s = 0;
  double latency_us = 0;
};

/// Equal nodes of equal devices.
struct Cluster {
  std::string name;
  int64_t nodes = 0;
  int64_t devices_per_node = 0;
  ClusterDevice device;
  Link within_node;            ///< per device
  Link between_nodes;          ///< per network card
  int64_t cards_per_node = 0;  ///< network cards, shared by the node's devices
  Link host;                   ///< between a device and its host's memory; no bandwidth where it is not known
  Efficiency efficiency;
  std::string calibrated_to;  ///< the runs that the efficiency was fitted to, in words; nothing where it was not
  MeasuredMachine measured;   ///< by a profile

  int64_t num_devices() const { return nodes * devices_per_node; }
};

/// Plans list the ranks of every module: a cluster has no more devices than that stays small for, whether its file says
/// how many there are, an option or another system's settings.
inline constexpr int64_t kMostDevices = 1'000'000;
inline constexpr int64_t kMostNodes = kMostDevices;  ///< of one device each
inline constexpr int64_t kMostDevicesPerNode = 1024;

/// Unknown keys are rejected.
Result<Cluster> read_cluster(const Document& document, std::string default_name);
/// The inverse of read_cluster.
Json to_json(const Cluster& cluster);
Result<Cluster> read_cluster_file(const std::filesystem::path& path);

/// What is wrong with a cluster that has more devices than plans may have.
std::optional<std::string> find_too_many_devices(const Cluster& cluster);

/// Larger or smaller nodes of the same devices and links, with network cards in proportion.
void set_devices_per_node(int64_t devices, Cluster& cluster);

/// Values that are possible but unlike any machine's, each as a sentence with the field and the usual range: mostly a
/// unit that was mistaken.
std::vector<std::string> unusual_values(const Cluster& cluster);

}  // namespace weft
