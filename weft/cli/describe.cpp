#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/json.h"
#include "weft/base/text.h"
#include "weft/cli/count_option.h"
#include "weft/cli/data_description.h"
#include "weft/cli/default_workload.h"
#include "weft/cli/description.h"
#include "weft/cli/installation.h"
#include "weft/cli/json_output.h"
#include "weft/cli/verbs.h"
#include "weft/spec/batch_limit.h"

namespace weft {
namespace {

struct DescribeOptions {
  std::optional<std::string> model;
  std::optional<std::string> workload;
  std::optional<std::string> cluster;
  std::optional<std::string> nodes;
  std::optional<std::string> data;
  std::optional<std::string> out;
  std::optional<std::string> global_batch;
  bool json = false;
};

Result<Description> gather(const DescribeOptions& options) {
  const Scenarios scenarios = find_scenarios();
  Description description;
  if (options.cluster) {
    std::optional<int64_t> nodes;
    if (options.nodes) {
      WEFT_TRY(nodes, parse_count("--nodes", *options.nodes, {1, kMostNodes}));
    }
    WEFT_TRY(description.cluster, scenarios.cluster(*options.cluster, nodes));
  }
  if (options.workload) {
    WEFT_TRY(description.workload, scenarios.workload(*options.workload));
  }
  if (!options.model) return description;
  WEFT_TRY(description.model, scenarios.model(*options.model));
  if (description.workload) {
    WEFT_TRY(description.load, describe_load(*description.model, *description.workload));
    return description;
  }
  // Parameters need no workload, so one that nobody asked for must not stand in their way.
  const std::string name = default_workload(*description.model);
  Result<Workload> workload = scenarios.workload(name);
  if (workload) {
    Result<LoadDescription> load = describe_load(*description.model, *workload);
    if (load) {
      description.workload = *std::move(workload);
      description.load = *std::move(load);
    } else {
      description.note = "no FLOPs: " + load.error().message();
    }
  } else {
    description.note = "no FLOPs: " + workload.error().message();
  }
  return description;
}

/// A data set, with the tokenizer of a model.
Result<std::string> describe_with_data(const DescribeOptions& options) {
  if (!options.model) {
    return Error{.source = "--data",
                 .problem = "is given without a model, whose tokenizer counts its tokens",
                 .advice = "Add --model with the model's folder."};
  }
  if (options.workload || options.cluster) {
    return Error{.source = "--data",
                 .problem = "is given with a workload or a cluster",
                 .advice = "Describe the data first, with --out FILE; FILE is then a workload."};
  }
  DataRequest request{.data = *options.data, .model = *options.model, .out = options.out, .json = options.json};
  if (options.global_batch) {
    WEFT_TRY(request.global_batch, parse_count("--global-batch", *options.global_batch, {1, kMostBatchSamples}));
  }
  return describe_data(request);
}

Result<std::string> describe(const DescribeOptions& options) {
  if (options.data) return describe_with_data(options);
  for (const auto& [flag, value] :
       {std::pair("--out", options.out), std::pair("--global-batch", options.global_batch)}) {
    if (value) return Error{.source = flag, .problem = "is given without a data set", .advice = "Add --data."};
  }
  if (!options.model && !options.workload && !options.cluster) {
    return Error{.source = "describe",
                 .problem = "nothing to describe",
                 .advice = "Give --model, --workload, --cluster or --data."};
  }
  if (options.nodes && !options.cluster) {
    return Error{.source = "--nodes", .problem = "is given without a cluster", .advice = "Add --cluster."};
  }
  WEFT_TRY(const Description description, gather(options));
  if (!options.json) return to_text(description);
  // Names come from files and may hold any bytes.
  return json_output(to_json(description));
}

}  // namespace

void add_describe(Verbs& verbs) {
  auto options = std::make_shared<DescribeOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "describe", .summary = "What a model is made of: modules, blocks, parameters, FLOPs, bytes"});
  verb.option("--model", options->model,
              "Hugging Face config.json, a folder holding one, a program of your own, or a name in scenarios/models")
      .named("M");
  verb.option("--workload", options->workload,
              "YAML or JSON file, or a name in scenarios/workloads (default: text_4k, vl_sft or omni_short, by "
              "the model's modules)")
      .named("W");
  verb.option("--cluster", options->cluster, "YAML or JSON file, or a name in scenarios/clusters: describe that too")
      .named("C");
  verb.option("--nodes", options->nodes, "Number of nodes, instead of the cluster file's").named("N");
  verb.option("--data", options->data,
              "Conversations (JSON or JSONL), or data settings: describe them with the tokenizer of --model's folder")
      .named("FILE");
  verb.option("--out", options->out, "With --data: write it as a workload").named("WORKLOAD");
  verb.option("--global-batch", options->global_batch, "With --data: samples a step of that workload (default: 64)")
      .named("N");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Examples:\n"
      "  weft describe --model qwen2-vl-72b\n"
      "  weft describe --model path/to/config.json --workload vl_frozen --json\n"
      "  weft describe --cluster dgx_h100 --nodes 16\n"
      "  weft describe --data chats.jsonl --model path/to/model --out chats.json";
  verb.run = [options] { return describe(*options); };
}

}  // namespace weft
