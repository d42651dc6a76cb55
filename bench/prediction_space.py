"""All plans of a space of two ranks, measured and predicted: prediction_error.py space [--workers N] [--rounds N] [--seconds S] [--out FILE]

The space is what somebody with two ranks and the small vision-language model would let `weft plan` choose from: every way to use two ranks (dp, dp with
ZeRO 3, tp with sequence parallelism, cp, pp by two schedules; the encoder beside the llm), every micro-batch that divides the batch for all of them, the
llm's layers kept or recomputed, and the encoder in the pipeline or beside it where that is another plan. Left out are settings that change nothing here
but names: ZeRO 1 and 2 (two ranks of one memory), a colocated encoder with the llm's own degrees where there is no pipeline (the same work in the same
order), recomputed attention alone (hundredths of a step at these lengths).

A round runs every plan once, in another order each round, and the reference plan before and after each. A figure is a run over its two references, step by
step, since all runs take in the same batches; of a plan, the median over rounds. Predictions are made with one profile for the very samples that ran, and are
divided by the prediction of the reference. The profile is taken by all workers at once, so that it has the load that runs have: medians over workers.

Everything goes into a file, from which --analyse FILE prints the same again: steps of every run and of its references, predictions, parts and actions of
steps as `weft validate` compares them, plans, the profile, and a whole run of each plan (--predict-again FILE: by the program as it is now).
"""

import collections
import itertools
import json
import math
import os
import pathlib
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from prediction_runs import KEEP, core_pairs, config_of, in_workers, llm, make_plan, physical_cores, small_models, two_cores
from rank_agreement import Agreement, log_ratio

WARM_UP_STEPS = 1
MICRO_BATCHES = (1, 2, 4)
RECOMPUTE = {"kept": KEEP, "recomputed": "full"}
INLINE, BEFORE = {"placement": ["inline"]}, {"placement": ["colocated"], "form": ["before"], "tp": 1, "mbs_scale": 1}
# name: degrees of the llm, schedule, encoders
WAYS = {
    "dp 2": (llm(dp=2), "1f1b", INLINE),
    "dp 2, ZeRO 3": (llm(dp=2, zero=3), "1f1b", INLINE),
    "tp 2": (llm(tp=2, sequence_parallel=True), "1f1b", INLINE),
    "tp 2, encoder tp 1": (llm(tp=2, sequence_parallel=True), "1f1b", BEFORE),
    "cp 2": (llm(cp=2), "1f1b", INLINE),
    "pp 2, 1f1b": (llm(pp=2), "1f1b", INLINE),
    "pp 2, 1f1b, encoder before": (llm(pp=2), "1f1b", BEFORE),
    "pp 2, zb_h1": (llm(pp=2), "zb_h1", INLINE),
    "pp 2, zb_h1, encoder before": (llm(pp=2), "zb_h1", BEFORE),
    "encoder beside": (llm(dp=1), "1f1b", {"placement": ["disjoint"], "ranks": 1}),
}
REFERENCE = {"way": "dp 2", "mbs": 2, "recompute": "kept"}
# Half of the usual lengths: a step is short enough for several rounds.
WORKLOAD = {"global_batch_samples": 8, "text_tokens": {"values": [32, 64, 96], "weights": [0.3, 0.4, 0.3]}, "images_per_sample": 1,
            "patches_per_image": {"values": [64, 144, 256], "weights": [0.3, 0.4, 0.3]}, "precision": "fp32", "optimizer": "adamw"}


def name_of(settings):
    return f"{settings['way']}, mbs {settings['mbs']}, {settings['recompute']}"


def whole_space():
    """What a profile is asked for: all that the plans may need."""
    return {"llm": {"cp_ulysses": 1, "zero": [0, 3]}, "mbs": list(MICRO_BATCHES), "recompute": KEEP, "schedule": ["1f1b", "zb_h1"], "balance": ["none"],
            "encoders": {"placement": ["inline", "colocated", "disjoint"], "form": ["before"], "mbs_scale": 1}}


def pins_of(settings):
    degrees, schedule, encoders = WAYS[settings["way"]]
    return {"llm": degrees, "mbs": settings["mbs"], "schedule": [schedule], "recompute": RECOMPUTE[settings["recompute"]], "balance": ["none"],
            "encoders": encoders}


def make_plans(machine, model, workload, cluster, profile):
    """By name, the settings and file of each plan; searches run side by side, since nothing is measured yet."""
    plans, guard, refused = {}, threading.Lock(), {}

    def make(settings):
        name = name_of(settings)
        try:
            path = make_plan(machine, f"space {name}", model, workload, cluster, pins_of(settings), only="llm", options=["--profile", profile])
        except RuntimeError as error:
            refused[name] = str(error)
            return
        with guard:
            plans[name] = settings | {"file": path}

    jobs = [{"way": way, "mbs": mbs, "recompute": recompute} for way, mbs, recompute in itertools.product(WAYS, MICRO_BATCHES, RECOMPUTE)]
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    for some in [jobs[i:i + threads] for i in range(0, len(jobs), threads)]:
        running = [threading.Thread(target=make, args=(settings,)) for settings in some]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    for name, error in refused.items():
        print(f"left out: {name}: {error}", file=sys.stderr)
    return {name_of(job): plans[name_of(job)] for job in jobs if name_of(job) in plans}


def median_profile(profiles):
    """Medians, over workers, of what each measured."""
    documents = [json.loads(path.read_text()) for path in profiles]
    merged = documents[0]
    what = {"blocks": ["module", "block", "tp", "cp", "cp_ulysses", "ep", "sequence_parallel", "experts_over_tp", "attention", "busy_ranks", "tokens",
                       "sequence_tokens"],
            "updates": ["busy_ranks", "elements"], "links": ["link", "collective", "ranks", "ranks_per_node", "bytes"]}
    for part, keys in what.items():
        found = collections.OrderedDict()
        for document in documents:
            for row in document.get(part, []):
                found.setdefault(tuple(row.get(key) for key in keys), []).append(row)
        merged[part] = [rows[0] | {field: statistics.median(row[field] for row in rows if field in row) for field in rows[0] if field.endswith("ms")}
                        for rows in found.values()]
    for field in ("action_ms", "step_ms"):
        values = [document[field] for document in documents if field in document]
        if values:
            merged[field] = statistics.median(values)
    return merged


class Runs:
    """Trains and keeps what every run left."""

    def __init__(self, machine, config):
        self.machine, self.config = machine, config
        self.count, self.guard = 0, threading.Lock()

    def train(self, own, plan):
        with self.guard:
            self.count += 1
            folder = self.machine.folder / "runs" / str(self.count)
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        folder.parent.mkdir(exist_ok=True)
        own.call("train", "--plan", plan, "--config", self.config, "--run", folder)
        return folder


def steps_of(folder):
    """Milliseconds of the steps that count."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["step_ms"] for line in lines][WARM_UP_STEPS:]


def run_round(machine, options, runs, plans, number):
    """Every plan once, between two runs of the reference on the same cores: a list of what was measured, in the order of time on each worker."""
    names = list(plans)
    random.Random(1000 + number).shuffle(names)
    shares = [names[i::options.workers] for i in range(options.workers)]
    reference, measured, guard = plans[name_of(REFERENCE)]["file"], [], threading.Lock()

    def work(own, worker, share):
        before = runs.train(own, reference)
        for name in share:
            folder = runs.train(own, plans[name]["file"])
            after = runs.train(own, reference)
            row = {"plan": name, "round": number, "worker": worker, "at_s": time.monotonic(), "steps_ms": steps_of(folder),
                   "reference_before_ms": steps_of(before), "reference_after_ms": steps_of(after), "folder": str(folder),
                   "reference_folder": str(before)}
            with guard:
                measured.append(row)
            figure = log_ratio(row["steps_ms"], row["reference_before_ms"], row["reference_after_ms"])
            print(f"round {number + 1}: {name}: {statistics.mean(row['steps_ms']):.1f} ms, {math.exp(figure):.3f} of the reference", file=sys.stderr,
                  flush=True)
            before = after

    in_workers(machine, options.workers,
               [lambda own, worker=worker, share=share: work(own, worker, share) for worker, share in enumerate(shares)])
    return measured


def compared(machine, plan, folder, profile):
    """What validate says of a run, and its predicted steps, of those that count."""
    report = machine.call("validate", "--plan", plan, "--run", folder, "--profile", profile)
    return {"predicted_ms": [step["predicted_ms"] for step in report["steps"]][WARM_UP_STEPS:],
            "terms": report["terms"], "actions": report["actions"], "ranks": report["ranks"],
            "memory_error_percent": report["memory_error_percent"]}


def validate_all(machine, rows, plans, profile):
    """Side by side: nothing is measured any more."""
    pending, guard = list(rows), threading.Lock()

    def work():
        while True:
            with guard:
                if not pending:
                    return
                row = pending.pop()
            row.update(compared(machine, plans[row["plan"]]["file"], row["folder"], profile))

    threads = [threading.Thread(target=work) for _ in range(len(os.sched_getaffinity(0)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def about_machine(options):
    quota = pathlib.Path("/sys/fs/cgroup/cpu.max")
    name = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "?")
    return {"processor": name, "kernel": platform.release(), "cores": len(os.sched_getaffinity(0)), "physical_cores": len(physical_cores()),
            "quota": quota.read_text().strip() if quota.exists() else None, "pairs": core_pairs(options.workers) if options.workers > 1 else None,
            "load_before": os.getloadavg()}


def measure_space(machine, options):
    began = time.monotonic()
    about = about_machine(options)
    models, _ = small_models(machine)
    model, workload = models["vl"], machine.write("space_workload.json", WORKLOAD)
    config = config_of(machine, options.steps)
    cluster = two_cores(machine, options).cluster(model, workload, 2)
    asked = machine.write("space_asked.json", whole_space())
    profiles = [machine.folder / f"space_profile{i}.json" for i in range(options.workers)]
    for path in profiles:
        path.unlink(missing_ok=True)
    in_workers(machine, options.workers,
               [lambda own, out=out: own.call("profile", "--model", model, "--workload", workload, "--cluster", cluster, "--space", asked,
                                              "--out", out, "--time-limit", machine.profile_s) for out in profiles])
    profile = machine.write("space_profile.json", median_profile(profiles))
    profiled = time.monotonic()
    plans = {name: plan for name, plan in make_plans(machine, model, workload, cluster, profile).items()
             if not options.only or re.search(options.only, name) or name == name_of(REFERENCE)}
    print(f"{len(plans)} plans; the profile took {profiled - began:.0f} s, plans {time.monotonic() - profiled:.0f} s", file=sys.stderr, flush=True)
    runs, rows, number = Runs(machine, config), [], 0
    longest = 0.0
    while number < options.rounds and (number < 1 or not options.seconds or time.monotonic() - began + longest < options.seconds):
        round_began = time.monotonic()
        rows += run_round(machine, options, runs, plans, number)
        longest = max(longest, time.monotonic() - round_began)
        number += 1
    validate_all(machine, rows, plans, profile)
    document = {"machine": about, "options": {"rounds": number, "workers": options.workers, "steps": options.steps, "profile_s": machine.profile_s},
                "seconds": time.monotonic() - began, "reference": name_of(REFERENCE), "profile": json.loads(profile.read_text()),
                "worker_profiles": [json.loads(path.read_text()) for path in profiles],
                "plans": {name: {key: plan[key] for key in REFERENCE} | {"plan": json.loads(plan["file"].read_text())} for name, plan in plans.items()},
                "runs": rows, "whole_runs": {}}
    for row in rows:
        if row["plan"] not in document["whole_runs"]:
            folder = pathlib.Path(row["folder"])
            document["whole_runs"][row["plan"]] = {name: (folder / name).read_text() for name in ("plan.json", "config.json", "steps.jsonl", "metrics.jsonl")}
    for row in rows:
        del row["folder"], row["reference_folder"]
    out = options.out or machine.folder / "space.json"
    out.write_text(json.dumps(document))
    print_analysis(document)
    print(f"\neverything is in {out}")


def figures_of(document):
    """By plan, the measured figures of its rounds, and the predicted one."""
    measured, predicted = collections.defaultdict(list), {}
    for row in sorted(document["runs"], key=lambda row: row["round"]):
        measured[row["plan"]].append(log_ratio(row["steps_ms"], row["reference_before_ms"], row["reference_after_ms"]))
        predicted[row["plan"]] = row["predicted_ms"]
    reference = predicted[document["reference"]]
    order = [name for name in document["plans"] if name in measured]
    return {n: measured[n] for n in order}, {n: log_ratio(predicted[n], reference, reference) for n in order}


def print_errors_by(found, plans, key):
    """Which kinds of plans are predicted too slow or too fast beside the others."""
    groups = collections.defaultdict(list)
    for name in found.names:
        groups[plans[name][key]].append(100 * found.error[name])
    print(f"\n| {key} | plans | predicted too slow by, mean | from | to |\n| --- | ---: | ---: | ---: | ---: |")
    for value, errors in groups.items():
        print(f"| {value} | {len(errors)} | {statistics.mean(errors):+.1f} % | {min(errors):+.1f} % | {max(errors):+.1f} % |")


def print_analysis(document):
    measured, predicted = figures_of(document)
    found = Agreement(measured, predicted)
    plans = document["plans"]
    terms = collections.defaultdict(lambda: collections.defaultdict(list))
    step_ms = collections.defaultdict(list)
    for row in document["runs"]:
        step_ms[row["plan"]].append(statistics.mean(row["steps_ms"]))
        for term in row["terms"]:
            terms[row["plan"]][term["term"]].append(100 * (term["predicted_ms"] - term["measured_ms"]) / statistics.mean(row["steps_ms"]))
    names = list(dict.fromkeys(term for own in terms.values() for term in own))
    print("| plan, by prediction | step, ms | measured | predicted | too slow by | parts of the step in % of it, predicted less measured |\n"
          "| --- | ---: | ---: | ---: | ---: | --- |")
    for name in found.by_prediction:
        parts = ", ".join(f"{term} {statistics.median(terms[name][term]):+.0f}" for term in names
                          if term in terms[name] and abs(statistics.median(terms[name][term])) >= 1)
        print(f"| {name} | {statistics.median(step_ms[name]):.0f} | {math.exp(found.measured[name]):.3f} | {math.exp(predicted[name]):.3f} | "
              f"{100 * found.error[name]:+.1f} % | {parts} |")
    for key in ("way", "mbs", "recompute"):
        print_errors_by(found, plans, key)
    machine = document["machine"]
    references = [statistics.mean(row["reference_before_ms"]) for row in document["runs"]]
    print(f"\n{machine['processor']}: {machine['cores']} logical cores, {machine['physical_cores']} cores, {document['options']['workers']} workers, "
          f"{document['options']['rounds']} rounds of {document['options']['steps']} steps (the first does not count), {document['seconds']:.0f} s in all")
    print(f"the reference took {min(references):.0f} to {max(references):.0f} ms, {statistics.median(references):.0f} in the middle")
    errors = [abs(error) for error in found.error.values()]
    print(f"{len(found.names)} plans, of which the slowest takes {math.exp(max(found.measured.values()) - found.measured[found.best]):.2f} times as long as the "
          f"fastest; predictions are off by {100 * (math.exp(found.common_error) - 1):+.1f} % beside the reference's, and beyond that by "
          f"{100 * statistics.mean(errors):.1f} % on average, {100 * max(errors):.1f} % at most")
    print(f"a round's figure has a standard deviation of {100 * found.round_spread:.1f} %; two plans are apart beyond {100 * found.noise:.1f} % (95 %)")
    if found.halves is not None:
        print(f"Kendall of the measurement with itself, half of the rounds against the others: {found.halves:.2f}")
    print(f"the fastest measured, {found.best}, is number {found.place_of_best} by prediction; up to ties inside the noise "
          f"({len(found.level_with_best)} plans are level with it), number {found.place_up_to_noise}; "
          f"the better of the first two takes {100 * found.slower_than_best(2):.1f} % longer")
    print(f"Kendall's tau-b of all {found.num_pairs} pairs {found.kendall:.2f}; of the {found.num_apart} pairs further apart than the noise, the others left out, "
          f"{found.kendall_apart:.2f}")


def analyse(machine, path, predicts_again):
    """From the file of a measurement; with new predictions by the program as it is now."""
    document = json.loads(path.read_text())
    if predicts_again:
        predict_again(machine, document)
    print_analysis(document)


def predict_again(machine, document):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        profile = folder / "profile.json"
        profile.write_text(json.dumps(document["profile"]))
        for number, (name, files) in enumerate(document["whole_runs"].items()):
            run = folder / str(number)
            run.mkdir()
            for file, text in files.items():
                (run / file).write_text(text)
            again = compared(machine, run / "plan.json", run, profile)
            for row in document["runs"]:
                if row["plan"] == name:
                    row["predicted_ms"] = again["predicted_ms"]
