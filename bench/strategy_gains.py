"""What strategies of layers' operators gain by prediction, and what looking for them costs.

    strategy_gains.py [--only TEXT]... [--nodes N]... [--own-batch] [--other PROGRAM] [--time-limit S] [--minutes M] [--out FILE]

Every shipped model, cluster and workload on few nodes, or on as many as --nodes says, is planned twice, in turn: with strategies,
and with `strategies: false` in the space. With --other, another build of the program is run in turn, too, whose processor time is
compared. Problems come in an order that is drawn once for all (plan_matrix.py); --out keeps a line of JSON for each, and a run with
the same file goes on. Times of the processor are compared, because other work makes seconds longer.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from plan_matrix import ROOT, drawn_order, problems

LEAST_GAIN = 1e-4


def run(program, arguments):
    """Seconds of the processor and what was found: nothing where nothing fits. None where the problem makes no sense."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([program, "plan", "--json", *arguments], stdout=output, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode == 2:
            return None
        if process.returncode not in (0, 1):
            raise SystemExit(f"strategy_gains.py: {program} plan {' '.join(arguments)} ended with {process.returncode}")
        output.seek(0)
        return usage.ru_utime + usage.ru_stime, json.load(output) if process.returncode == 0 else {}


def measure(name, arguments, usual_space, other):
    own = ROOT / "build" / "weft"
    runs = {"with": run(own, arguments)}
    if runs["with"] is None:
        return {"problem": name, "makes_sense": False}
    runs["without"] = run(own, [*arguments, "--space", usual_space])
    if other:
        runs["other"] = run(other, arguments)
    row = {"problem": name, "makes_sense": True, "fits": bool(runs["with"][1])}
    for key, (seconds, found) in runs.items():
        row[key] = {"processor_s": seconds, "step_ms": found.get("step_time_ms"), "settings": found.get("settings"),
                    "optimal": found.get("optimal")}
    strategy = runs["with"][1].get("strategy", {})
    if strategy:
        plan = runs["with"][1]["plan"]["modules"]
        row["strategy"] = {"modules": {module: plan[module]["strategy"]["blocks"] for module in plan if "strategy" in plan[module]},
                           "usual_ms": strategy["usual_ms"]}
    return row


def gain_of(row, before="without"):
    return 1 - row["with"]["step_ms"] / row[before]["step_ms"]


def line_of(row):
    if not row["fits"]:
        return f"{row['problem']}: nothing fits"
    modules = ", ".join(row.get("strategy", {}).get("modules", {})) or "none"
    text = (f"{row['problem']}: {row['without']['step_ms']:.1f} -> {row['with']['step_ms']:.1f} ms ({100 * gain_of(row):.2f} % less), "
            f"strategies: {modules}; {row['without']['processor_s']:.2f} -> {row['with']['processor_s']:.2f} s")
    if "other" in row:
        text += f" ({row['other']['processor_s']:.2f} s and {row['other']['step_ms']:.1f} ms by the other program)"
    return text + f": {row['with']['settings']}"


def is_settled(row):
    """Whether the searches without strategies ran to their end: proven, and the same plan by both programs. What --time-limit cuts
    off, on a busy machine soon, differs from run to run and says nothing of strategies."""
    before = [row[key] for key in ("without", "other") if key in row]
    return all(run["optimal"] and abs(run["step_ms"] / before[0]["step_ms"] - 1) < 1e-9 for run in before)


def summarise(rows):
    rows = [row for row in rows if row["makes_sense"] and row["fits"]]
    all_rows, rows = rows, [row for row in rows if all(row[key]["step_ms"] for key in ("without", "other") if key in row)]
    rows = [row for row in rows if is_settled(row)]
    print(f"{len(all_rows)} with a plan, {len(rows)} of these searched to the end without strategies; the others are not compared")
    if not rows:
        return
    for before in ("without", "other"):
        known = [row for row in rows if before in row]
        if not known:
            continue
        gains = [gain_of(row, before) for row in known]
        by_strategy = [gain_of(row, before) for row in known if "strategy" in row]
        ratios = [row["with"]["processor_s"] / row[before]["processor_s"] for row in known]
        sums = [sum(row[key]["processor_s"] for row in known) for key in ("with", before)]
        print(f"\nagainst {before}: {len(known)} problems; faster with a strategy on {sum(g > LEAST_GAIN for g in by_strategy)}, by 3 % or "
              f"more on {sum(g >= 0.03 for g in by_strategy)}, at most by {100 * max(by_strategy, default=0):.2f} %; slower on "
              f"{sum(g < -LEAST_GAIN for g in gains)}; processor time of all {sums[0]:.1f} s against {sums[1]:.1f} s "
              f"({100 * (sums[0] / sums[1] - 1):+.1f} %), of the median problem {100 * (statistics.median(ratios) - 1):+.1f} %")
    with_strategy = [row for row in rows if "strategy" in row]
    print(f"\n{len(with_strategy)} plans have a strategy:")
    for row in sorted(with_strategy, key=lambda row: -gain_of(row)):
        print("  " + line_of(row))
        for module, blocks in row["strategy"]["modules"].items():
            for kind, entries in blocks.items():
                words = ", ".join(f"{op} {word['tp']}" for op, word in entries.items()) or "as usual, rows kept"
                print(f"    {module} {kind}: {words}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="problems with all of these in their names")
    parser.add_argument("--nodes", action="append", type=int, metavar="N", help="default: 1, 2 and 4")
    parser.add_argument("--own-batch", action="store_true",
                        help="above 64 devices, too, a step has the workload's samples, not four for each device")
    parser.add_argument("--other", type=pathlib.Path, metavar="PROGRAM", help="another build to compare with")
    parser.add_argument("--time-limit", type=float, default=10, metavar="S")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no problem after so long")
    parser.add_argument("--out", type=pathlib.Path, help="a file with a line of JSON for each problem, which is gone on with")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    options = parser.parse_args()
    counts = sorted({nodes * per_node for nodes in options.nodes or [1, 2, 4] for per_node in (8, 16)})
    chosen = [(name, arguments) for name, arguments in problems(counts, options.only, options.own_batch)
              if int(arguments[arguments.index("--nodes") + 1]) in (options.nodes or [1, 2, 4])]
    chosen.sort(key=drawn_order)
    known = {}
    if options.out and options.out.exists():
        known = {row["problem"]: row for row in map(json.loads, options.out.read_text().splitlines())}
    rows = [known[name] for name, _ in chosen if name in known]
    end = time.monotonic() + 60 * options.minutes
    more = ["--fastest", "--batches", "0", "--time-limit", str(options.time_limit)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as space:
        space.write("strategies: false\n")
        space.flush()
        for name, arguments in [] if options.summary else chosen:
            if name in known or time.monotonic() >= end:
                continue
            row = measure(name, arguments + more, space.name, options.other)
            rows.append(row)
            if options.out:
                with options.out.open("a") as out:
                    out.write(json.dumps(row) + "\n")
            if row["makes_sense"]:
                print(line_of(row), flush=True)
    print(f"{len(rows)} of {len(chosen)} problems")
    summarise(rows)


if __name__ == "__main__":
    main()
