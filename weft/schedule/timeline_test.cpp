#include "weft/schedule/timeline.h"

#include <cfloat>

#include <gtest/gtest.h>

namespace weft {
namespace {

Timeline of_one_forward(double ms) {
  const TimelineEvent event{{ActionKind::kForward, 0, 0}, Stream::kCompute, 0, ms};
  return {.ranks = {{event}}, .rank_names = {}, .makespan_ms = ms};
}

TEST(Timeline, TimesTooShortToDivideByAreDrawnAsNothing) {
  for (const double ms : {0.0, 5e-324, 1e-310, DBL_MIN}) {
    const std::string svg = to_svg(of_one_forward(ms), "title");
    EXPECT_EQ(svg.find("nan"), std::string::npos) << ms;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << ms;
    EXPECT_NE(svg.find("width=\"0.10\""), std::string::npos) << ms;
    EXPECT_NE(to_terminal(of_one_forward(ms), 10, false).find(".........."), std::string::npos) << ms;
  }
  EXPECT_NE(to_svg(of_one_forward(1e-90), "title").find("width=\"700.00\""), std::string::npos);
}

}  // namespace
}  // namespace weft
