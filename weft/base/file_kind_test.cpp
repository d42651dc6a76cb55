#include "weft/base/file_kind.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

Document document_of(const std::string& text) {
  return *parse_document(text, "given.yaml", Syntax::kYaml);
}

TEST(FileKind, NamesWhatAFileOfTheWrongKindLooksLike) {
  const std::optional<Error> error = find_wrong_kind(document_of("global_batch_samples: 8"), FileKind::kPlan);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->message(),
            "given.yaml: looks like a workload (it has global_batch_samples), not like a plan. It goes with "
            "--workload. 'weft plan ... --out plan.json' makes one.");
}

TEST(FileKind, LeavesFilesOfTheRightOrOfNoKnownKindToTheirReader) {
  EXPECT_FALSE(find_wrong_kind(document_of("{weft_plan: 1, model: {}}"), FileKind::kPlan));
  EXPECT_FALSE(find_wrong_kind(document_of("{surprise: 1}"), FileKind::kPlan));
  EXPECT_FALSE(find_wrong_kind(document_of("[1, 2]"), FileKind::kPlan));
  EXPECT_FALSE(find_wrong_kind(document_of("{mbs: 1}"), FileKind::kSpace));
}

TEST(FileKind, ATextThatWasCutOffIsBlamedOnItsEnd) {
  const Result<Document> cut =
      parse_document("{\"weft_plan\": 1,\n \"model\": {\"name\": \"x\",\n", "plan.json", Syntax::kJson);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().field, "");
  EXPECT_NE(cut.error().problem.find("the text ends in line 2"), std::string::npos) << cut.error().message();
  const Result<Document> quote = parse_document("{\"a\": \"b", "plan.json", Syntax::kJson);
  ASSERT_FALSE(quote.ok());
  EXPECT_NE(quote.error().problem.find("the text ends in line 1"), std::string::npos) << quote.error().message();
}

}  // namespace
}  // namespace weft
