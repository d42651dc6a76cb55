"""Measures strategies of a transformer layer on two cores and says how well their prices, with a profile, rank them.

  cmake --build build --target weft_strategy_order
  python3 bench/strategy_order.py build/bench/weft_strategy_order --seconds 200
  python3 bench/strategy_order.py --read strategies.json           the figures of an earlier run
"""

import argparse
import collections
import json
import math
import os
import pathlib
import statistics
import subprocess

from rank_agreement import Agreement, log_ratio


def figures_of(document, price="predicted_ms"):
    """By strategy, the figures of its rounds and that of its price, both over the reference's."""
    strategies = document["strategies"]
    reference = next(own[price] for own in strategies if own["name"] == document["reference"])
    measured = collections.defaultdict(list)
    for run in sorted(document["runs"], key=lambda run: run["round"]):
        name = strategies[run["strategy"]]["name"]
        measured[name].append(log_ratio(run["steps_ms"], run["reference_before_ms"], run["reference_after_ms"]))
    predicted = {own["name"]: log_ratio([own[price]], [reference], [reference]) for own in strategies}
    return measured, predicted


def chosen_over_best(found):
    """How much longer the strategy with the least price takes than the fastest measured."""
    return found.slower_than_best(1)


def print_figures(document):
    measured, predicted = figures_of(document)
    found = Agreement(measured, predicted)
    prices = {own["name"]: own for own in document["strategies"]}
    steps = collections.defaultdict(list)
    for run in document["runs"]:
        steps[document["strategies"][run["strategy"]]["name"]] += run["steps_ms"]
    print("| strategy, by price | step, ms | price, ms | of it exchanged | measured | priced | too slow by |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in found.by_prediction:
        print(f"| {name} | {statistics.median(steps[name]):.2f} | {prices[name]['predicted_ms']:.2f} | {prices[name]['exchanged_ms']:.2f} | "
              f"{math.exp(found.measured[name]):.3f} | {math.exp(predicted[name]):.3f} | {100 * found.error[name]:+.1f} % |")
    errors = [abs(error) for error in found.error.values()]
    rounds = max(len(own) for own in measured.values())
    print(f"\n{len(found.names)} strategies in {rounds} rounds, {document['seconds']:.0f} s in all, {document['profile_s']:.0f} s of them for the profile; the slowest takes "
          f"{math.exp(max(found.measured.values()) - found.measured[found.best]):.2f} times as long as the fastest")
    reference = [statistics.mean(run["reference_before_ms"]) for run in document["runs"]]
    print(f"the reference took {min(reference):.1f} to {max(reference):.1f} ms, {statistics.median(reference):.1f} in the middle; its price is {prices[document['reference']]['predicted_ms']:.1f} ms")
    print(f"prices are off by {100 * (math.exp(found.common_error) - 1):+.1f} % beside the reference's, and beyond that by {100 * statistics.mean(errors):.1f} % on average, "
          f"{100 * max(errors):.1f} % at most")
    print(f"a round's figure has a standard deviation of {100 * found.round_spread:.1f} %; two strategies are apart beyond {100 * found.noise:.1f} % (95 %)")
    if found.halves is not None:
        print(f"Kendall of the measurement with itself, half of the rounds against the others: {found.halves:.2f}")
    formula = Agreement(*figures_of(document, "formula_ms"))
    print(f"Kendall's tau of the {found.num_apart} pairs further apart than the noise {found.kendall_apart:.2f} (by formulas alone {formula.kendall_apart:.2f}); "
          f"tau-b of all {found.num_pairs} pairs {found.kendall:.2f} ({formula.kendall:.2f})")
    print(f"the strategy with the least price takes {100 * chosen_over_best(found):.1f} % longer than the fastest measured (by formulas alone {100 * chosen_over_best(formula):.1f} %)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", type=pathlib.Path)
    parser.add_argument("--read", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("strategies.json"))
    for name, usual in (("seconds", 200), ("rounds", 9), ("strategies", 30), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    if options.read is None:
        if options.program is None:
            parser.error("give the benchmark's program, or --read with the file of a run")
        settings = [word for name in ("seconds", "rounds", "strategies", "seed") for word in (f"--{name}", str(getattr(options, name)))]
        subprocess.run([options.program, *settings, "--out", options.out], check=True, env=os.environ)
    print_figures(json.loads((options.read or options.out).read_text()))


if __name__ == "__main__":
    main()
