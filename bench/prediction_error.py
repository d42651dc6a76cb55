"""How wrong predictions of runs on this machine are: prediction_error.py [forms|space|gpu] [--only PATTERN] [--rounds N] [--workers N]

Small models are profiled, planned, trained and validated. A machine may be noisy, so profile and runs take turns: a round
is a profile and a run of every case. The prediction is made with the last profile for the very samples of the run. The noise
of a case is half the spread of its runs' median steps, or of the steps of a run around their median if that is more: what no
prediction can be better than.

forms: dp, tp, pp, cp, ZeRO 3, encoders beside, recomputation on one and two ranks of the CPU.
space: all plans of a space of two ranks; which one is best measured, which predicted, and Kendall's rank correlation. Every run
lies between two of a reference plan; prediction_space.py says how.
gpu: Qwen2-VL-2B on one GPU at two lengths and two batches, with and without recomputation; --size 7b has half the batch and
states in bf16, without which it does not fit. The same runs are predicted without the profile, too, by the
cluster alone: --cluster FILE, or what is measured of this machine.

--workers N runs N cases at a time, each on two cores of its own: leave as many idle, since cases share the memory.
"""

import argparse
import itertools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

from prediction_runs import KEEP, ROOT, Machine, config_of, in_workers, llm, make_plan, physical_cores, small_models, two_cores
from prediction_space import analyse, measure_space

# name: (model, ranks, search file)
FORMS = {
    "llama, one rank": ("llama", 1, {"llm": llm(), "mbs": 2, "recompute": KEEP}),
    "llama, dp 2": ("llama", 2, {"llm": llm(dp=2), "mbs": 2, "recompute": KEEP}),
    "llama, tp 2": ("llama", 2, {"llm": llm(tp=2, sequence_parallel=False), "mbs": 2, "recompute": KEEP}),
    "llama, tp 2, sequence parallel": ("llama", 2, {"llm": llm(tp=2, sequence_parallel=True), "mbs": 2, "recompute": KEEP}),
    "llama, pp 2, 1f1b": ("llama", 2, {"llm": llm(pp=2), "mbs": 1, "schedule": ["1f1b"], "recompute": KEEP}),
    "llama, pp 2, zb_h1": ("llama", 2, {"llm": llm(pp=2), "mbs": 1, "schedule": ["zb_h1"], "recompute": KEEP}),
    "llama, cp 2": ("llama", 2, {"llm": llm(cp=2), "mbs": 2, "recompute": KEEP}),
    "llama, dp 2, ZeRO 3": ("llama", 2, {"llm": llm(dp=2, zero=3), "mbs": 2, "recompute": KEEP}),
    "experts, one rank": ("experts", 1, {"llm": llm(), "mbs": 2, "recompute": KEEP}),
    "experts, ep 2": ("experts", 2, {"llm": llm(dp=2, ep=2), "mbs": 2, "recompute": KEEP}),
    "vl, one rank, inline": ("vl", 1, {"llm": llm(), "mbs": 2, "recompute": KEEP, "encoders": {"placement": ["inline"]}}),
    "vl, dp 2, inline": ("vl", 2, {"llm": llm(dp=2), "mbs": 2, "recompute": KEEP, "encoders": {"placement": ["inline"]}}),
    "vl, pp 2, colocated": ("vl", 2, {"llm": llm(pp=2), "mbs": 1, "schedule": ["1f1b"], "recompute": KEEP,
                                      "encoders": {"placement": ["colocated"], "form": ["before"], "tp": 1}}),
    "vl, disjoint": ("vl", 2, {"llm": llm(dp=1), "mbs": 1, "recompute": KEEP, "encoders": {"placement": ["disjoint"], "ranks": 1}}),
    "llama, one rank, recomputed": ("llama", 1, {"llm": llm(), "mbs": 2, "recompute": "full"}),
    "vl, dp 2, recomputed": ("vl", 2, {"llm": llm(dp=2), "mbs": 2, "recompute": "full", "encoders": {"placement": ["inline"]}}),
}


class Case:
    def __init__(self, name, plan, config, model, workload):
        self.name, self.plan, self.config, self.model, self.workload = name, plan, config, model, workload
        self.steps, self.predicted, self.errors, self.memory, self.noises, self.without = [], [], [], [], [], []

    def round(self, machine, number, profiles=True, profile=None):
        """A profile of its own, unless one is given, and a run."""
        key = self.plan.stem
        with_profile = ["--profile", profile] if profile else []
        if profiles and not profile:
            profile = machine.folder / f"{key}_profile{number}.json"
            began = time.monotonic()
            machine.call("profile", "--model", self.model, "--workload", self.workload, "--for", self.plan, "--device", machine.device,
                         "--time-limit", machine.profile_s, "--out", profile)
            self.profile_s = time.monotonic() - began
            with_profile = ["--profile", profile]
        run = machine.folder / f"{key}_run{number}"
        subprocess.run(["rm", "-rf", str(run)], check=True)
        machine.call("train", "--plan", self.plan, "--config", self.config, "--run", run)
        report = machine.call("validate", "--plan", self.plan, "--run", run, *with_profile)
        self.steps.append(report["step_time_ms"]["measured"])
        self.predicted.append(report["step_time_ms"]["predicted"])
        self.noises.append(report["noise_percent"])
        self.errors.append(report["step_time_error_percent"])
        self.memory.append(report["memory_error_percent"])
        if with_profile:
            report = machine.call("validate", "--plan", self.plan, "--run", run)
        self.without.append(report["step_time_error_percent"])

    def noise_percent(self):
        spread = 50 * (max(self.steps) - min(self.steps)) / statistics.median(self.steps)
        return max(spread, statistics.median(self.noises))

    def row(self):
        error = statistics.median(self.errors)
        beyond = max(0.0, abs(error) - self.noise_percent())
        return (f"| {self.name} | {statistics.median(self.steps):.1f} | {error:+.1f} % | {self.noise_percent():.1f} % | {beyond:.1f} % | "
                f"{max(self.memory, key=abs):+.1f} % |"), beyond


def run_cases(machine, cases, options, profiles=True):
    print("| case | step measured, ms | error | noise | error beyond it | memory |\n| --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    def run(case, number, own):
        case.round(own, number, profiles)
        print(f"round {number + 1}: {case.name}: {case.steps[-1]:.1f} ms, {case.errors[-1]:+.1f} %, "
              f"without a profile {case.without[-1]:+.1f} %, memory {case.memory[-1]:+.1f} %",
              file=sys.stderr, flush=True)

    for number in range(options.rounds):
        in_workers(machine, options.workers, [lambda own, case=case: run(case, number, own) for case in cases])
    beyond = []
    for case in cases:
        text, value = case.row()
        beyond.append(value)
        print(text)
    print(f"\nerror beyond noise: mean {statistics.mean(beyond):.1f} %, largest {max(beyond):.1f} %")


def forms(machine, options):
    models, workloads = small_models(machine)
    config = config_of(machine, options.steps)
    pinned = two_cores(machine, options)
    cases = []
    for name, (model, ranks, space) in FORMS.items():
        if options.only and not re.search(options.only, name):
            continue
        cluster = pinned.cluster(models["llama"], workloads["llama"], ranks)
        plan = make_plan(machine, name, models[model], workloads[model], cluster, space)
        cases.append(Case(name, plan, config, models[model], workloads[model]))
    run_cases(machine, cases, options)


def with_states(precision, plan):
    """The plan with master weights, moments and gradients of a type that searches do not choose."""
    document = json.loads(plan.read_text())
    document["precision"] |= {"master": precision, "reduce": precision}
    plan.write_text(json.dumps(document))


def ample(machine, cluster):
    """The same machine with memory enough for any states."""
    return machine.write("ample.yaml", re.sub(r"(?m)^(\s*memory_gib:).*$", r"\1 1000", cluster.read_text()))


def gpu(machine, options):
    config = config_of(machine, options.steps)
    model, batches = ("qwen2-vl-7b", (1, 2)) if options.size == "7b" else ("qwen2-vl-2b", (2, 4))
    cases, cluster = [], None
    if options.cluster:
        one = re.sub(r"(?m)^(nodes|devices_per_node):.*$", r"\1: 1", options.cluster.read_text())
        cluster = machine.write("cluster1.yaml", one)
    for tokens, samples, recompute in itertools.product((2048, 4096), batches, ("none", "full")):
        name = f"{samples} x {tokens} tokens, {'recomputed' if recompute == 'full' else 'kept'}"
        if options.only and not re.search(options.only, name):
            continue
        workload = machine.write(f"workload_{tokens}_{samples}.json",
                                 {"global_batch_samples": samples, "sequence_tokens": tokens, "images_per_sample": 1,
                                  "patches_per_image": tokens, "precision": "bf16", "optimizer": "adamw"})
        cluster = cluster or machine.cluster(model, workload, 1)
        pins = {"encoders": {"placement": ["inline"]}, "mbs": samples, "recompute": "full" if recompute == "full" else KEEP}
        plan = make_plan(machine, name, model, workload, ample(machine, cluster) if options.size == "7b" else cluster, pins)
        if options.size == "7b":
            with_states("bf16", plan)
        cases.append(Case(name, plan, config, model, workload))
    run_cases(machine, cases, options, profiles=not options.without_profile)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["forms", "space", "gpu"])
    parser.add_argument("--only", help="cases whose name has this regular expression")
    parser.add_argument("--size", choices=["2b", "7b"], default="2b", help="of the model on a GPU")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of a run; default 12, of the space's 4")
    parser.add_argument("--seconds", type=float, help="space: no round begins that would not end by then")
    parser.add_argument("--workers", type=int, default=1, help="cases at a time, each on two cores; 0: as many as have two whole cores each, at most 6")
    parser.add_argument("--profile-s", type=float, default=30, help="most seconds of a profile")
    parser.add_argument("--cluster", type=pathlib.Path, help="of the GPU, instead of what is measured of it")
    parser.add_argument("--without-profile", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/prediction"))
    parser.add_argument("--weft", type=pathlib.Path, default=ROOT / "build" / "weft", help="the program")
    parser.add_argument("--out", type=pathlib.Path, help="space: where everything that was measured goes; default space.json in the folder")
    parser.add_argument("--analyse", type=pathlib.Path, metavar="FILE", help="space: measure nothing, print what such a file says")
    parser.add_argument("--predict-again", action="store_true", help="with --analyse: predictions by the program as it is now")
    options = parser.parse_args()
    options.workers = options.workers or max(1, min(6, len(physical_cores()) // 2))
    options.steps = options.steps or (4 if options.what == "space" else 12)
    machine = Machine(options.weft.resolve(), options.folder.resolve(), "cuda" if options.what == "gpu" else "cpu", options.profile_s)
    if options.analyse:
        analyse(machine, options.analyse, options.predict_again)
    else:
        {"forms": forms, "space": measure_space, "gpu": gpu}[options.what](machine, options)


if __name__ == "__main__":
    main()
