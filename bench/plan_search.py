"""How long `weft plan` takes on the cases of RESULTS.md, whole command, one core: plan_search.py [RUNS]

Prints the median and the slowest of some runs, the peak memory, and what was found.
"""

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
VL72 = ["--model", "qwen2-vl-72b", "--cluster", "ascend_910b_16", "--workload", "vl_sft"]
OMNI = ["--model", "qwen2.5-omni-7b", "--nodes", "1", "--workload", "omni_short", "--global-batch", "256"]
PROBLEMS = {
    "72B, 128 devices": VL72 + ["--nodes", "8", "--global-batch", "1024"],
    "72B, 1,024 devices": VL72 + ["--nodes", "64", "--global-batch", "4096"],
    "72B, 16,384 devices": VL72 + ["--nodes", "1024", "--global-batch", "16384"],
    "Omni 7B, 8 devices": OMNI + ["--cluster", "hgx_h200"],
    "Omni 7B, 8 devices of 910B": OMNI + ["--cluster", "ascend_910b_8"],
}
CASES = {f"{name}, {batches}": arguments + more for name, arguments in PROBLEMS.items()
         for batches, more in [("mean batch", ["--batches", "0"]), ("drawn batches", [])]}


def run(arguments):
    start = time.perf_counter()
    out = subprocess.run([ROOT / "build" / "weft", "plan", "--json", *arguments], stdout=subprocess.PIPE, check=True).stdout
    return time.perf_counter() - start, json.loads(out)


def main(runs=5):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name, arguments in CASES.items():
        seconds, found = zip(*(run(arguments) for _ in range(runs)))
        result = found[0]
        assert all(other["plan"] == result["plan"] for other in found), "the same inputs gave different plans"
        peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        proof = "optimal" if result["optimal"] else f"gap {100 * result['gap']:.2f} %"
        print(f"{name}: median {statistics.median(seconds):.2f} s, slowest of {runs} {max(seconds):.2f} s, at most "
              f"{peak_mib:.0f} MiB so far; {result['space_size']:,} candidates, {result['step_time_ms']:.1f} ms, {proof}: "
              f"{result['settings']}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
