#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>

#include "weft/exchange/shell_script.h"

namespace weft {
namespace {

std::string times(size_t count, const std::string& text) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

/// A variable of about 2^doublings letters.
std::string grown(const std::string& letter, int doublings) {
  return "A=\"" + letter + "\"\n" + times(static_cast<size_t>(doublings), "A=\"$A$A\"\n");
}

std::string numbered(const std::string& name, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += " " + name + std::to_string(i);
  return all;
}

/// A9=$A8, A8=$A7 and so on: something that A0 becomes needs as many rounds of a loop.
std::string copies_backwards(size_t count) {
  std::string all;
  for (size_t i = count; i > 0; --i) all += "A" + std::to_string(i) + "=$A" + std::to_string(i - 1) + "\n";
  return all;
}

struct HugeScript {
  const char* what;
  std::string text;
};

/// Scripts of up to 4 MiB that took minutes to hours, or gigabytes, where what is copied or scanned was not counted.
std::vector<HugeScript> huge_scripts() {
  constexpr size_t kMiB = size_t{1} << 20;
  const std::string many_names = "read" + numbered("v", 200'000) + "\n";
  std::string half_mega = "A=" + std::string(kMiB / 2, '1') + "\n";
  return {
      {"words of a grown variable", grown("a ", 22) + "x $A $A $A $A\n"},
      {"functions behind many variables", many_names + times(100'000, "f() { :; }\n")},
      {"ifs behind many variables", many_names + times(50'000, "if x; then B=$C; fi\n")},
      {"changes of many variables in nested blocks", times(45, "if x; then\n") + many_names + times(45, "fi\n")},
      {"indexes that do not end", "declare " + times(kMiB, "a[b ")},
      {"subshells behind a long variable", "A=" + std::string(2 * kMiB, 'a') + "\n" + times(kMiB / 4, "(:);\n")},
      {"nested subshells behind a grown variable", grown("aa", 22) + times(90, "( ") + ":" + times(90, " )")},
      {"a long list, whose first item is used", "A=(" + times(kMiB, "x ") + ")\n" + times(kMiB / 4, "B=$A\n")},
      {"a list that is used again and again",
       "A=(" + times(200'000, "x ") + ")\n" + times(100'000, ": ${A+x}${A[1]}\n")},
      {"arithmetic with a long variable", half_mega + times(100'000, ": $((A+A+A+A))\n")},
      {"arithmetic with a long blank variable",
       "A='" + std::string(kMiB, ' ') + "'\n" + times(200'000, ": $((A+A))\n")},
      {"a long pattern", "[[ " + std::string(2 * kMiB, 'a') + " == *" + std::string(kMiB, 'a') + "b ]]\n"},
      {"patterns of a case", grown("a", 11) + times(100'000, "case $A in *$A*b) ;; esac\n")},
      {"brackets of a pattern that do not close", times(1000, "[[ a == " + std::string(4000, '[') + " ]]\n")},
      {"backticks in one word", "x " + times(kMiB, "`a`")},
      {"a name that stands in every reason", "f" + std::string(kMiB, 'f') + "() { " + many_names + "}\n"},
      {"an unset name of a megabyte", "A=$" + std::string(kMiB, 'a') + "\nx" + times(kMiB, " $A")},
      {"an argument that is asked for", "set -- " + std::string(kMiB, 'a') + "\n" + times(200'000, ": ${1:+x}\n")},
      {"arguments that are shifted", "set --" + times(kMiB, " x") + "\n" + times(100'000, "shift\n")},
      {"a list that grows", "A=()\n" + times(kMiB / 3, "A+=(x)\n")},
      {"evals of evals", "A=x\n" + times(20, "A=\"eval '$A'; eval '$A'\"\n") + "eval \"$A\"\n"},
      {"numbers that declare adds", "declare -i A=1\n" + times(kMiB / 2, "A+=1\n")},
      {"flags of a declaration", "declare" + times(kMiB, " -x")},
      {"names of a for", "for i in" + times(kMiB, " a") + "; do :; done\n"},
      {"steps of a for", "for ((" + times(kMiB, "i++,") + "; ; )); do :; done\n"},
      {"loops inside each other", times(45, "for i in 1; do A=$B; B=x$A\n") + times(45, "done\n")},
      {"loops that change one more variable each round",
       "for i in 1; do\n" + copies_backwards(100'000) + "A0=x\ndone\n"},
      {"signs", "x $((" + std::string(4 * kMiB, '-') + "1))\n"},
      {"short commands", times(kMiB, "x;x\n")},
      {"short assignments", times(kMiB, "A=1\n")},
      {"quotes", "x " + times(2 * kMiB, "''")},
  };
}

TEST(ShellLimits, HoldForScriptsOfFourMebibytes) {
  for (const HugeScript& script : huge_scripts()) {
    ASSERT_LE(script.text.size(), size_t{5} << 20) << script.what;
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<SettingsFile> files = {{"run.sh", script.text}};
    const auto commands = read_script(files);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    // Two seconds are meant; the rest is for slow machines and sanitizers.
    EXPECT_LT(took.count(), 30) << script.what;
    if (!commands) {
      EXPECT_LT(commands.error().message().size(), 300u) << script.what;
    }
    if (std::getenv("WEFT_SHOW_TIMES") != nullptr)
      printf("%6.2f s %s: %s\n", took.count(), script.what, commands ? "read" : commands.error().message().c_str());
  }
}

TEST(ShellLimits, AFileThatIsSourcedAgainAndAgainIsCounted) {
  const std::vector<SettingsFile> files = {{"run.sh", times(100'000, "source b.sh\n")},
                                           {"b.sh", std::string(1 << 20, '#') + "\n"}};
  const auto commands = read_script(files);
  ASSERT_FALSE(commands.ok());
  EXPECT_EQ(commands.error().problem, "its variables grow beyond what scripts hold");
}

TEST(ShellLimits, DoNotTouchLongScriptsThatPeopleWrite) {
  // 5,000 lines with as many variables and blocks, in a function.
  std::string text = "setup() {\n";
  for (int i = 0; i < 1000; ++i) {
    const std::string n = std::to_string(i);
    text += "A" + n + "=${A" + n + ":-" + n + "}\nif [ -f x" + n + " ]; then\n  ARGS+=(--key-" + n + " \"$A" + n +
            "\")\nfi\nLIST=\"$LIST --other-" + n + " $A" + n + "\"\n";
  }
  const std::vector<SettingsFile> files = {{"run.sh", text + "}\nTP=4\nrun --tp $TP\n"}};
  const auto commands = read_script(files);
  ASSERT_TRUE(commands.ok()) << commands.error().message();
  EXPECT_EQ(commands->back().words.back().text, "4");
}

}  // namespace
}  // namespace weft
