"""How soon `weft plan` answers, and how soon it has a proof, for every shipped model, cluster and workload.

    plan_matrix.py [--only TEXT]... [--devices N]... [--jobs N] [--mean] [--out FILE]

A problem is run twice: with 2 s, for the first answer, and with 20 s, for the proof or its gap. Problems whose model cannot
take the workload are left out. Prints a line for each, and at the end what takes longest and is furthest from a proof.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST_S, PROOF_S = 2, 20
# Reading files, and the step that is under way when the time is over.
GRACE_S = 1


def names(folder, ending):
    return sorted(path.stem if ending == ".yaml" else path.name.removesuffix(ending)
                  for path in (ROOT / "scenarios" / folder).glob(f"*{ending}"))


def devices_per_node(cluster):
    text = (ROOT / "scenarios" / "clusters" / f"{cluster}.yaml").read_text()
    return int(re.search(r"^devices_per_node:\s*(\d+)", text, re.MULTILINE).group(1))


def problems(devices, only):
    for model in names("models", ".json"):
        for cluster in names("clusters", ".yaml"):
            for workload in names("workloads", ".yaml"):
                for count in devices:
                    nodes, rest = divmod(count, devices_per_node(cluster))
                    name = f"{model} on {count} of {cluster}, {workload}"
                    if nodes == 0 or rest != 0 or not all(text in name for text in only):
                        continue
                    arguments = ["--model", model, "--cluster", cluster, "--workload", workload, "--nodes", str(nodes)]
                    # A step of a large cluster has samples for all of it.
                    yield name, arguments + (["--global-batch", str(4 * count)] if count > 64 else [])


def run(arguments, limit_s):
    """Seconds, and what was found: nothing where nothing fits. None where the problem makes no sense."""
    start = time.perf_counter()
    done = subprocess.run([ROOT / "build" / "weft", "plan", "--json", "--time-limit", str(limit_s), *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode > 1:
        return None
    return seconds, json.loads(done.stdout) if done.returncode == 0 else {}


def measure(name, arguments):
    first = run(arguments, FIRST_S)
    if first is None:
        return None
    # Where two seconds were enough for all of it, they are the answer.
    whole = first if first[0] < FIRST_S else run(arguments, PROOF_S)
    found = whole[1]
    return {"problem": name, "first_s": first[0], "has_first": bool(first[1]), "whole_s": whole[0], "fits": bool(found),
            "optimal": found.get("optimal", True), "gap": 0 if found.get("optimal", True) else found["gap"],
            "step_time_ms": found.get("step_time_ms"), "settings": found.get("settings", "nothing fits")}


def line_of(row):
    proof = "proven" if row["optimal"] else f"gap {100 * row['gap']:.2f} %"
    missing = " (no plan yet)" if row["fits"] and not row["has_first"] else ""
    return (f"{row['problem']}: first answer {row['first_s']:.2f} s{missing}, {proof} after {row['whole_s']:.2f} s: "
            f"{row['settings']}")


def summarise(rows):
    is_late = lambda row: row["first_s"] > FIRST_S + GRACE_S or (row["fits"] and not row["has_first"])
    late = [row for row in rows if is_late(row)]
    overdue = [row for row in rows if row["whole_s"] > PROOF_S + GRACE_S]
    proven = sum(row["optimal"] for row in rows)
    print(f"\n{len(rows)} problems, {sum(row['fits'] for row in rows)} with a plan, {proven} settled; no first answer in "
          f"{FIRST_S} s: {len(late)}; over {PROOF_S} s: {len(overdue)}")
    for title, key in [("latest first answers", "first_s"), ("longest", "whole_s"), ("largest gaps", "gap")]:
        print(f"\n{title}:")
        for row in sorted(rows, key=lambda row: -row[key])[:10]:
            print("  " + line_of(row))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="problems with all of these in their names")
    parser.add_argument("--devices", action="append", type=int, metavar="N", help="default: 8, 128 and 1,024")
    parser.add_argument("--jobs", type=int, default=1, help="problems at a time (default: 1)")
    parser.add_argument("--mean", action="store_true", help="the mean batch instead of drawn ones")
    parser.add_argument("--out", type=pathlib.Path, help="a JSON file for all rows")
    options = parser.parse_args()
    more = ["--batches", "0"] if options.mean else []
    rows = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tasks = [pool.submit(measure, name, arguments + more)
                 for name, arguments in problems(options.devices or [8, 128, 1024], options.only)]
        for task in concurrent.futures.as_completed(tasks):
            row = task.result()
            if row is None:
                continue
            rows.append(row)
            print(line_of(row), flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    if rows:
        summarise(rows)


if __name__ == "__main__":
    main()
