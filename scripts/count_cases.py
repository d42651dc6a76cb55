"""Says how many cases the suites of a ctest run held, and which were skipped and why: count_cases.py LastTest.log"""

import pathlib
import re
import sys


def main(log):
    text = pathlib.Path(log).read_text(errors="replace")
    ran = sum(int(n) for n in re.findall(r"^\[==========\] (\d+) tests? from \d+ test suites? ran", text, re.M))
    skipped = re.findall(r"^\[  SKIPPED \] (\S+\.\S+) \(\d+ ms\)", text, re.M)
    failed = sorted(set(re.findall(r"^\[  FAILED  \] (\S+?),? ", text, re.M)) - {"1", "2"})
    print(f"cases in these suites: {ran} ran, {len(skipped)} of them skipped themselves")
    if skipped:
        print("skipped, most of them for want of a GPU: " + ", ".join(sorted(set(skipped))))
    for name in failed:
        if "." in name:
            print(f"failed: {name} (alone: scripts/test --case '{name}')")


if __name__ == "__main__":
    main(*sys.argv[1:])
