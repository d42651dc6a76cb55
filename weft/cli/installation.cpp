#include "weft/cli/installation.h"

#include <cstdlib>

namespace weft {
namespace {

std::filesystem::path program_folder() {
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  return failed ? std::filesystem::current_path() : program.parent_path();
}

}  // namespace

Scenarios find_scenarios() {
  if (const char* folder = std::getenv("WEFT_SCENARIOS"); folder != nullptr && *folder != '\0')
    return Scenarios(folder);
  const std::filesystem::path above = program_folder().parent_path();
  const std::filesystem::path installed = above / "share" / "weft" / "scenarios";
  std::error_code ignored;
  return Scenarios(std::filesystem::exists(installed, ignored) ? installed : above / "scenarios");
}

std::filesystem::path find_runtime_library() {
  const std::filesystem::path name = "libweft_runtime.so";
  const std::filesystem::path installed = program_folder().parent_path() / "lib" / name;
  std::error_code ignored;
  return std::filesystem::exists(installed, ignored) ? installed : program_folder() / name;
}

}  // namespace weft
