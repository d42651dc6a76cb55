#include "tests/cli/run_program.h"

#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/source_tree.h"

namespace weft {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void redirect(int descriptor, const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "weft_test_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ / name, std::ios::binary) << text;
  return (path_ / name).string();
}

StartedProgram start_command(std::vector<std::string> words, const std::filesystem::path& folder,
                             const std::vector<std::string>& environment) {
  StartedProgram program{.out = folder / "out", .err = folder / "err"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  program.process = fork();
  if (program.process == 0) {
    redirect(STDOUT_FILENO, program.out.string());
    redirect(STDERR_FILENO, program.err.string());
    for (const std::string& entry : environment) {
      setenv(entry.substr(0, entry.find('=')).c_str(), entry.substr(entry.find('=') + 1).c_str(), 1);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  return program;
}

namespace {

ProgramRun wait_and_read(const StartedProgram& program, bool reads_output) {
  int status = 0;
  waitpid(program.process, &status, 0);
  return {.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = reads_output ? contents(program.out) : "",
          .err = contents(program.err)};
}

}  // namespace

ProgramRun wait_for(const StartedProgram& program) {
  return wait_and_read(program, /*reads_output=*/true);
}

ProgramRun run_weft(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                    const std::string& standard_output) {
  const TemporaryFolder folder;
  std::vector<std::string> words = {build_tree() / "weft"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  if (!standard_output.empty()) std::filesystem::create_symlink(standard_output, folder.path() / "out");
  return wait_and_read(start_command(std::move(words), folder.path(), environment), standard_output.empty());
}

ProgramRun run_weft_with_mpi(int num_processes, const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  std::vector<std::string> words = {source_tree().string() + "/scripts/mpirun", "-n", std::to_string(num_processes),
                                    build_tree() / "weft"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return wait_for(start_command(std::move(words), folder.path()));
}

}  // namespace weft
