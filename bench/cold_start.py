"""How long verbs that need no tensors take from start to end, beside the shortest program there is: cold_start.py [RUNS]

All are started in turn, so that the machine's noise falls on all alike. Prints medians and their ratio.
"""

import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEFT = ROOT / "build" / "weft"
COMMANDS = {
    "/bin/true": ["/bin/true"],
    "describe qwen2-vl-72b": [WEFT, "describe", "--model", "qwen2-vl-72b", "--json"],
    "check a plan of 16,384 ranks": [WEFT, "check", "--plan", ROOT / "scenarios" / "plans" / "qwen2-vl-72b_16384.json"],
}


def milliseconds(command):
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1e3


def main(runs=100):
    samples = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, command in COMMANDS.items():
            samples[name].append(milliseconds(command))
    shortest = statistics.median(samples["/bin/true"])
    for name, times in samples.items():
        median = statistics.median(times)
        print(f"{name}: median {median:.2f} ms, slowest of {runs} {max(times):.2f} ms, {median / shortest:.1f} x /bin/true")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
