// The suite on threads.
#include <cstdio>

#include <gtest/gtest.h>

#include "weft/comm/suite.h"
#include "weft/comm/threads/run_threads.h"

namespace weft::suite {

std::vector<Ranks> all_ranks() {
  std::vector<Ranks> all;
  for (const int64_t size : {2, 4}) {
    all.push_back({.name = "Threads" + std::to_string(size), .size = size, .run = [size](const auto& body) {
                     const auto error = run_thread_ranks(size, {.timeout = std::chrono::seconds(60)}, body);
                     ASSERT_FALSE(error.has_value()) << error->message();
                   }});
  }
  return all;
}

void tell_skipped(const std::string& reason) {
  std::fprintf(stderr, "skipped: %s\n", reason.c_str());
}

}  // namespace weft::suite
