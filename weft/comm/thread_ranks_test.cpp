// The suite on threads, and on a fake of several sizes.
#include <cstdio>

#include "tests/support/comm/fake_world.h"
#include "weft/comm/suite.h"
#include "weft/comm/threads/run_threads.h"

namespace weft::suite {

std::vector<Ranks> all_ranks() {
  std::vector<Ranks> all;
  for (const int64_t size : {1, 2, 3, 4, 8}) {
    all.push_back({.name = "Threads" + std::to_string(size), .size = size, .run = [size](const auto& body) {
                     const auto error = run_thread_ranks(size, {.timeout = std::chrono::seconds(60)}, body);
                     ASSERT_FALSE(error.has_value()) << error->message();
                   }});
  }
  for (const int64_t size : {1, 3, 8}) {
    all.push_back(
        {.name = "Fake" + std::to_string(size), .size = size, .is_fake = true, .run = [size](const auto& body) {
           for (const int64_t rank : {int64_t{0}, size / 2}) body(FakeWorld({.rank = rank, .size = size}).world());
         }});
  }
  return all;
}

void tell_skipped(const std::string& reason) {
  std::fprintf(stderr, "skipped: %s\n", reason.c_str());
}

}  // namespace weft::suite
