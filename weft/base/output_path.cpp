#include "weft/base/output_path.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

std::optional<Error> find_problem(const char* flag, const std::string& given) {
  const auto error = [&](std::string problem, std::string advice) {
    return Error{.source = flag, .problem = std::move(problem), .advice = std::move(advice)};
  };
  if (given.empty()) return error("is given without a path", "Name the file to write.");
  const fs::path path = given;
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    return error(fmt::format("{} is a folder, a file is needed", in_quotes(given)), "Name a file inside it.");
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::exists(folder, ignored))
    return error(
        fmt::format("{} cannot be written: there is no folder {}", in_quotes(given), in_quotes(folder.string())),
        "Make the folder first, or name another.");
  if (!fs::is_directory(folder, ignored))
    return error(fmt::format("{} cannot be written: {} is not a folder", in_quotes(given), in_quotes(folder.string())),
                 "Name a file in a folder.");
  const auto cannot_write = [&](int code) {
    return error(fmt::format("{} cannot be written: {}", in_quotes(given), std::strerror(code)),
                 "Name a place that can be written to.");
  };
  const bool is_special = fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
  if (is_special) return access(path.c_str(), W_OK) == 0 ? std::nullopt : std::optional(cannot_write(errno));
  // Files are written beside their place and then moved there, so a new neighbour must be possible.
  std::string neighbour = given + ".XXXXXX";
  const int descriptor = mkstemp(neighbour.data());
  if (descriptor < 0) return cannot_write(errno);
  close(descriptor);
  unlink(neighbour.c_str());
  return std::nullopt;
}

/// Both are there and are one file, by whatever names and links. A device is read and written as one likes.
bool is_same_file(const fs::path& output, const fs::path& input) {
  std::error_code ignored;
  return fs::is_regular_file(output, ignored) && fs::equivalent(output, input, ignored);
}

}  // namespace

std::optional<Error> find_bad_output(std::initializer_list<Output> outputs, std::initializer_list<Input> inputs) {
  for (const Output& output : outputs) {
    if (!output.path) continue;
    if (auto problem = find_problem(output.flag, *output.path)) return problem;
    for (const Input& input : inputs) {
      if (!input.path || !is_same_file(*output.path, *input.path)) continue;
      return Error{
          .source = output.flag,
          .problem = fmt::format("is {}, which {} reads: it would be replaced", in_quotes(*output.path), input.flag),
          .advice = "Name another file to write."};
    }
    for (const Output& other : outputs) {
      if (other.flag == output.flag) break;
      std::error_code ignored;
      const bool is_same =
          other.path && fs::weakly_canonical(*other.path, ignored) == fs::weakly_canonical(*output.path, ignored);
      // A device, like /dev/null, takes any number of outputs.
      const bool is_device = fs::exists(*output.path, ignored) && !fs::is_regular_file(*output.path, ignored);
      if (is_same && !is_device)
        return Error{.source = output.flag,
                     .problem = fmt::format("is {}, which {} names as well", in_quotes(*output.path), other.flag),
                     .advice = "Give each a file of its own."};
    }
  }
  return std::nullopt;
}

}  // namespace weft
