"""Runs the examples of the documents and compares what they print: check_examples.py ROOT PROGRAM [--update]

--update writes what they print into the documents.

An example is a ```console block: a line "$ weft ..." (or "$ build/weft ...") and then exactly what it prints.
Where the output is long, a line "..." stands for any lines. The commands of a ```sh block whose lines all call weft are
run one after the other in a folder of their own that sees the tree, and must succeed.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```console\n(.*?)^```", re.S | re.M)
SCRIPT = re.compile(r"^```sh\n((?:(?:build/)?weft .*\n)+)^```", re.M)
COMMAND = re.compile(r"^\$ (?:build/)?weft (.*)$", re.M)


def matches(expected, printed):
    pattern = "".join(".*" if line == "..." else re.escape(line) + "\n" for line in expected.splitlines())
    return re.fullmatch(pattern, printed, re.S) is not None


def run_script(root, program, script):
    """What went wrong, if anything did."""
    with tempfile.TemporaryDirectory() as folder:
        for entry in root.resolve().iterdir():
            if not entry.name.startswith("build"):
                (pathlib.Path(folder) / entry.name).symlink_to(entry)
        for line in script.splitlines():
            command = re.sub(r"^(build/)?weft", str(program), line)
            run = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
            if run.returncode != 0:
                return f"$ {line}\nexits with {run.returncode}: {run.stderr}"
    return ""


def main(root, program, mode=""):
    root, program = pathlib.Path(root), pathlib.Path(program).resolve()
    num_run, failures = 0, []
    for document in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = document.read_text()
        for script in SCRIPT.findall(text):
            num_run += 1
            if problem := run_script(root, program, script):
                failures.append(f"{document}: {problem}")
        for block in BLOCK.findall(text):
            starts = list(COMMAND.finditer(block))
            for i, start in enumerate(starts):
                end = starts[i + 1].start() if i + 1 < len(starts) else len(block)
                expected = block[start.end() + 1:end]
                run = subprocess.run(f"{program} {start.group(1)}", shell=True, cwd=root, capture_output=True, text=True)
                printed = run.stdout + run.stderr
                num_run += 1
                if not matches(expected, printed):
                    failures.append(f"{document}: $ weft {start.group(1)}\nprints\n{printed}and not\n{expected}")
                    text = text.replace(start.group(0) + "\n" + expected, start.group(0) + "\n" + printed)
        if mode == "--update":
            document.write_text(text)
    print("\n".join(failures) or f"{num_run} examples print what the documents say")
    sys.exit(1 if failures or num_run == 0 else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
