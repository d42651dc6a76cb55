#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/record/run_record.h"

using namespace weft;

/// A record that is read is written and read back the same; a load by itself, too, since seals keep a fuzzer from it.
int weft::fuzz_record(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Result<RunRecord> record = parse_run_record(text, "fuzzed");
  if (record) {
    std::string lines = to_line(record->header);
    for (const StepRecord& step : record->steps) lines += to_line(step);
    const Result<RunRecord> again = parse_run_record(lines, "again");
    claim(again.ok() && again->steps.size() == record->steps.size());
    for (size_t i = 0; i < again->steps.size(); ++i) claim(to_line(again->steps[i]) == to_line(record->steps[i]));
  } else {
    claim_good_message(record);
  }
  const Result<Document> document = document_of(data, size);
  if (!document) return 0;
  NumberBudget budget{kMostRecordedNumbers}, again_budget = budget;
  if (const Result<RecordedLoad> load = read_load(document->root, budget)) {
    const Result<RecordedLoad> again = read_load(to_json(*load), again_budget);
    claim(again.ok() && to_json(*again) == to_json(*load));
  }
  return 0;
}
