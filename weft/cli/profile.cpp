#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/base/counted.h"
#include "weft/base/file.h"
#include "weft/base/output_path.h"
#include "weft/base/text.h"
#include "weft/cli/count_option.h"
#include "weft/cli/duration_text.h"
#include "weft/cli/installation.h"
#include "weft/cli/interrupt.h"
#include "weft/cli/json_output.h"
#include "weft/cli/legal_plan.h"
#include "weft/cli/one_process.h"
#include "weft/cli/profile_table.h"
#include "weft/cli/profile_update.h"
#include "weft/cli/profiled_shapes.h"
#include "weft/cli/runtime_loader.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"
#include "weft/comm/launch.h"
#include "weft/simulate/wanted_operators.h"
#include "weft/spec/cluster_yaml.h"

namespace weft {
namespace {

struct ProfileOptions {
  std::optional<std::string> model, workload, cluster, plan, space, precision, ranks, cluster_out, from, device_name;
  std::optional<std::string> update, from_profile;  ///< a run to learn from
  std::string out;
  std::string device = "cpu";
  double time_limit_s = 180;
  bool json = false;
};

/// Medians less sure than this are measured again when a profile is gone on with.
constexpr double kSettledPercent = 5;

Result<Precision> profiled_precision(const ProfileOptions& options, const std::optional<Plan>& plan) {
  if (!options.precision) {
    if (plan) return plan->precision.compute;
    return options.device == "cuda" ? Precision::kBf16 : Precision::kFp32;
  }
  const auto names = precision_names();
  const auto found = std::find(names.begin(), names.end(), *options.precision);
  if (found == names.end()) {
    const std::vector<std::string> known(names.begin(), names.end());
    return Error{.source = "--precision",
                 .problem = fmt::format("is {}, {} is needed", in_quotes(*options.precision), joined_or(known)),
                 .advice = "Leave it out for the plan's, else bf16 on GPUs and fp32 on processors."};
  }
  const auto precision = static_cast<Precision>(found - names.begin());
  if (plan && plan->precision.compute != precision) {
    return Error{.source = "--precision",
                 .problem = fmt::format("is {}, but {} computes in {}", *options.precision, *options.plan,
                                        name_of(plan->precision.compute)),
                 .advice = "Leave it out: the plan's is measured."};
  }
  return precision;
}

/// A profile that is there already and is gone on with, or a new one; the error says in what the two differ.
Result<Profile> begin_profile(const ProfileOptions& options, Profile fresh) {
  std::error_code ignored;
  // What is there but cannot be looked at is for the reader to report.
  if (std::filesystem::status(options.out, ignored).type() == std::filesystem::file_type::not_found) return fresh;
  WEFT_TRY(Profile begun, read_profile_file(options.out));
  const auto refuse = [&](const char* field, const std::string& is, const std::string& needed) {
    return Error{.source = options.out,
                 .field = field,
                 .problem = fmt::format("is {}, but {} would be measured now", in_quotes(is), in_quotes(needed)),
                 .advice = "Give another --out, or delete the file to begin again."};
  };
  if (begun.model_hash != fresh.model_hash)
    return refuse("model_hash", begun.model + " " + begun.model_hash, fresh.model + " " + fresh.model_hash);
  if (begun.device != fresh.device) return refuse("device", begun.device, fresh.device);
  if (begun.precision != fresh.precision)
    return refuse("precision", name_of(begun.precision), name_of(fresh.precision));
  if (begun.software != fresh.software) return refuse("software", begun.software, fresh.software);
  return begun;
}

/// All words of a GPU's own name are in the cluster's: "NVIDIA H200" in "NVIDIA H200 SXM5 141GB".
std::optional<Error> find_other_device(const ProfileOptions& options, const std::string& own,
                                       const std::string& wanted) {
  if (options.device == "cpu") return std::nullopt;
  size_t begin = 0;
  while (begin < own.size()) {
    const size_t end = std::min(own.find(' ', begin), own.size());
    const std::string word = own.substr(begin, end - begin);
    begin = end + 1;
    if (wanted.find(word) != std::string::npos) continue;
    return Error{.source = options.plan ? *options.plan : "--cluster",
                 .field = options.plan ? "cluster.device.name" : "device.name",
                 .problem = fmt::format("is {}, but this machine has {}", in_quotes(wanted), in_quotes(own)),
                 .advice =
                     "Profile on such a device, or leave --cluster out and write this machine's with "
                     "--cluster-out."};
  }
  return std::nullopt;
}

/// What the profile lacks: shapes that are not in it, then those that are not known well.
std::vector<BlockShape> missing_shapes(const Profile& profile, const std::vector<BlockShape>& wanted) {
  std::vector<BlockShape> missing, unsure;
  for (const BlockShape& shape : wanted) {
    const auto found = std::find_if(profile.blocks.begin(), profile.blocks.end(),
                                    [&](const BlockMeasurement& block) { return block.shape == shape; });
    if (found == profile.blocks.end()) {
      missing.push_back(shape);
    } else if (found->sureness.spread_percent > kSettledPercent) {
      unsure.push_back(shape);
    }
  }
  missing.insert(missing.end(), unsure.begin(), unsure.end());
  return missing;
}

/// The same of operators of a user's own program.
std::vector<OperatorCase> missing_operators(const Profile& profile, std::vector<OperatorCase> wanted) {
  const auto is_known = [&](const OperatorCase& op) {
    return std::any_of(profile.operators.begin(), profile.operators.end(), [&](const OperatorMeasurement& known) {
      return known.part == op.part && known.busy_ranks == op.busy_ranks &&
             known.sureness.spread_percent <= kSettledPercent;
    });
  };
  std::erase_if(wanted, is_known);
  return wanted;
}

/// Bandwidth and latency as collectives of this machine showed them.
void put_links(const Profile& profile, Cluster& cluster) {
  for (const bool is_between : {false, true}) {
    const LinkMeasurement *large = nullptr, *small = nullptr;
    for (const LinkMeasurement& link : profile.links) {
      if (link.is_between_nodes != is_between || link.collective != "all_reduce") continue;
      if (large == nullptr || link.ranks > large->ranks || (link.ranks == large->ranks && link.bytes > large->bytes))
        large = &link;
      if (small == nullptr || link.bytes < small->bytes) small = &link;
    }
    if (large == nullptr) continue;
    const auto ranks = static_cast<double>(large->ranks);
    const auto rounded = [](double value) { return std::strtod(fmt::format("{:.3g}", value).c_str(), nullptr); };
    Link& link = is_between ? cluster.between_nodes : cluster.within_node;
    link.bandwidth_gb_per_s = rounded(2 * (1 - 1 / ranks) * large->bytes / large->ms * 1e-6);
    link.latency_us = rounded(small->ms * 1e3 / (2 * static_cast<double>(small->ranks - 1)));
    if (is_between) cluster.efficiency.between_nodes = 1;
  }
}

/// What one process found out of its device, as the cluster of all processes.
void spread_over_processes(const Launch& launch, bool share_memory, Cluster& cluster) {
  cluster.devices_per_node = std::max<int64_t>(1, ranks_of_host(launch, launch.size).count);
  cluster.nodes = std::max<int64_t>(1, launch.size / cluster.devices_per_node);
  if (share_memory) cluster.device.memory_gib /= static_cast<double>(cluster.devices_per_node);
}

/// How sure the medians are.
struct Spreads {
  double median_percent = 0;
  double worst_percent = 0;
  int64_t unsettled = 0;
};

Spreads spreads_of(const Profile& profile) {
  std::vector<double> all;
  for (const BlockMeasurement& block : profile.blocks) all.push_back(block.sureness.spread_percent);
  for (const OperatorMeasurement& op : profile.operators) all.push_back(op.sureness.spread_percent);
  if (all.empty()) return {};
  std::sort(all.begin(), all.end());
  return {.median_percent = all[all.size() / 2],
          .worst_percent = all.back(),
          .unsettled = std::count_if(all.begin(), all.end(), [](double p) { return p > kSettledPercent; })};
}

std::vector<std::string> notes_of(const ProfileReport& report, const ProfileOptions& options) {
  std::vector<std::string> notes = report.impossible;
  const Spreads spreads = spreads_of(report.profile);
  if (spreads.unsettled > 0) {
    notes.push_back(
        fmt::format("{} of {} medians did not settle within {} % (the worst: {:.1f} %): something else uses this "
                    "machine; end it and "
                    "run the same command again, which measures just these",
                    spreads.unsettled, report.profile.blocks.size() + report.profile.operators.size(), kSettledPercent,
                    spreads.worst_percent));
  }
  if (constexpr double kSteady = 0.95; report.profile.lowest_clock_mhz < kSteady * report.profile.clock_mhz) {
    notes.push_back(fmt::format(
        "the device's clock fell to {:.0f} MHz while some blocks ran, of {:.0f} MHz (the median): its power, "
        "heat or something else limits it; measure again where plans have it steadier",
        report.profile.lowest_clock_mhz, report.profile.clock_mhz));
  }
  if (report.is_out_of_time) {
    notes.push_back(
        fmt::format("--time-limit {:.0f} ended it with {} to go, the least important: run the same command "
                    "again to go on",
                    options.time_limit_s, counted(report.num_left, "shape")));
  }
  return notes;
}

Json to_json(const ProfileReport& report, const ProfileOptions& options, double seconds) {
  const Spreads spreads = spreads_of(report.profile);
  return {{"out", options.out},
          {"device", report.profile.device},
          {"software", report.profile.software},
          {"precision", name_of(report.profile.precision)},
          {"blocks", report.profile.blocks.size()},
          {"operators", report.profile.operators.size()},
          {"updates", report.profile.updates.size()},
          {"links", report.profile.links.size()},
          {"left", report.num_left},
          {"runs", report.num_runs},
          {"outliers", report.num_outliers},
          {"spread_percent", spreads.median_percent},
          {"worst_spread_percent", spreads.worst_percent},
          {"clock_mhz", report.profile.clock_mhz},
          {"lowest_clock_mhz", report.profile.lowest_clock_mhz},
          {"seconds", seconds},
          {"notes", notes_of(report, options)}};
}

std::string to_text(const ProfileReport& report, const ProfileOptions& options, double seconds) {
  const Profile& profile = report.profile;
  const Spreads spreads = spreads_of(profile);
  std::string text = fmt::format("device    {}, {}\n", profile.device, name_of(profile.precision));
  text += fmt::format("{} {} shapes, medians within {:.1f} % (half of them), {:.1f} % (the worst)\n",
                      profile.operators.empty() ? "blocks   " : "operators",
                      profile.blocks.size() + profile.operators.size(), spreads.median_percent, spreads.worst_percent);
  if (report.num_runs > 0)
    text += fmt::format("runs      {}, {} of them outliers\n", report.num_runs, report.num_outliers);
  text += fmt::format("besides   {}, {}, {:.3f} ms around an action, {:.3f} ms around a step\n",
                      counted(std::ssize(profile.updates), "update"), counted(std::ssize(profile.links), "collective"),
                      profile.action_ms, profile.step_ms);
  if (profile.clock_mhz > 0)
    text += fmt::format("clock     {:.0f} MHz, {:.0f} at the lowest\n", profile.clock_mhz, profile.lowest_clock_mhz);
  text += fmt::format("time      {}\n", duration_text(seconds));
  for (const std::string& note : notes_of(report, options)) text += fmt::format("note      {}\n", note);
  text += fmt::format("written   {}\n", options.out);
  if (options.cluster_out) text += fmt::format("cluster   {}\n", *options.cluster_out);
  return text;
}

std::optional<Error> write_profile(const ProfileOptions& options, const Profile& profile) {
  return write_profile_file(options.out, profile);
}

Error interrupted(const ProfileOptions& options, const ProfileReport& report) {
  return {.kind = ErrorKind::kJob,
          .source = "profile",
          .problem = fmt::format("was interrupted with {} to go; {} has what was measured",
                                 counted(report.num_left, "shape"), options.out),
          .advice = "Run the same command again to go on."};
}

Result<std::string> convert_table(const ProfileOptions& options) {
  for (const auto& [flag, given] : {std::pair{"--model", &options.model}, {"--device-name", &options.device_name}}) {
    if (*given) continue;
    return Error{.source = "profile",
                 .field = flag,
                 .problem = "is missing",
                 .advice = "A table does not say which model and which device, by the cluster file's name, it is of."};
  }
  return profile_from_table({.table = *options.from,
                             .model = *options.model,
                             .device_name = *options.device_name,
                             .precision = options.precision,
                             .out = options.out});
}

Result<std::string> run_profile(const ProfileOptions& options) {
  const double start = now_ms();
  if (options.from) return convert_table(options);
  if (options.update) {
    return update_profile(
        {.run = *options.update, .out = options.out, .from_profile = options.from_profile, .json = options.json});
  }
  if (options.from_profile) {
    return told_once({.source = "--from-profile",
                      .problem = "is given without a run to learn from",
                      .advice = "Add --update RUN, the folder of a run of 'weft train'."});
  }
  const std::optional<std::string> out = options.out;
  if (auto error =
          find_bad_output({{"--out", out}, {"--cluster-out", options.cluster_out}}, {{"--model", options.model},
                                                                                     {"--workload", options.workload},
                                                                                     {"--cluster", options.cluster},
                                                                                     {"--plan", options.plan},
                                                                                     {"--space", options.space}}))
    return told_once(*std::move(error));
  std::optional<Plan> plan;
  if (options.plan) {
    WEFT_TRY(plan, read_legal_plan(*options.plan, PlanUse::kPrice));
  }
  WEFT_TRY(ProfiledProblem problem, read_profiled_problem({options.model, options.workload, options.cluster,
                                                           options.space, plan ? &*plan : nullptr}));
  WEFT_TRY(const Precision precision, profiled_precision(options, plan));
  const Launch launch = detect_launch();
  std::optional<int64_t> ranks;
  if (options.ranks) {
    WEFT_TRY(ranks, parse_count("--ranks", *options.ranks, {1, 1024}));
  }
  if (launch.kind != Launch::Kind::kThreads) ranks = 1;  // of this process
  show_progress("loading the runtime");
  WEFT_TRY(const RuntimeApi* runtime, load_runtime());
  const std::atomic<bool>& stop = stop_on_interrupt(
      launch.is_speaker() ? "profile: interrupted, keeping what was measured (Ctrl-C again: at once)" : "");
  MachineRequest look{.device = options.device, .ranks = ranks.value_or(0), .say = say, .show = show_progress};
  WEFT_TRY(MachineReport machine, runtime->machine(look));
  if (launch.is_speaker()) {
    for (const std::string& other : machine.busy) say(other);
  }
  const int64_t busy_ranks = options.device == "cpu" ? machine.cluster.devices_per_node : 1;
  if (launch.kind != Launch::Kind::kThreads) spread_over_processes(launch, options.device == "cpu", machine.cluster);
  if (!problem.cluster) problem.cluster = machine.cluster;
  if (auto error = find_other_device(options, machine.cluster.device.name, problem.cluster->device.name))
    return told_once(*std::move(error));
  show_progress("choosing what to measure");
  WEFT_TRY(const std::vector<BlockShape> wanted, shapes_to_profile(problem, precision, busy_ranks));

  Profile fresh{.device = problem.cluster->device.name,
                .software = fmt::format("weft {}, {}", WEFT_VERSION, machine.software),
                .model = problem.model.name,
                .model_hash = hash_of(problem.model.config),
                .precision = precision,
                .reserved_bytes = machine.reserved_bytes};
  WEFT_TRY(Profile begun, begin_profile(options, std::move(fresh)));
  ProfileRequest request{.model = problem.model,
                         .device = options.device,
                         .ranks = busy_ranks,
                         .profile = std::move(begun),
                         .copy_bytes_per_ms = machine.copy_bytes_per_ms,
                         .time_limit_s = options.time_limit_s,
                         .stop = &stop,
                         .say = say,
                         .show = show_progress};
  if (problem.model.numbers.program) {
    request.operators = missing_operators(request.profile, wanted_operators(problem.model, wanted));
  } else {
    request.shapes = missing_shapes(request.profile, wanted);
  }
  request.show_block = [](const std::string& what, std::optional<double> left_s) {
    show_progress(left_s ? fmt::format("{}; {} left", what, duration_text(*left_s)) : what);
  };
  request.keep = [&](const Profile& profile) {
    if (auto error = write_profile(options, profile)) say(error->message());
  };
  Result<std::optional<ProfileReport>> measured = runtime->profile(request);
  show_progress("");
  if (!measured) return measured.error();
  if (!*measured) return std::string();
  const ProfileReport& report = **measured;
  if (auto error = write_profile(options, report.profile)) return *std::move(error);
  if (options.cluster_out) {
    Cluster cluster = machine.cluster;
    cluster.device.name = report.profile.device;
    put_links(report.profile, cluster);
    const std::string comment = fmt::format(
        "This machine, measured on {} by 'weft profile': rates that a rank reaches while {} run at once.\n"
        "# Links between nodes are a guess where none were measured.",
        report.profile.date, counted(cluster.devices_per_node, "rank"));
    if (auto error = write_file(*options.cluster_out, to_yaml(cluster, comment))) return *std::move(error);
  }
  if (report.is_stopped) return interrupted(options, report);
  const double seconds = (now_ms() - start) * 1e-3;
  return options.json ? json_output(to_json(report, options, seconds)) : to_text(report, options, seconds);
}

}  // namespace

void add_profile(Verbs& verbs) {
  auto options = std::make_shared<ProfileOptions>();
  Verb& verb =
      verbs.emplace_back(Verb{.name = "profile", .summary = "Measure a model's blocks and this machine's links"});
  verb.option("--model", options->model, "A Hugging Face config.json, or a name in scenarios/models").named("MODEL");
  verb.option("--workload", options->workload, "A workload's file or name").named("WORKLOAD");
  verb.option("--out", options->out, "The profile; one that is there already is gone on with").required().named("FILE");
  verb.option("--cluster", options->cluster, "Plan for this cluster of such devices (default: this machine)")
      .named("CLUSTER");
  verb.option("--device", options->device, "cpu (the default) or cuda").named("DEVICE");
  verb.option("--for", options->plan,
              "Measure just what this plan asks for; it has its model, workload and cluster with it")
      .named("PLAN");
  verb.option("--space", options->space, "Measure what a search of this space asks for").named("FILE");
  verb.option("--precision", options->precision, "Default: the plan's, else bf16 on cuda and fp32 on cpu")
      .named("NAME");
  verb.option("--ranks", options->ranks, "Ranks that run at once on a processor (default: one for each core)")
      .named("N");
  verb.option("--cluster-out", options->cluster_out, "Write a cluster file of this machine").named("FILE");
  verb.option("--time-limit", options->time_limit_s, "Seconds, after which the rest is left out (default 180)")
      .named("S")
      .within(1, 1e6);
  verb.option("--from", options->from,
              "Measure nothing: make a profile of a table of your own (docs/manual/profiles.md)")
      .named("TABLE.csv");
  verb.option("--device-name", options->device_name, "With --from: the device, as the cluster file names it")
      .named("NAME");
  verb.option("--update", options->update,
              "Measure nothing: learn from a run of 'weft train', so that its actions are predicted as they were")
      .named("RUN");
  verb.option("--from-profile", options->from_profile, "With --update: the profile to scale (default: formulas)")
      .named("FILE");
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Ctrl-C keeps what was measured (exit 130); the same command goes on from there.\n"
      "Links between several hosts, or GPUs, are measured by processes:\n"
      "  mpirun -n 8 weft profile --model M --workload W --out profile.json --device cuda\n"
      "Examples:\n"
      "  weft profile --model tiny-vl --workload tiny_vl --out profile.json --cluster-out here.yaml\n"
      "  weft plan --model tiny-vl --workload tiny_vl --cluster here.yaml --profile profile.json --out plan.json\n"
      "  weft profile --for plan.json --out profile.json --device cuda\n"
      "  weft profile --update runs/first --from-profile profile.json --out learned.json\n"
      "  weft profile --from times.csv --model llama3-8b --device-name 'Ascend 910B' --out profile.json";
  verb.handles_signals = true;
  verb.run = [options] { return run_profile(*options); };
}

}  // namespace weft
