#include "weft/search/balance.h"

#include <memory>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "weft/base/json.h"
#include "weft/base/units.h"
#include "weft/cli/interrupt.h"
#include "weft/cli/json_output.h"
#include "weft/cli/table.h"
#include "weft/cli/terminal_line.h"
#include "weft/cli/verbs.h"

namespace weft {
namespace {

struct BalanceVerbOptions {
  std::string costs;
  double time_limit_s = 10;
  bool json = false;
};

/// Why the makespan is the smallest, or how far from it the bound is.
std::string proof_of(const BalancedPipeline& balance) {
  const std::string work =
      fmt::format("{} placements simulated, {} critical paths as bounds", balance.num_simulated, balance.num_paths);
  if (balance.is_optimal) {
    return fmt::format("exhaustive: every other placement that fits has a critical path at least as long ({})", work);
  }
  const char* why = balance.is_stopped ? "interrupted" : "time limit";
  if (balance.bound_ms <= 0) return fmt::format("{}: how much faster others could be is not known yet ({})", why, work);
  return fmt::format("{}: no placement is faster than {:.6g} ms, {} below this one ({})", why, balance.bound_ms,
                     format_percent(balance.gap()), work);
}

Json to_json(const BalanceCosts& costs, const BalancedPipeline& balance) {
  // Over stages, or over rank and chunk where a rank has several.
  const auto over_stages = [&](const auto& count_of) {
    Json list = Json::array();
    for (const auto& stages : balance.stages_of_rank) {
      Json chunks = Json::array();
      for (const int32_t stage : stages) chunks.push_back(count_of(balance.stages[static_cast<size_t>(stage)]));
      list.push_back(costs.shape.vpp > 1 ? chunks : chunks.front());
    }
    return list;
  };
  Json placement = Json::object(), recompute = Json::object();
  for (size_t k = 0; k < costs.chain.size(); ++k) {
    placement[costs.chain[k].name] = over_stages([&](const BalancedStage& stage) { return stage.blocks[k]; });
    recompute[costs.chain[k].name] = over_stages([&](const BalancedStage& stage) { return stage.recomputed[k]; });
  }
  return {{"makespan_ms", balance.makespan_ms},
          {"bubble_fraction", balance.bubble_fraction},
          {"placement", placement},
          {"recompute", recompute},
          {"forward_ms", over_stages([](const BalancedStage& stage) { return stage.forward_ms; })},
          {"backward_ms", over_stages([](const BalancedStage& stage) { return stage.backward_ms; })},
          {"memory_gib", balance.memory_gib},
          {"optimal", balance.is_optimal},
          {"bound_ms", balance.bound_ms},
          {"gap", balance.gap()},
          {"proof", proof_of(balance)}};
}

std::string to_text(const BalanceCosts& costs, const BalancedPipeline& balance) {
  Table table;
  std::vector<std::string> header = {"stage", "rank"};
  for (const BlockKind& kind : costs.chain) {
    header.push_back(kind.name);
    header.emplace_back("recomputed");
  }
  header.insert(header.end(), {"forward", "backward", "rank's memory"});
  table.add(header);
  table.add_rule();
  std::vector<size_t> rank_of(balance.stages.size());
  for (size_t rank = 0; rank < balance.stages_of_rank.size(); ++rank) {
    for (const int32_t stage : balance.stages_of_rank[rank]) rank_of[static_cast<size_t>(stage)] = rank;
  }
  for (size_t s = 0; s < balance.stages.size(); ++s) {
    const BalancedStage& stage = balance.stages[s];
    std::vector<std::string> cells = {std::to_string(s), std::to_string(rank_of[s])};
    for (size_t k = 0; k < costs.chain.size(); ++k) {
      cells.push_back(std::to_string(stage.blocks[k]));
      cells.push_back(std::to_string(stage.recomputed[k]));
    }
    cells.push_back(fmt::format("{:.6g} ms", stage.forward_ms));
    cells.push_back(fmt::format("{:.6g} ms", stage.backward_ms));
    cells.push_back(fmt::format("{:.4g} GiB", balance.memory_gib[rank_of[s]]));
    table.add(cells);
  }
  return fmt::format("{}{}: makespan {:.6g} ms, bubble {}, {}\n{}\n", table.text(), name_of(costs.schedule),
                     balance.makespan_ms, format_percent(balance.bubble_fraction),
                     balance.is_optimal ? "optimal" : "not proven optimal", proof_of(balance));
}

Result<std::string> run_balance(const BalanceVerbOptions& options) {
  WEFT_TRY(const Document document, read_document(options.costs));
  WEFT_TRY(const BalanceCosts costs, read_balance_costs(document));
  show_progress(fmt::format("balancing, at most {:.4g} s", options.time_limit_s));
  const std::atomic<bool>& stop = stop_on_interrupt();
  Result<BalancedPipeline> found = [&] {
    const InterruptPatience patience("balance");
    return balance(costs, {.time_limit_s = options.time_limit_s, .stop = &stop});
  }();
  show_progress("");
  if (found && found->is_stopped) say("balance: was interrupted; this is the best so far");
  if (!found) {
    Error error = found.error();
    error.source = options.costs;
    return error;
  }
  return options.json ? json_output(to_json(costs, *found)) : to_text(costs, *found);
}

}  // namespace

void add_balance(Verbs& verbs) {
  auto options = std::make_shared<BalanceVerbOptions>();
  Verb& verb = verbs.emplace_back(
      Verb{.name = "balance", .summary = "Spread a chain of blocks over pipeline stages, recomputing what must be"});
  verb.option("--costs", options->costs,
              "JSON or YAML: the schedule, its shape, a memory limit, and the time and memory of each kind of block")
      .named("FILE")
      .required();
  verb.option("--time-limit", options->time_limit_s,
              "Seconds after which the best so far is printed with a bound (default: 10)")
      .named("S")
      .within(0.001, 1e6);
  verb.option("--json", options->json, "Print one JSON object");
  verb.footer =
      "Exit status 1 when nothing fits, with the memory limit or pp that would do.\n"
      "Examples:\n"
      "  weft balance --costs scenarios/balance/vl_72b_pp8.json\n"
      "  weft balance --costs costs.json --time-limit 60 --json";
  verb.run = [options] { return run_balance(*options); };
}

}  // namespace weft
