#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace weft {

/// What a run of the program left behind.
struct ProgramRun {
  int exit_status = -1;  ///< 128 + the signal when one ended it
  std::string out;
  std::string err;
};

/// Runs the built program with these arguments. `environment` entries ("NAME=value") are added to this process's own.
ProgramRun run_weft(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {},
                    const std::string& standard_output = "");

/// The same of any command, the first word of which is a path. Nothing is waited for: the child is the caller's to end.
struct StartedProgram {
  int process = -1;
  std::filesystem::path out, err;  ///< what it writes
};
StartedProgram start_command(std::vector<std::string> words, const std::filesystem::path& folder,
                             const std::vector<std::string>& environment = {});
/// Waits for it and reads what it wrote.
ProgramRun wait_for(const StartedProgram& program);
/// Runs the built program as so many MPI processes.
ProgramRun run_weft_with_mpi(int num_processes, const std::vector<std::string>& arguments);

/// A folder that is removed with everything in it at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  /// Writes a file into the folder and returns its path.
  std::string write(const std::string& name, const std::string& text) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace weft
