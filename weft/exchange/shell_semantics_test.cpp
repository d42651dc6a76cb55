#include <gtest/gtest.h>

#include "weft/exchange/shell_script.h"

namespace weft {
namespace {

struct ShellCase {
  const char* script;
  const char* n;  ///< what N is behind it: bash 5.2 said so
};

// Computed with `bash -c "$script"; printf "[%s]" "$N"'`, in an empty environment.
constexpr ShellCase kShellCases[] = {
    {"N=2; ((N*=4))", "8"},
    {"N=8; : $((N=4))", "4"},
    {"N=7; ((++N))", "8"},
    {"i=0; N=8; ((i++))", "8"},
    {"N=8; ((N++)); ((N++))", "10"},
    {"N=8; M=$((N--)); N=$N$M", "78"},
    {"N=8; M=$((--N)); N=$N$M", "77"},
    {"N=$((010))", "8"},
    {"N=$((0x1F))", "31"},
    {"N=$((2#1010))", "10"},
    {"N=$((16#ff)); M=36#Z; N=$N$((M))", "25535"},
    {"N=$((64#_ + 64#@ + 64#A + 62#z))", "196"},
    {"M=010; N=$((10#$M))", "10"},
    {"M=08; N=$((10#$M))", "8"},
    {"N=$((9 + (-1)**65))", "8"},
    {"N=$((7 + (-1)**66))", "8"},
    {"N=$((2**10)) ", "1024"},
    {"N=$((-2**2))", "4"},
    {"N=$((2**3**2))", "512"},
    {"N=$((0**0))", "1"},
    {"N=4; let N+=4", "8"},
    {"N=4; let \"N = N * 2\" M=N+1; N=$N$M", "89"},
    {"N=4; let N++; let N--; let ++N", "5"},
    {"declare -i N=4; N+=4", "8"},
    {"declare -i N=4+4", "8"},
    {"declare -i N; N=2*3; N+=1", "7"},
    {"typeset -i N=3; N=; ", "0"},
    {"declare -i N=4; declare +i N; N+=4", "44"},
    {"declare -i N=4; unset N; N=4+4", "4+4"},
    {"declare -i N=4; (declare +i N); N+=4", "8"},
    {"M=3; declare -i N; N=M*2", "6"},
    {"export N=4; N+=4", "44"},
    {"set -- 2 8; TP=$1; shift; N=$1", "8"},
    {"set -- 2 8 16; shift 2; N=$1", "16"},
    {"set -- 2 8; shift 3; N=$1", "2"},
    {"set -- 2 8; N=$#; shift; N=$N$#", "21"},
    {"set -- a b c; N=\"$*\"; set -- x; N=$N$1$#", "a b cx1"},
    {"set -e -o pipefail; set -- 4; N=$1", "4"},
    {"set -- 4; set -x -- 8 9 2>/dev/null; N=$2$1", "98"},
    {"set 7 8; N=$2", "8"},
    {"set -- 7; set --; N=$#", "0"},
    {"set -- 5 6; f() { shift; N=1; }; N=$1", "5"},
    {"N=4; printf -v M 8", "4"},
    {"N=8; echo hi | N=4", "8"},
    {"N=8; { N=4; } 2>&1 | cat", "8"},
    {"N=8; true | { N=4; }", "8"},
    {"N=8; (N=4)", "8"},
    {"N=8; (N=4; (N=3); N=2); N=$N", "8"},
    {"N=8; N=4 & wait", "8"},
    {"N=8; true && N=4 & wait", "8"},
    {"N=8; ((N=4)) | true", "8"},
    {"N=8; if [[ \"$N\" == \"*\" ]]; then N=4; fi", "8"},
    {"N=8; if [[ \"$N\" == * ]]; then N=4; fi", "4"},
    {"N=8; if [ \"$N\" = \"*\" ]; then N=4; fi", "8"},
    {"N=8; if [[ $N == \\* ]]; then N=4; fi", "8"},
    {"N=8; P='*'; if [[ $N == $P ]]; then N=4; fi", "4"},
    {"N=8; P='*'; if [[ $N == \"$P\" ]]; then N=4; fi", "8"},
    {"N=8; P='*'; if [[ $N == ${P} ]]; then N=4; fi", "4"},
    {"N=8; if [[ $N == ${P:-\"*\"} ]]; then N=4; fi", "8"},
    {"N=8; if [[ $N == \"${P:-*}\" ]]; then N=4; fi", "8"},
    {"N=8; if [[ a-b == a-b ]]; then N=4; fi", "4"},
    {"N=8; if [[ a-b == \"a-b\" ]]; then N=4; fi", "4"},
    {"N=8; if [[ \"a[b\" == \"a[b\" && \"a]b\" == 'a]b' ]]; then N=4; fi", "4"},
    {"N=8; if [[ ab == [[:alpha:]][!a] ]]; then N=4; fi", "4"},
    {"N=8; if [[ a5 == [a-c][^0-4] ]]; then N=4; fi", "4"},
    {"N=8; if [[ - == [a-] ]]; then N=4; fi", "4"},
    {"N=8; if [[ ] == []a] ]]; then N=4; fi", "4"},
    {"N=8; if [[ b == [\\a-c] ]]; then N=4; fi", "4"},
    {"N=8; if [[ b == [\"a-c\"] ]]; then N=4; fi", "8"},
    {"N=8; if [[ a[b == a[b ]]; then N=4; fi", "4"},
    {"N=8; if [[ fp8_e4m3 == fp8* ]]; then N=4; fi", "4"},
    {"N=8; if [[ fp8_e4m3 != *e4?3 ]]; then N=4; fi", "8"},
    {"N=8; case $N in [48]) N=2;; esac", "2"},
    {"N=8; case $N in \"[48]\") N=2;; *) N=3;; esac", "3"},
    {"N=8; case $N in 4|[!0-7]) N=2;; *) N=3;; esac", "2"},
    {"N=8; case \"$N\" in \\*) N=2;; '?') N=5;; ?) N=3;; esac", "3"},
    {"N=8; case $N in 8) N=2;& 9) N=${N}1;; *) N=7;; esac", "21"},
    {"N=8; case $N in 8) M=2;;& [5-9]) M=${M}1;; *) M=7;; esac; N=$M", "21"},
    {"N=8; case $N in 8) M=2;;& [5-9]) M=${M}1;;& *) M=${M}7;; esac; N=$M", "217"},
    {"N=4 N+=0", "40"},
    {"N=1; N=4 M=$N; N=$M", "4"},
    {"N=4; N=8 true; N=$N", "4"},
    {"N=4; N=8 :", "4"},
    {"A=(1 2); A+=(3); N=\"${A[2]}${A[0]}$A\"", "311"},
    {"N=$((1 ? 2 : 3))$((0 ? 2 : 3))$((0 ? 1 : 0 ? 2 : 4))", "234"},
    {"N=$((N = 3, N + 1))$N", "43"},
    {"N=5; M=$((N > 3 && (N = 9)))", "9"},
    {"N=5; M=$((N < 3 && (N = 9)))", "5"},
    {"N=5; M=$((1 || (N = 9)))", "5"},
    {"N=5; M=$((0 || (N = 9)))", "9"},
    {"N=5; M=$((1 ? 7 : (N = 9)))", "5"},
    {"N=5; M=$((0 ? (N = 9) : 7))", "5"},
    {"N=$((0 && 1/0))", "0"},
    {"N=$((5 & 3))$((5 | 3))$((5 ^ 3))$((~5))$((1 << 4))$((256 >> 2))", "176-61664"},
    {"N=1; ((N<<=3)); ((N|=1)); ((N^=2)); ((N&=10)); ((N>>=1)); ((N-=3)); ((N%=5)); ((N+=10)); ((N/=3))", "4"},
    {"N=$((!0 + !5))$((- -3))$((-  3 - -1))", "13-2"},
    {"N=$((5--3))$((5++3))", "88"},
    {"M=3; N=$((-M))$((+M))$((M+++1))$M", "-3344"},
    {"N=$((7 / 2))$((-7 / 2))$((-7 % 3))$((7 % -1))", "3-3-10"},
    {"N=$((1<2))$((2<=2))$((3!=3))$((3==3))", "1101"},
    {"N=$((2 + 3 * 4 ** 2 / 2 % 7 - 1))", "4"},
    {"N=$(( 1 | 2 ^ 3 & 4 == 4 ))", "3"},
    {"A=3; B=A; N=$((A=2, A * 5))", "10"},
    {"N=$(((1+2)*(3)))", "9"},
    {"N=$(( 4 \\\n + 4 ))", "8"},
    {"N=4; ((N > 3)) && N=8", "8"},
    {"N=4; ((N > 5)) || N=8", "8"},
    {"N=4; if ((N == 4)); then N=8; fi", "8"},
    {"N=4; while ((N > 9)); do N=8; done", "4"},
    {"M=a; N=4; for i in a b; do if [ $M = b ]; then N=8; fi; X=$i; done", "4"},
    {"X=0; N=4; until [ $X = 0 ]; do N=8; done", "4"},
    {"N=0; while ((N++ > 4)); do :; done", "1"},
    {"N=4; for i in a b; do A=$(true <<EOF\nN=8\nEOF\n); N=4; done", "4"},
    {"N=4; true && N=8 || N=2", "8"},
    {"N=4; ! true || N=8", "8"},
    {"N=\"\"; N=${N:-4}", "4"},
    {"N=${M:=4}$M", "44"},
    {"N=4; unset N; N=${N-8}", "8"},
    {"N=4; f() { N=8; }; N=2", "2"},
    {"N=8; [ 010 -eq 10 ] && N=2", "2"},
    {"N=4; eval \"N=8\"", "8"},
    {"N=4; eval 'N=$((N*2))'", "8"},
    {"N=8; [ \"$N\" != \"8*\" ] && N=2", "2"},
    {"N=4; { N=8; } > /dev/null", "8"},
    {"N=4; { N=8; } > /dev/null 2>&1 && N=${N}1", "81"},
    {"N=x; ((N=M=3)); N=$N$M", "33"},
};

TEST(ShellSemantics, AreThoseOfBash) {
  for (const ShellCase& one : kShellCases) {
    const std::vector<SettingsFile> files = {{"run.sh", std::string(one.script) + "\nend \"$N\"\n"}};
    const auto commands = read_script(files);
    ASSERT_TRUE(commands.ok()) << one.script << "\n" << commands.error().message();
    const ShellWord& n = commands->back().words.back();
    EXPECT_EQ(n.text, one.n) << one.script << "\n" << n.unknown;
  }
}

/// What is not known of N behind a script, or the error.
std::string doubt(const std::string& script, const ShellVariables& given = {}) {
  const std::vector<SettingsFile> files = {{"run.sh", script + "\nend \"$N\"\n"}};
  const auto commands = read_script(files, given);
  if (!commands) return commands.error().message();
  const ShellWord& n = commands->back().words.back();
  return n.unknown.empty() ? "is " + n.text : n.unknown;
}

TEST(ShellSemantics, WhatIsNotComputedIsNotKnown) {
  EXPECT_EQ(doubt("N=4\nprintf -v N 8"), "the text that line 2 prints");
  EXPECT_EQ(doubt("N=4; [ -f x ] && ((N++))"), "what comes before && in line 1");
  EXPECT_EQ(doubt("N=4; X=$(cmd); : $((X ? N++ : 0))"), "the arithmetic in line 1, which may set it");
  EXPECT_EQ(doubt("N=4; X=$(cmd); : $((X && (N = 8)))"), "the arithmetic in line 1, which may set it");
  EXPECT_EQ(doubt("N=4; X=$(cmd); ((N += X))"), "the command cmd in line 1");
  EXPECT_EQ(doubt("N=4; let N+=$(cmd)"), "the command cmd in line 1");
  EXPECT_EQ(doubt("set -- $(cmd) 8; N=$2"), "the arguments that line 1 sets");
  EXPECT_EQ(doubt("shift $(cmd); N=$1", {{"1", "a"}}), "the arguments that line 1 shifts");
  EXPECT_EQ(doubt("N=4; if [ -f x ]; then declare -i N; fi; N+=4"),
            "the condition in line 1, which cannot be known without running the script");
  EXPECT_EQ(doubt("N=8; X=$(cmd); case $N in $X) N=4;; esac"), "the case in line 1");
  EXPECT_EQ(doubt("N=8; case $N in @(4|8)) N=4;; esac"), "the case in line 1");
  EXPECT_EQ(doubt("N=8; for ((N = 0; N < 4; N++)); do :; done"), "the loop in line 1");
  EXPECT_EQ(doubt("N=(4); ((N[0]++))"), "an item that line 1 sets");
  EXPECT_EQ(doubt("N=1; while getopts n: opt; do N=$OPTARG; done"), "is 1");
  EXPECT_EQ(doubt("N=1; while getopts n: opt; do N=$OPTARG; done", {{"1", "-n"}, {"2", "8"}}), "the loop in line 1");
}

TEST(ShellSemantics, LaterRoundsOfALoopReadWhatEarlierOnesChanged) {
  EXPECT_EQ(doubt("X=4; N=4; for i in 1 2; do N=$X; X=8; done"), "the loop in line 1");
  EXPECT_EQ(doubt("F=0; N=4; for i in 1 2; do if [ $F = 1 ]; then N=8; fi; F=1; done"), "the loop in line 1");
  EXPECT_EQ(doubt("A=4; B=4; C=4; N=4; while [ -f x ]; do N=$C; C=$B; B=$A; A=8; done"), "the loop in line 1");
  EXPECT_EQ(doubt("X=4; N=4\nfor i in 1 2; do\nfor j in 1 2; do N=$X; done\nX=8\ndone"), "the loop in line 2");
  EXPECT_EQ(doubt("X=0; N=4; until [ $X = 1 ]; do N=8; X=1; done"), "the loop in line 1");
  EXPECT_EQ(doubt("N=4; M=4; while read -r M; do N=$M; done"), "the loop in line 1");
  EXPECT_EQ(doubt("N=4; while N=$M; [ -f x ]; do M=8; done"), "the loop in line 1");
  EXPECT_EQ(doubt("N=0; while ((N++ < 4)); do :; done"), "the loop in line 1");
  EXPECT_EQ(doubt("N=4; until ((N-- < 2)); do :; done"), "the loop in line 1");
  EXPECT_EQ(doubt("declare -i N=4; for i in 1 2; do N+=0; done"), "is 4");
}

TEST(ShellSemantics, CommandsOfALoopAreReadOnce) {
  const std::vector<SettingsFile> files = {{"run.sh", "X=4\nfor i in 1 2; do\nrun $X\nX=8\ndone\nend\n"}};
  const auto commands = read_script(files);
  ASSERT_TRUE(commands.ok()) << commands.error().message();
  ASSERT_EQ(commands->size(), 2u);
  EXPECT_EQ(commands->front().words.back().text, "4");
}

TEST(ShellSemantics, WhatBashRefusesIsRefused) {
  EXPECT_EQ(doubt("N=$((8 * 2**-1))"),
            "run.sh: line 1: the arithmetic has an exponent below 0. Write the number that it stands for.");
  EXPECT_EQ(doubt("N=$((08))"),
            "run.sh: line 1: the arithmetic has '08', which begins with 0 and is no octal number. "
            "Write the number that it stands for.");
  EXPECT_EQ(doubt("N=$((1 + 65#1))"),
            "run.sh: line 1: the arithmetic has a number of a base that is not from 2 to 64. "
            "Write the number that it stands for.");
  EXPECT_EQ(doubt("let 'N=4 4'"),
            "run.sh: line 1: the arithmetic 'N=4 4' does not end where it should. Write the "
            "number that it stands for.");
  EXPECT_NE(doubt("N=$((3**64))").find("larger than 64 bits"), std::string::npos);
  EXPECT_NE(doubt("N=$((1 << 64))").find("shifts by a number"), std::string::npos);
  EXPECT_NE(doubt("N=$((1/0 + 1))").find("divides by zero"), std::string::npos);
}

TEST(ShellSemantics, WhatAUserGivesWinsOverEveryWayToSetIt) {
  for (const char* script : {"N=4",
                             "read N",
                             "read -r M N",
                             "for N in 1 2; do :; done",
                             "unset N",
                             ": ${N:=4}",
                             "((N = 4))",
                             "let N=4",
                             "declare -i N=4",
                             "export N=4",
                             "printf -v N 4",
                             "N[0]=4",
                             "f() { N=4; }",
                             "if [ -f x ]; then N=4; fi",
                             "mapfile N",
                             "N+=1",
                             "N=(4)",
                             "while [ -f x ]; do ((N++)); done",
                             "case $X in a) N=4;; esac",
                             "while getopts a N; do :; done"})
    EXPECT_EQ(doubt(script, {{"N", "8"}}), "is 8") << script;
}

TEST(ShellSemantics, ArgumentsOfTheScriptAreShiftedAndSet) {
  EXPECT_EQ(doubt("TP=$1; shift; N=$1", {{"1", "2"}, {"2", "8"}}), "is 8");
  EXPECT_EQ(doubt("N=$2", {{"2", "8"}}), "is 8");
  EXPECT_EQ(doubt("set -- 4; N=$1", {{"1", "8"}}), "is 4");
  EXPECT_EQ(doubt("f() { shift; }; N=$1", {{"1", "8"}, {"2", "9"}}), "is 8");
  EXPECT_EQ(doubt("while [ $# -gt 0 ]; do shift; done; N=$1", {{"1", "8"}}), "the loop in line 1");
}

}  // namespace
}  // namespace weft
