#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/schedule/csv.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/validate.h"
#include "weft/simulate/run_schedule.h"

using namespace weft;

/// A schedule that reads and validates survives a round trip; a valid compute-only one can be lowered and simulated,
/// and what lowering makes is valid again.
int weft::fuzz_schedule(const uint8_t* data, size_t size) {
  if (size > 1 << 14) return 0;
  const Result<Schedule> schedule = parse_csv(as_text(data, size), "input");
  if (!schedule) {
    claim_good_message(schedule);
    return 0;
  }
  const Result<Schedule> again = parse_csv(to_csv(*schedule), "again");
  claim(again.ok() && *again == *schedule);
  if (const auto problem = find_problem(*schedule)) {
    claim(!show_problem(*schedule, *problem).empty());
    return 0;
  }
  bool is_lowered = false;
  for (const auto& row : schedule->rows) {
    for (const Action& action : row) {
      is_lowered |= is_transfer(action.kind);
    }
  }
  const Result<Schedule> lowered = is_lowered ? schedule : lower_schedule(*schedule);
  claim(lowered.ok() && !find_problem(*lowered));
  claim(run_schedule(*lowered, {}).makespan_ms > 0);
  return 0;
}
