#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/meaning/check.h"
#include "weft/plan/diff.h"
#include "weft/plan/plan_json.h"

using namespace weft;

/// A plan that reads can be judged, and written and read again without change.
int weft::fuzz_plan(const uint8_t* data, size_t size) {
  const Result<Document> document = document_of(data, size);
  if (!document) return 0;
  const Result<Plan> plan = read_plan(*document);
  if (!plan) {
    claim_good_message(plan);
    return 0;
  }
  for (const Violation& violation : check_plan(*plan)) claim(!violation.field.empty() && !violation.message.empty());
  const std::string text = plan_to_text(*plan);
  const Result<Document> again =
      parse_document(text, "again", Syntax::kJson, {.max_bytes = 64u << 20, .max_values = 5'000'000});
  claim(again.ok());
  const Result<Plan> second = read_plan(*again);
  claim(second.ok() && plan_to_text(*second) == text && diff_plans(*plan, *second).empty());
  return 0;
}
