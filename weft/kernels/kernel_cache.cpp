#include "weft/kernels/kernel_cache.h"

#include <cstdlib>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/text_hash.h"

namespace weft {
namespace {

constexpr std::string_view kBegins = "weft kernel 1\n";
constexpr size_t kMostBytes = size_t{64} << 20;

std::string header_of(const std::string& key, const std::string& code) {
  return fmt::format("{}{:016x} {:016x} {}\n", kBegins, text_hash(key), text_hash(code), code.size());
}

const char* set_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

KernelCache KernelCache::of_user() {
  if (const char* given = set_variable("WEFT_KERNEL_CACHE")) return KernelCache(given);
  if (const char* caches = set_variable("XDG_CACHE_HOME"))
    return KernelCache(std::filesystem::path(caches) / "weft/kernels");
  if (const char* home = set_variable("HOME")) return KernelCache(std::filesystem::path(home) / ".cache/weft/kernels");
  return KernelCache({});
}

std::filesystem::path KernelCache::file_of(const std::string& key) const {
  return folder_ / fmt::format("{:016x}.cubin", text_hash(key));
}

std::optional<std::string> KernelCache::find(const std::string& key) const {
  if (folder_.empty()) return {};
  std::error_code missing;
  if (!std::filesystem::exists(file_of(key), missing)) return {};
  Result<std::string> bytes = read_file(file_of(key), kMostBytes);
  if (!bytes) return {};
  const size_t end = bytes->find('\n', kBegins.size());
  if (!bytes->starts_with(kBegins) || end == std::string::npos) return {};
  std::string code = bytes->substr(end + 1);
  if (bytes->substr(0, end + 1) != header_of(key, code)) return {};
  return code;
}

void KernelCache::keep(const std::string& key, const std::string& code) const {
  if (folder_.empty()) return;
  std::error_code failed;
  std::filesystem::create_directories(folder_, failed);
  if (!failed) (void)write_file(file_of(key), header_of(key, code) + code);
}

}  // namespace weft
