"""How long `weft describe` takes from start to end, beside the shortest program there is: cold_start.py [RUNS]

Both are started in turn, so that the machine's noise falls on both alike. Prints medians and their ratio.
"""

import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def milliseconds(command):
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1e3


def main(runs=100):
    describe = [ROOT / "build" / "weft", "describe", "--model", "qwen2-vl-72b", "--json"]
    samples = [(milliseconds(describe), milliseconds(["/bin/true"])) for _ in range(runs)]
    weft, nothing = (statistics.median(column) for column in zip(*samples))
    slowest = max(first for first, _ in samples)
    print(f"weft describe --model qwen2-vl-72b: median {weft:.2f} ms, slowest of {runs} {slowest:.2f} ms")
    print(f"/bin/true: median {nothing:.2f} ms; ratio {weft / nothing:.1f}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
