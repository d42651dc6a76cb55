"""How soon `weft plan` answers, and how soon it has a proof, for every shipped model, cluster and workload.

    plan_matrix.py [--only TEXT]... [--devices N]... [--jobs N] [--minutes M] [--skip N] [--mean] [--out FILE]

A problem is run twice: with 2 s, for the first answer, and with 20 s, for the proof or its gap. Problems whose model cannot
take the workload are left out. Prints a line for each, and at the end what takes longest and is furthest from a proof.

All of it takes hours. --out keeps a line of JSON for each problem, and a run with the same file goes on where the last one
ended; --minutes ends a run after so long. Problems come in an order that is drawn once for all, so that what has been run is
a fair sample of the whole; --skip leaves the first N out, for a sample of others. --summary only reads the file.
On a machine that does other work too, what a first answer takes of the processor says more than its seconds.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
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


def problems(devices, only, own_batch=False):
    """Names and arguments of `weft plan`. With `own_batch` a step has the workload's samples on large clusters, too, which are
    fewer than devices on some."""
    for model in names("models", ".json"):
        for cluster in names("clusters", ".yaml"):
            for workload in names("workloads", ".yaml"):
                for count in devices:
                    nodes, rest = divmod(count, devices_per_node(cluster))
                    name = f"{model} on {count} of {cluster}, {workload}" + (" with its own samples" if own_batch else "")
                    if nodes == 0 or rest != 0 or not all(text in name for text in only):
                        continue
                    arguments = ["--model", model, "--cluster", cluster, "--workload", workload, "--nodes", str(nodes)]
                    # A step of a large cluster has samples for all of it.
                    is_larger = count > 64 and not own_batch
                    yield name, arguments + (["--global-batch", str(4 * count)] if is_larger else [])


def drawn_order(problem):
    return hashlib.md5(problem[0].encode()).hexdigest()


def run(arguments, limit_s):
    """Seconds, those of the processor, and what was found: nothing where nothing fits. None where the problem makes no sense."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([ROOT / "build" / "weft", "plan", "--json", "--time-limit", str(limit_s), *arguments],
                                   stdout=output, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
        if process.returncode == 2:
            return None
        if process.returncode not in (0, 1):
            raise SystemExit(f"plan_matrix.py: build/weft plan {' '.join(arguments)} ended with {process.returncode}; try it by itself")
        output.seek(0)
        found = json.load(output) if process.returncode == 0 else {}
    return seconds, usage.ru_utime + usage.ru_stime, found


def measure(name, arguments):
    first = run(arguments, FIRST_S)
    if first is None:
        return {"problem": name, "makes_sense": False}
    # Where two seconds were enough for all of it, they are the answer. A search that its time ends does so a little before.
    whole = first if first[0] < FIRST_S and first[2].get("optimal", True) else run(arguments, PROOF_S)
    found = whole[2]
    return {"problem": name, "makes_sense": True, "first_s": first[0], "first_processor_s": first[1],
            "has_first": bool(first[2]), "whole_s": whole[0],
            "processor_s": whole[1], "fits": bool(found), "optimal": found.get("optimal", True),
            "gap": 0 if found.get("optimal", True) else found["gap"], "step_time_ms": found.get("step_time_ms"),
            "settings": found.get("settings", "nothing fits")}


def line_of(row):
    proof = "proven" if row["optimal"] else f"gap {100 * row['gap']:.2f} %"
    missing = " (no plan yet)" if row["fits"] and not row["has_first"] else ""
    return (f"{row['problem']}: first answer {row['first_s']:.2f} s ({row['first_processor_s']:.2f} s of the "
            f"processor){missing}, {proof} after {row['whole_s']:.2f} s "
            f"({row['processor_s']:.2f} s of the processor): {row['settings']}")


def summarise(rows, num_problems):
    num_known = len(rows)
    rows = [row for row in rows if row["makes_sense"]]
    if not rows:
        return
    is_late = lambda row: row["first_s"] > FIRST_S + GRACE_S or (row["fits"] and not row["has_first"])
    late = [row for row in rows if is_late(row)]
    overdue = [row for row in rows if row["whole_s"] > PROOF_S + GRACE_S]
    fitting = [row for row in rows if row["fits"]]
    proven = [row for row in fitting if row["optimal"]]
    gaps = sorted(row["gap"] for row in fitting)
    print(f"\n{num_known} of {num_problems} problems, {len(rows)} of which make sense, {len(fitting)} with a plan, {len(proven)} of "
          f"these proven ({100 * len(proven) / max(1, len(fitting)):.0f} %); no first answer in {FIRST_S} s: {len(late)}; over "
          f"{PROOF_S} s: {len(overdue)}")
    if gaps:
        shares = ", ".join(f"{share} %: {100 * gaps[min(len(gaps) - 1, share * len(gaps) // 100)]:.1f} %" for share in (75, 90, 95, 99))
        print(f"gaps below which a share of the plans lies: {shares}")
    for title, key in [("latest first answers", "first_s"), ("most of the processor for a first answer", "first_processor_s"),
                       ("longest", "whole_s"), ("largest gaps", "gap")]:
        print(f"\n{title}:")
        for row in sorted(rows, key=lambda row: -row[key])[:10]:
            print("  " + line_of(row))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="problems with all of these in their names")
    parser.add_argument("--devices", action="append", type=int, metavar="N", help="default: 8, 128 and 1,024")
    parser.add_argument("--jobs", type=int, default=1, help="problems at a time (default: 1)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no problem after so long")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave the first N of the order out")
    parser.add_argument("--mean", action="store_true", help="the mean batch instead of drawn ones")
    parser.add_argument("--out", type=pathlib.Path, help="a file with a line of JSON for each problem, which is gone on with")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    options = parser.parse_args()
    more = ["--batches", "0"] if options.mean else []
    chosen = sorted(problems(options.devices or [8, 128, 1024], options.only), key=drawn_order)[options.skip:]
    known = {}
    if options.out and options.out.exists():
        for line in options.out.read_text().splitlines():
            row = json.loads(line)
            known[row["problem"]] = row
    rows = [known[name] for name, _ in chosen if name in known]
    end = time.monotonic() + 60 * options.minutes

    def measure_in_time(name, arguments):
        return measure(name, arguments + more) if time.monotonic() < end else None

    left = [] if options.summary else [problem for problem in chosen if problem[0] not in known]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for task in concurrent.futures.as_completed([pool.submit(measure_in_time, *problem) for problem in left]):
            row = task.result()
            if row is None:
                continue
            rows.append(row)
            if options.out:
                with options.out.open("a") as out:
                    out.write(json.dumps(row) + "\n")
            if row["makes_sense"]:
                print(line_of(row), flush=True)
    summarise(rows, len(chosen))


if __name__ == "__main__":
    main()
