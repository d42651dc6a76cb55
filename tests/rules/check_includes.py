"""Fails on an include that weft/folders.txt does not allow: check_includes.py ROOT

A folder may include itself, base, and what it may use, transitively. Nothing above the LibTorch line may include torch.
Of the folders below the line, cli (which is torch-free and may include any folder's torch-free header) sees *_api.h only.
Only cli prints to standard output or ends the process. What lies in tests/support/FOLDER may use what FOLDER may, and
is used by tests of folders that may use FOLDER.
"""

import pathlib
import re
import sys

TORCH = re.compile(r'#\s*include\s*[<"](torch|ATen|c10|caffe2)/')
OWN = re.compile(r'#\s*include\s*[<"]weft/(\w+)/([^>"]+)[>"]')
SUPPORT = re.compile(r'#\s*include\s*"tests/support/(?:(\w+)/)?')
RELATIVE = re.compile(r'#\s*include\s*"(?!weft/|tests/support/)')
PRINTS = re.compile(r"\bstd::(cout|cerr|clog|exit|quick_exit|abort|terminate)\b|[^_\w](exit|abort)\(|"
                    r"\bf?(printf|puts|putc)\(|\bfmt::print\(|\bstd(out|err)\b")


def read_folders(path):
    allowed, below_line, is_below = {}, set(), False
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("---"):
            is_below = True
        elif line:
            name, *uses = line.split()
            unknown = [use for use in uses if use not in allowed]
            if unknown:
                sys.exit(f"{path}: {name} uses {unknown}, which are not listed above it")
            allowed[name] = {name, "base"}.union(uses, *(allowed[use] for use in uses))
            if is_below:
                below_line.add(name)
    return allowed, below_line


def violations(root):
    allowed, below_line = read_folders(root / "weft" / "folders.txt")
    support = root / "tests" / "support"
    sources = [p for p in sorted((root / "weft").rglob("*")) + sorted(support.glob("*/*"))
               if p.suffix in (".h", ".cpp", ".cu", ".cuh")]
    for source in sources:
        is_support = source.is_relative_to(support)
        folder = source.relative_to(support if is_support else root / "weft").parts[0]
        if folder not in allowed and (folder != "cli" or is_support):
            yield f"{source}: the folder {folder} is not in weft/folders.txt"
            continue
        is_test = is_support or source.name.endswith("_test.cpp")
        for number, line in enumerate(source.read_text().splitlines(), 1):
            where = f"{source.relative_to(root)}:{number}"
            if folder not in below_line and TORCH.search(line):
                yield f"{where}: {folder} is above the LibTorch line and includes torch"
            if RELATIVE.search(line):
                yield f"{where}: includes of the project start with weft/"
            if match := SUPPORT.search(line):
                used = match.group(1)
                if source.suffix == ".cpp" and not is_test:
                    yield f"{where}: only tests and their headers may include tests/support"
                elif used and used not in allowed.get(folder, ()):
                    yield f"{where}: {folder} may not use {used}"
            if match := OWN.search(line):
                used, header = match.groups()
                if folder == "cli":
                    if used in below_line and not header.endswith("_api.h"):
                        yield f"{where}: cli is torch-free and may include only an *_api.h of {used}"
                elif used not in allowed[folder]:
                    yield f"{where}: {folder} may not use {used}"
            if folder != "cli" and not is_test and PRINTS.search(line.split("//")[0]):
                yield f"{where}: only cli prints and exits"


def main(root):
    found = list(violations(pathlib.Path(root)))
    print("\n".join(found) or "every include follows weft/folders.txt")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main(sys.argv[1])
