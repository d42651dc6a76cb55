#include "weft/cli/description.h"

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/cli/table.h"
#include "weft/spec/work.h"

namespace weft {
namespace {

constexpr Precision kDefaultPrecision = Precision::kBf16;

struct BlockRow {
  const Block* block;
  int64_t count;
};

/// A module's chain with each kind of block once.
std::vector<BlockRow> block_rows(const Module& module) {
  std::vector<BlockRow> rows = {{&module.entry, 1}};
  for (const Block& kind : module.distinct_layers) rows.push_back({&kind, 0});
  for (const size_t kind : module.layers) ++rows[1 + kind].count;
  rows.push_back({&module.exit, 1});
  return rows;
}

double share(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

Precision precision_of(const Description& d) {
  return d.workload ? d.workload->precision : kDefaultPrecision;
}

std::string plural(double count, const std::string& one, const std::string& many) {
  return fmt::format("{:.4g} {}", count, count == 1 ? one : many);
}

std::string workload_text(const Workload& w) {
  std::string text = fmt::format("workload {}: {} samples a step, {:.6g} {} a sample", printable(w.name),
                                 with_commas(w.global_batch_samples), w.tokens.mean(),
                                 w.tokens_include_media ? "tokens" : "text tokens");
  if (w.images.pieces_per_sample.max() > 0) {
    text += fmt::format(", {} of {:.6g} patches", plural(w.images.pieces_per_sample.mean(), "image", "images"),
                        w.images.size.mean());
  }
  if (w.audio.pieces_per_sample.max() > 0) {
    text += fmt::format(", {} of {:.4g} s", plural(w.audio.pieces_per_sample.mean(), "audio clip", "audio clips"),
                        w.audio.size.mean());
  }
  const bool varies = !w.tokens.is_constant() || !w.images.pieces_per_sample.is_constant() ||
                      !w.images.size.is_constant() || !w.audio.pieces_per_sample.is_constant() ||
                      !w.audio.size.is_constant();
  text += fmt::format("{}, {}, {}", varies ? " (means)" : "", name_of(w.precision), name_of(w.optimizer));
  for (const ModuleKind kind : w.frozen) text += fmt::format(", {} frozen", name_of(kind));
  return text + "\n";
}

std::string cluster_text(const Cluster& c) {
  std::string text = fmt::format("cluster {}: {} {} × {} = {} {}\n", printable(c.name), with_commas(c.nodes),
                                 c.nodes == 1 ? "node" : "nodes", c.devices_per_node, with_commas(c.num_devices()),
                                 c.num_devices() == 1 ? "device" : "devices");
  text += fmt::format("  {}: {:.4g} GiB ({:.3g} reserved), {:.5g} GB/s", printable(c.device.name), c.device.memory_gib,
                      c.device.reserved_memory_gib, c.device.memory_bandwidth_gb_per_s);
  for (const auto& [precision, tflops] : c.device.matrix_tflops)
    text += fmt::format(", {} {:.4g} TFLOP/s", name_of(precision), tflops);
  if (c.device.power_limit_w > 0)
    text += fmt::format(", limited to {:.4g} of {:.4g} W", c.device.power_limit_w, c.device.power_w);
  text += fmt::format("\n  within a node {:.4g} GB/s, {:.3g} us; between nodes {} × {:.4g} GB/s, {:.3g} us\n",
                      c.within_node.bandwidth_gb_per_s, c.within_node.latency_us, c.cards_per_node,
                      c.between_nodes.bandwidth_gb_per_s, c.between_nodes.latency_us);
  return text;
}

const char* token_name(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::kVision:
      return "patch";
    case ModuleKind::kAudio:
      return "position";
    case ModuleKind::kLlm:
      return "token";
  }
  return "";
}

std::string module_text(const Description& d, const Module& module, int64_t model_parameters) {
  const Precision precision = precision_of(d);
  const auto flops = [&](double value) { return d.load ? with_prefix(value, "FLOP") : std::string("-"); };
  const Segments* segments = d.load ? &d.load->sample.of(module.kind) : nullptr;
  const auto block_flops = [&](const Block& block) {
    return segments == nullptr ? 0.0 : forward_flops(block, *segments);
  };

  Table table;
  table.add({std::string(name_of(module.kind)), "count", "parameters", "share", "forward/sample",
             fmt::format("kept/{}", token_name(module.kind))});
  table.add_rule();
  for (const auto& [block, count] : block_rows(module)) {
    const int64_t parameters = count * num_parameters(*block);
    table.add({block->name, with_commas(count), with_commas(parameters),
               format_percent(share(parameters, model_parameters)),
               flops(static_cast<double>(count) * block_flops(*block)),
               format_bytes(static_cast<double>(count) * saved_bytes_per_token(*block, precision))});
  }
  table.add_rule();
  table.add({"all", "", with_commas(num_parameters(module)),
             format_percent(share(num_parameters(module), model_parameters)),
             flops(segments == nullptr ? 0.0 : forward_flops(module, *segments)),
             format_bytes(saved_bytes_per_token(module, precision))});
  return table.text();
}

std::string model_text(const Description& d) {
  const Model& model = *d.model;
  const int64_t parameters = num_parameters(model);
  std::string text =
      fmt::format("{}: {}, {} parameters ({} in {}), embeddings {}\n", printable(model.name), model.family,
                  with_commas(parameters), format_bytes(static_cast<double>(parameters) * num_bytes(precision_of(d))),
                  name_of(precision_of(d)), model.has_tied_embeddings ? "tied" : "not tied");
  if (d.workload) text += workload_text(*d.workload);
  for (const Module& module : model.modules) text += "\n" + module_text(d, module, parameters);
  text += fmt::format("\ntotal {} parameters", with_commas(parameters));
  if (d.load) {
    double forward = 0;
    for (const Module& module : model.modules) forward += forward_flops(module, d.load->sample.of(module.kind));
    text += fmt::format(", forward {} a sample, training step {}", with_prefix(forward, "FLOP"),
                        with_prefix(d.load->training_step_flops, "FLOP"));
  }
  text += "\n";
  if (const auto& reason = model.numbers.llm.not_run) text += "note: " + reason->message() + "\n";
  return text;
}

Json distribution_json(const Distribution& distribution) {
  return {{"mean", distribution.mean()}, {"min", distribution.min()}, {"max", distribution.max()}};
}

Json workload_json(const Workload& w) {
  Json json = {{"name", w.name},
               {"global_batch_samples", w.global_batch_samples},
               {w.tokens_include_media ? "sequence_tokens" : "text_tokens", distribution_json(w.tokens)}};
  if (w.images.pieces_per_sample.max() > 0) {
    json["images_per_sample"] = distribution_json(w.images.pieces_per_sample);
    json["patches_per_image"] = distribution_json(w.images.size);
  }
  if (w.audio.pieces_per_sample.max() > 0) {
    json["audio_clips_per_sample"] = distribution_json(w.audio.pieces_per_sample);
    json["audio_seconds_per_clip"] = distribution_json(w.audio.size);
  }
  json["frozen"] = Json::array();
  for (const ModuleKind kind : w.frozen) json["frozen"].push_back(name_of(kind));
  json["precision"] = name_of(w.precision);
  json["optimizer"] = name_of(w.optimizer);
  return json;
}

Json cluster_json(const Cluster& cluster) {
  Json json = to_json(cluster);
  json["devices"] = cluster.num_devices();
  return json;
}

Json block_json(const BlockRow& row, const Segments* segments, Precision precision) {
  Json json = {{"name", row.block->name}, {"count", row.count}, {"parameters_each", num_parameters(*row.block)}};
  if (segments != nullptr) json["forward_flops_per_sample_each"] = forward_flops(*row.block, *segments);
  if (segments != nullptr)
    json["forward_traffic_bytes_per_sample_each"] = forward_traffic_bytes(*row.block, *segments, precision);
  json["activation_bytes_per_token_each"] = saved_bytes_per_token(*row.block, precision);
  return json;
}

Json module_json(const Description& d, const Module& module, int64_t model_parameters) {
  const Segments* segments = d.load ? &d.load->sample.of(module.kind) : nullptr;
  const Precision precision = precision_of(d);
  Json json = {{"parameters", num_parameters(module)},
               {"share", share(num_parameters(module), model_parameters)},
               {"layers", module.layers.size()},
               {"width", module.width},
               {"output_width", module.output_width}};
  if (segments != nullptr) {
    json["tokens_per_sample"] = num_tokens(*segments);
    json["forward_flops_per_sample"] = forward_flops(module, *segments);
  }
  json["activation_bytes_per_token"] = saved_bytes_per_token(module, precision);
  json["blocks"] = Json::array();
  for (const BlockRow& row : block_rows(module)) json["blocks"].push_back(block_json(row, segments, precision));
  return json;
}

}  // namespace

Result<LoadDescription> describe_load(const Model& model, const Workload& workload) {
  WEFT_TRY(SampleLoad sample, average_sample(model, workload));
  WEFT_TRY(const double flops, training_step_flops(model, workload, sample));
  return LoadDescription{.sample = std::move(sample), .training_step_flops = flops};
}

std::string to_text(const Description& d) {
  std::string text;
  if (d.model) {
    text += model_text(d);
  } else if (d.workload) {
    text += workload_text(*d.workload);
  }
  if (d.cluster) text += (text.empty() ? "" : "\n") + cluster_text(*d.cluster);
  if (!d.note.empty()) text += d.note + "\n";
  return text;
}

Json to_json(const Description& d) {
  Json json = Json::object();
  if (d.model) {
    const Model& model = *d.model;
    const int64_t total = num_parameters(model);
    json["model"] = {{"name", model.name}, {"family", model.family}, {"tied_embeddings", model.has_tied_embeddings}};
    if (const auto& reason = model.numbers.llm.not_run) json["model"]["not_run"] = reason->message();
    json["parameters"] = Json::object();
    json["modules"] = Json::object();
    double forward = 0;
    for (const Module& module : model.modules) {
      const std::string name(name_of(module.kind));
      json["parameters"][name] = num_parameters(module);
      json["modules"][name] = module_json(d, module, total);
      if (d.load) forward += forward_flops(module, d.load->sample.of(module.kind));
    }
    json["parameters"]["total"] = total;
    json["weight_bytes"] = static_cast<double>(total) * num_bytes(precision_of(d));
    if (d.load) json["forward_flops_per_sample"] = forward;
    if (d.load) json["training_flops_per_step"] = d.load->training_step_flops;
  }
  if (d.workload) json["workload"] = workload_json(*d.workload);
  if (d.cluster) json["cluster"] = cluster_json(*d.cluster);
  if (!d.note.empty()) json["note"] = d.note;
  return json;
}

}  // namespace weft
