"""Has CBC (Debian's coinor-cbc) solve what weft shard solves, on layers of several families and meshes.

    check_shard.py DUMP [MODEL[/MODULE]:MESH:NODES:SAMPLES[:SHARE] ...]

DUMP is the program weft_dump_shard. It writes the prices of a layer whose end is the next layer's beginning; the best such ring
is an integer program: a variable for every choice, and for every table of prices a variable for each combination, whose sums over
the others are the choices. A ring of one layer is at least as dear as the mean layer of many, and equal where layers are alike.
With SHARE it is one layer alone under a memory limit, which is one row more of the integer program.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

MODELS = ("llama3-8b", "qwen2.5-7b", "qwen3-8b", "qwen3-30b-a3b", "internvl3-8b/vision")
MESHES = ("tp=8:1:8", "tp=4,dp=2:1:2", "tp=8,dp=2:2:2")
CASES = [f"{model}:{mesh}" for model in MODELS for mesh in MESHES]
CASES += [f"{model}:{mesh}:{share}" for model in MODELS for mesh in MESHES[:2] for share in ("0.5", "0.1")]


def write_program(dump, path):
    rows, objective, binaries, held = [], [], [], []
    for v, variable in enumerate(dump["variables"]):
        names = [f"x{v}_{i}" for i in range(len(variable["costs"]))]
        binaries += names
        rows.append(" + ".join(names) + " = 1")
        objective += [f"{cost:.12g} {name}" for cost, name in zip(variable["costs"], names)]
        held += [(count, name) for count, name in zip(variable["bytes"], names)]
    for t, table in enumerate(dump["tables"]):
        variables = table["variables"]
        options = [dump["variables"][v]["options"] for v in variables]
        sizes = [max(each) + 1 for each in options]
        sums = {(place, i): [] for place, size in enumerate(sizes) for i in range(size)}
        for index, cost in enumerate(table["costs"]):
            choices, left = [], index
            for size in reversed(sizes):
                left, choice = divmod(left, size)
                choices.append(choice)
            choices.reverse()
            # A variable that stands twice in a table has one choice.
            if any(variables[a] == variables[b] and choices[a] != choices[b]
                   for a in range(len(variables)) for b in range(a)):
                continue
            name = f"y{t}_{index}"
            objective.append(f"{cost:.12g} {name}")
            held.append((table["bytes"][index], name))
            for place, choice in enumerate(choices):
                sums[place, choice].append(name)
        for (place, choice), names in sums.items():
            own = [f"x{variables[place]}_{i}" for i, option in enumerate(options[place]) if option == choice]
            rows.append(" + ".join(names) + " - " + " - ".join(own) + " = 0")
    if "memory_bytes" in dump:
        # In shares of the limit, so that the solver's tolerance is one of them.
        limit = dump["memory_bytes"]
        rows.append(" + ".join(f"{count / limit:.12g} {name}" for count, name in held if count > 0) + " <= 1")
    with open(path, "w") as file:
        file.write("Minimize\n obj: " + "\n + ".join(objective) + "\nSubject To\n")
        for number, row in enumerate(rows):
            file.write(f" r{number}: " + row.replace(" + ", "\n + ").replace(" - ", "\n - ") + "\n")
        file.write("Binary\n " + "\n ".join(binaries) + "\nEnd\n")


def solve(path):
    out = subprocess.run(["cbc", path, "ratioGap", "0", "primalTolerance", "1e-9", "seconds", "600", "solve"],
                         capture_output=True, text=True).stdout
    assert "Optimal solution found" in out, out[-2000:]
    return float(next(line for line in out.splitlines() if line.startswith("Objective value:")).split(":")[1])


def main():
    dump_program, cases = sys.argv[1], sys.argv[2:] or CASES
    failed = 0
    for case in cases:
        parts = case.split(":")
        dump = json.loads(subprocess.run([dump_program, *parts], check=True, capture_output=True).stdout)
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "layer.lp")
            write_program(dump, path)
            best = solve(path)
        difference = best / dump["layer_ms"] - 1
        is_same = abs(difference) <= 1e-6 and dump.get("is_optimal", True)
        failed += not is_same
        limit = f" in {dump['memory_bytes'] / 2**30:.3f} GiB" if "memory_bytes" in dump else ""
        print(f"{' '.join(parts[:2])}{limit}: CBC {best:.6f} ms, weft {dump['layer_ms']:.6f} ms a layer ({difference:+.1e})"
              f"{'' if is_same else ' DIFFERS'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
