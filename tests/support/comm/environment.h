#pragma once

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace weft {

/// For tests: sets variables for a scope, and takes away all that launchers and options use.
class Environment {
 public:
  explicit Environment(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_NTASKS",
          "WEFT_COMM_TIMEOUT_S", "WEFT_COMM_CHECKED", "WEFT_RECORDS", "WORLD_SIZE", "RANK", "LOCAL_RANK",
          "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
          "TORCHELASTIC_USE_AGENT_STORE"}) {
      if (const char* value = std::getenv(name)) kept_.emplace_back(name, value);
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) {
      setenv(name, value, 1);
      set_.emplace_back(name);
    }
  }
  ~Environment() {
    for (const std::string& name : set_) unsetenv(name.c_str());
    for (const auto& [name, value] : kept_) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::string> set_;
  std::vector<std::pair<std::string, std::string>> kept_;
};

}  // namespace weft
