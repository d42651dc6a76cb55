"""Runs GoogleTest cases wherever they are: run_cases.py PATTERN LIST ...

PATTERN is one of GoogleTest's (Suite.Case, with * and ?); a LIST is what cmake/list_suites.cmake wrote for a program.
"""

import fnmatch
import pathlib
import re
import subprocess
import sys


def main(pattern, *lists):
    suite_pattern = pattern.split(".")[0]
    programs = []
    for path in lists:
        text = pathlib.Path(path).read_text()
        suites = re.findall(r"^# cases (\S+) \d+$", text, re.M)
        if any(fnmatch.fnmatchcase(suite, suite_pattern) for suite in suites):
            programs.append(re.search(r"add_test\(\[=\[.*?\]=\] \[=\[(.*?)\]=\]", text).group(1))
    if not programs:
        sys.exit(f"scripts/test: no suite is called {suite_pattern}; 'ctest --test-dir build/all-tests -N' lists them")
    failed = [p for p in programs if subprocess.run([p, f"--gtest_filter={pattern}"]).returncode != 0]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
