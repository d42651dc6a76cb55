"""Fails on a line of code outside a family's folder that names the family: check_families.py ROOT

Families are those of weft/families/registry.cpp, each with a folder of its own. What is not code that must do without their
names: comments, tests, the registry, the names of scenarios, and weft/exchange, where other systems call models by names.
So must words of file formats that happen to be made of such names. A model that its user wrote as a program is read like one of a
family and is of none: "program" is a word of Weft's own.
"""

import pathlib
import re
import sys

SUFFIXES = (".h", ".cpp", ".cu", ".cuh", ".inc")
LISTED = re.compile(r"\badd\((\w+)\)")
COMMENT = re.compile(r"(?<![:\"])//.*")
BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
FORMAT_WORDS = {"weft/families/parts/llm_numbers.cpp": "llama3"}  # a kind of rope, whatever the family
NO_FAMILY = "own_program"
LEAST_LETTERS = 4  # of a word of a family's name that says by itself which is meant


def family_folders(root):
    registry = root / "weft" / "families" / "registry.cpp"
    names = [name for name in LISTED.findall(registry.read_text()) if (registry.parent / name).is_dir()]
    if not names:
        sys.exit(f"{registry}: lists no family that has a folder")
    return names


def pattern_of(names):
    """Finds a name however it is written (qwen2_vl, Qwen2-VL, kQwen2Vl), and the words that it is made of."""
    found = set()
    for name in names:
        pieces = re.findall(r"[a-z]+|\d+", name)
        found.add(r"[-_. ]?".join(pieces))
        found.update(piece for piece in pieces if len(piece) >= LEAST_LETTERS and piece.isalpha())
    return re.compile("|".join(sorted(found, key=len, reverse=True)), re.IGNORECASE)


def scenario_names(root):
    names = {path.stem for path in (root / "scenarios").rglob("*") if path.is_file()}
    return re.compile("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or r"(?!)")


def violations(root):
    names = family_folders(root)
    families, scenarios = root / "weft" / "families", scenario_names(root)
    pattern = pattern_of([name for name in names if name != NO_FAMILY])
    free = [families / name for name in names] + [root / "weft" / "exchange"]
    for source in sorted((root / "weft").rglob("*")):
        if source.suffix not in SUFFIXES or source.stem.endswith("_test") or source == families / "registry.cpp":
            continue
        if any(folder in source.parents for folder in free):
            continue
        text = BLOCK_COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), source.read_text())
        for number, line in enumerate(text.splitlines(), 1):
            code = COMMENT.sub("", line)
            word = FORMAT_WORDS.get(source.relative_to(root).as_posix())
            named = pattern.search(scenarios.sub("", code.replace(word, "") if word else code))
            if named:
                yield (f"{source.relative_to(root)}:{number}: names the family '{named.group()}': what is a family's own is "
                       "declared in its folder")


def main(root):
    found = list(violations(pathlib.Path(root)))
    print("\n".join(found) or "no line of code outside a family's folder names the family")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main(sys.argv[1])
