#include "weft/exchange/shell_script.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

/// Words of all commands, a line each; what is not known stands in angles.
std::string said(const std::string& script, const ShellVariables& given = {}) {
  const std::vector<SettingsFile> files = {{"run.sh", script}};
  const auto commands = read_script(files, given);
  if (!commands) return "error: " + commands.error().message();
  std::string text;
  for (const ShellCommand& command : *commands) {
    for (size_t i = 0; i < command.words.size(); ++i) {
      const ShellWord& word = command.words[i];
      text += (i > 0 ? " " : "") + (word.unknown.empty() ? word.text : "<" + word.unknown + ">");
    }
    text += "\n";
  }
  return text;
}

TEST(ShellScript, ResolvesVariablesAndDefaults) {
  EXPECT_EQ(said("TP=4\nPP=${PP:-2}\nX='a b'\nrun --tp $TP --pp ${PP} \"$X\" $X ${TP}x"),
            "run --tp 4 --pp 2 a b a b 4x\n");
  EXPECT_EQ(said("A=\nrun ${A:-empty} \"${A-none}\" ${B:+set} ${A+given}"), "run empty  given\n");
  EXPECT_EQ(said("export A=1 B=2\nC=$A$B\nrun $C"), "run 12\n");
  EXPECT_EQ(said("run ${X:=5} $X"), "run 5 5\n");
}

TEST(ShellScript, ComputesWithWholeNumbers) {
  EXPECT_EQ(said("N=2; G=8; W=$(($N*$G)); run $W $((W/4+1)) $(( (1+2)*3 % 4 )) $((2**10)) $((-3 - -1)) $((1<2))"),
            "run 16 5 1 1024 -2 1\n");
  EXPECT_EQ(said("run $((1/0))"),
            "error: run.sh: line 1: the arithmetic divides by zero. Write the number that it stands for.");
  EXPECT_NE(said("run $((9223372036854775807+1))").find("larger than 64 bits"), std::string::npos);
}

TEST(ShellScript, JoinsLinesAndSplitsListsOfArguments) {
  EXPECT_EQ(said("ARGS=\"\n  --a 1 \\\n  --b ${B:-2} \\\n\"\nrun $ARGS \\\n  --c 3 # not this\n"),
            "run --a 1 --b 2 --c 3\n");
  EXPECT_EQ(said("A=(--x 1 # one\n  \"--y 2\")\nA+=(--z)\nrun \"${A[@]}\" ${A[1]}\nrun ${A[@]} $A"),
            "run --x 1 --y 2 --z 1\nrun --x 1 --y 2 --z --x\n");
}

TEST(ShellScript, FollowsConditionsThatAreKnown) {
  EXPECT_EQ(said("T=fp8\nif [[ \"$T\" == fp8 && -z $U ]]; then A=1; elif [ $T = x ]; then A=2; else A=3; fi\nrun $A"),
            "run 1\n");
  EXPECT_EQ(said("N=3\nif [ $N -gt 4 ]; then run many; else run few; fi\n[ $N -eq 3 ] && M=yes || M=no\nrun $M"),
            "run few\nrun yes\n");
  EXPECT_EQ(said("case $X in\n a|b*) Y=1;;\n *) Y=2 ;;\nesac\nrun $Y", {{"X", "bee"}}), "run 1\n");
  EXPECT_EQ(said("while [ $# -gt 0 ]; do TP=9; done\nTP=${TP:-1}\nrun $TP"), "run 1\n");
}

TEST(ShellScript, KnowsWhatItDoesNotKnow) {
  EXPECT_EQ(said("N=$(cat hosts | wc -l)\nrun $N"), "run <the command cat in line 1>\n");
  EXPECT_EQ(said("N=`hostname`\nW=$((8*$N))\nrun $W"), "run <the command hostname in line 1>\n");
  EXPECT_EQ(said("run $NOWHERE"), "run <the variable NOWHERE, which line 1 uses and nothing sets>\n");
  EXPECT_EQ(said("source env.sh\nrun $NOWHERE"),
            "run <the variable NOWHERE, which line 2 uses and env.sh (sourced in line 1) may set>\n");
  EXPECT_EQ(said("A=1\nif [ -f x ]; then A=2; fi\nrun $A"),
            "run <the condition in line 2, which cannot be known without running the script>\n");
  EXPECT_EQ(said("for i in 1 2; do A=$i; done\nrun $A"), "run <the loop in line 1>\n");
  EXPECT_EQ(said("f() { A=2; }\nA=1\nrun $A"), "run 1\n");
  // Nobody reads into a place of the command line, which has no name.
  EXPECT_EQ(said("read -r N 1\nrun $# $N"), "run 0 <the input that line 1 reads>\n");
}

TEST(ShellScript, TakesWhatAUserSays) {
  EXPECT_EQ(said("N=$(cat hosts)\nrun $N $1 ${2:-b}", {{"N", "4"}, {"1", "a"}}), "run 4 a b\n");
}

TEST(ShellScript, KeepsWhereAValueWasWritten) {
  const std::vector<SettingsFile> files = {{"run.sh", "TP=4\n\nrun --tp $TP \\\n --pp 2\n"}, {"env.sh", ""}};
  const auto commands = *read_script(files);
  ASSERT_EQ(commands.front().words.size(), 5u);
  EXPECT_EQ(commands.front().words[2].place, (Place{0, 1}));
  EXPECT_EQ(commands.front().words[1].place, (Place{0, 3}));
  EXPECT_EQ(commands.front().words[4].place, (Place{0, 4}));
}

TEST(ShellScript, ReadsASourcedFileThatIsGiven) {
  const std::vector<SettingsFile> files = {{"run.sh", "source ./conf/env.sh\nrun $TP"}, {"some/env.sh", "TP=2\n"}};
  const auto commands = *read_script(files);
  EXPECT_EQ(commands.front().words[1].text, "2");
  EXPECT_EQ(commands.front().words[1].place, (Place{1, 1}));
}

TEST(ShellScript, SkipsHereDocumentsRedirectionsAndPipes) {
  EXPECT_EQ(said("cat <<EOF > out\n --fake 1\nEOF\nrun --a 1 2>&1 | tee log\n"), "cat\nrun --a 1\ntee log\n");
}

TEST(ShellScript, NamesTheLineOfWhatIsLeftOpen) {
  EXPECT_EQ(said("A=1\nB=\"open"), "error: run.sh: line 2: a quote \" is not closed. Close it.");
  EXPECT_EQ(said("A=(1 2"), "error: run.sh: line 1: the list of A is not closed. Close it with ).");
  EXPECT_NE(said("if true; then run").find("fi"), std::string::npos);
  EXPECT_NE(said("run $(oops").find("is not closed"), std::string::npos);
}

TEST(ShellScript, StopsWhereTextGrowsOrNestsBeyondScripts) {
  std::string doubling = "A=xxxxxxxx\n";
  for (int i = 0; i < 60; ++i) doubling += "A=$A$A\n";
  EXPECT_EQ(said(doubling).substr(0, 6), "error:");
  EXPECT_EQ(said("run $((" + std::string(500, '(') + "1").substr(0, 6), "error:");
  std::string nested;
  for (int i = 0; i < 500; ++i) nested += "if true; then\n";
  EXPECT_EQ(said(nested).substr(0, 6), "error:");
}

}  // namespace
}  // namespace weft
