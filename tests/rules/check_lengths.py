"""Fails on a source file of more than 800 lines in weft, tests or bench: check_lengths.py ROOT"""

import pathlib
import sys

MOST_LINES = 800
FOLDERS = ("weft", "tests", "bench")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh", ".py", ".cmake")


def violations(root):
    for folder in FOLDERS:
        for source in sorted((root / folder).rglob("*")):
            if source.suffix not in SUFFIXES and source.name != "CMakeLists.txt":
                continue
            num_lines = len(source.read_text().splitlines())
            if num_lines > MOST_LINES:
                yield f"{source.relative_to(root)}: has {num_lines} lines, more than {MOST_LINES}: give its parts files of their own"


def main(root):
    found = list(violations(pathlib.Path(root)))
    print("\n".join(found) or f"no source file has more than {MOST_LINES} lines")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main(sys.argv[1])
