#include "weft/base/byte_unit.h"

#include <gtest/gtest.h>

#include "weft/base/counted.h"
#include "weft/base/units.h"

namespace weft {
namespace {

TEST(ByteUnit, FitsTheSizeSoThatTinyModelsDoNotShowZero) {
  EXPECT_EQ(format_memory(70.312 * kGiB), "70.31 GiB");
  EXPECT_EQ(format_memory(kGiB), "1.00 GiB");
  EXPECT_EQ(format_memory(0.35 * kGiB), "358.40 MiB");
  EXPECT_EQ(format_memory(2048), "2.00 KiB");
  EXPECT_EQ(format_memory(0), "0.00 B");
  EXPECT_EQ(byte_unit_for(kMiB).number(1.5 * kMiB), "1.50");
}

TEST(ByteUnit, CountedNounsAgreeWithTheirNumber) {
  EXPECT_EQ(counted(1, "device"), "1 device");
  EXPECT_EQ(counted(0, "device"), "0 devices");
  EXPECT_EQ(counted(8, "device"), "8 devices");
  EXPECT_EQ(counted(4, "microbatch"), "4 microbatches");
}

}  // namespace
}  // namespace weft
