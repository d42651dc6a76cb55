"""Has CBC (Debian's coinor-cbc) solve what weft shard solves, on layers of several families and meshes.

    check_shard.py DUMP [MODEL:MESH:NODES:SAMPLES ...]

DUMP is the program weft_dump_shard. It writes the prices of a layer whose end is the next layer's beginning; the best such ring
is an integer program: a variable for every choice, and for every table of prices a variable for each combination, whose sums over
the others are the choices. A ring of one layer is at least as dear as the mean layer of many, and equal where layers are alike.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

CASES = [f"{model}:{mesh}" for model in ("llama3-8b", "qwen2.5-7b", "qwen3-8b", "qwen3-30b-a3b")
         for mesh in ("tp=8:1:8", "tp=4,dp=2:1:2", "tp=8,dp=2:2:2")]


def write_program(dump, path):
    rows, objective, binaries = [], [], []
    for v, variable in enumerate(dump["variables"]):
        names = [f"x{v}_{i}" for i in range(len(variable["costs"]))]
        binaries += names
        rows.append(" + ".join(names) + " = 1")
        objective += [f"{cost:.12g} {name}" for cost, name in zip(variable["costs"], names)]
    for t, table in enumerate(dump["tables"]):
        variables = table["variables"]
        sizes = [len(dump["variables"][v]["costs"]) for v in variables]
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
            for place, choice in enumerate(choices):
                sums[place, choice].append(name)
        for (place, choice), names in sums.items():
            rows.append(" + ".join(names) + f" - x{variables[place]}_{choice} = 0")
    with open(path, "w") as file:
        file.write("Minimize\n obj: " + "\n + ".join(objective) + "\nSubject To\n")
        for number, row in enumerate(rows):
            file.write(f" r{number}: " + row.replace(" + ", "\n + ") + "\n")
        file.write("Binary\n " + "\n ".join(binaries) + "\nEnd\n")


def solve(path):
    out = subprocess.run(["cbc", path, "ratioGap", "0", "seconds", "600", "solve"], capture_output=True, text=True).stdout
    assert "Optimal solution found" in out, out[-2000:]
    return float(next(line for line in out.splitlines() if line.startswith("Objective value:")).split(":")[1])


def main():
    dump_program, cases = sys.argv[1], sys.argv[2:] or CASES
    failed = 0
    for case in cases:
        model, mesh, nodes, samples = case.split(":")
        dump = json.loads(subprocess.run([dump_program, model, mesh, nodes, samples], check=True, capture_output=True).stdout)
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "layer.lp")
            write_program(dump, path)
            best = solve(path)
        difference = best / dump["layer_ms"] - 1
        failed += difference < -1e-6 or difference > 1e-6
        print(f"{model} {mesh}: CBC {best:.6f} ms, weft {dump['layer_ms']:.6f} ms a layer ({difference:+.1e})", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
