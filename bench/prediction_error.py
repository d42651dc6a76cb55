"""How wrong predictions of runs on this machine are: prediction_error.py [forms|space|gpu] [--only PATTERN] [--rounds N] [--workers N]

Small models are profiled, planned, trained and validated. A machine may be noisy, so profile and runs take turns: a round
is a profile and a run of every case. The prediction is made with the last profile for the very samples of the run. The noise
of a case is half the spread of its runs' median steps, or of the steps of a run around their median if that is more: what no
prediction can be better than.

forms: dp, tp, pp, cp, ZeRO 3, encoders beside, recomputation on one and two ranks of the CPU.
space: all plans of a space of two ranks; which one is best measured, which predicted, and Kendall's rank correlation.
gpu: Qwen2-VL-2B on one GPU at two lengths and two batches, with and without recomputation; --size 7b has half the batch and
states in bf16, without which it does not fit. The same runs are predicted without the profile, too, by the
cluster alone: --cluster FILE, or what is measured of this machine.

--workers N runs N cases at a time, each on two cores of its own: leave as many idle, since cases share the memory.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import queue
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 384, "intermediate_size": 1024,
         "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu", "vocab_size": 4096,
         "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
EXPERTS = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
           "moe_intermediate_size": 128, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1,
           "mlp_only_layers": [], "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
           "hidden_act": "silu", "vocab_size": 4096, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
           "attention_bias": False, "router_aux_loss_coef": 0.0, "tie_word_embeddings": False}
VISION = {"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"], "tie_word_embeddings": False,
          "text_config": {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6,
                          "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 32768,
                          "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
                          "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}},
          "vision_config": {"depth": 4, "embed_dim": 192, "hidden_size": 256, "hidden_act": "quick_gelu", "mlp_ratio": 4,
                            "num_heads": 4, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
          "image_token_id": 4000, "video_token_id": 4001, "vision_start_token_id": 4002, "vision_end_token_id": 4003}
MODELS = {"llama": LLAMA, "experts": EXPERTS, "vl": VISION}
WORKLOADS = {
    "llama": {"global_batch_samples": 8, "sequence_tokens": 256, "precision": "fp32", "optimizer": "adamw"},
    "experts": {"global_batch_samples": 8, "sequence_tokens": 256, "precision": "fp32", "optimizer": "adamw"},
    "vl": {"global_batch_samples": 8, "text_tokens": {"values": [64, 128, 192], "weights": [0.3, 0.4, 0.3]}, "images_per_sample": 1,
           "patches_per_image": {"values": [144, 256, 400], "weights": [0.3, 0.4, 0.3]}, "precision": "fp32", "optimizer": "adamw"},
}
ONE = {"tp": 1, "cp": 1, "pp": 1, "zero": 0}
KEEP = ["none"]


def llm(**degrees):
    return ONE | degrees


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


class Machine:
    """Runs the program in a folder that keeps everything."""

    def __init__(self, weft, folder, device, profile_s, cores=None):
        self.weft, self.folder, self.device, self.profile_s, self.cores = weft, folder, device, profile_s, cores
        folder.mkdir(parents=True, exist_ok=True)

    def on(self, cores):
        """The same machine as a program sees it that may use these cores alone."""
        return Machine(self.weft, self.folder, self.device, self.profile_s, cores)

    def call(self, *arguments, json_out=True):
        pinned = ["taskset", "-c", ",".join(map(str, self.cores))] if self.cores else []
        command = [*pinned, str(self.weft), *map(str, arguments)] + (["--json"] if json_out else [])
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if run.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {run.stderr[-2000:]}")
        return json.loads(run.stdout) if json_out else run.stdout

    def write(self, name, document):
        path = self.folder / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    def cluster(self, model, workload, ranks):
        """This machine for so many ranks, measured once."""
        path = self.folder / f"cluster{ranks}.yaml"
        if not path.exists():
            self.call("profile", "--model", model, "--workload", workload, "--device", self.device, "--ranks", ranks,
                      "--cluster-out", path, "--out", self.folder / f"cluster{ranks}_profile.json", "--time-limit", 5)
        return path


def recomputed(plan):
    """The plan with all layers recomputed whole."""
    for module in plan["modules"].values():
        module["recompute"] = [[[f"full*{count}"] if count else [] for count in chunks] for chunks in module["layers"]]
    return plan


def make_plan(machine, name, model, workload, cluster, space):
    key = "".join(c if c.isalnum() else "_" for c in name)
    wants_recompute = space.get("recompute") == "full"
    written = machine.write(f"{key}_space.json", space | ({"recompute": KEEP} if wants_recompute else {}))
    found = machine.call("plan", "--model", model, "--cluster", cluster, "--workload", workload, "--space", written, "--fastest",
                         "--memory-margin", 0)
    plan = recomputed(found["plan"]) if wants_recompute else found["plan"]
    return machine.write(f"{key}_plan.json", plan)


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


def in_workers(machine, num_workers, jobs):
    """Each job with a machine: all with this one in turn, or side by side, each with two cores of its own."""
    if num_workers == 1:
        for job in jobs:
            job(machine)
        return
    cores, free = sorted(os.sched_getaffinity(0)), queue.Queue()
    for i in range(num_workers):
        free.put(cores[2 * i:2 * i + 2])

    def work(job):
        own = free.get()
        try:
            job(machine.on(own))
        finally:
            free.put(own)

    with concurrent.futures.ThreadPoolExecutor(num_workers) as pool:
        for done in [pool.submit(work, job) for job in jobs]:
            done.result()


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


def small_models(machine):
    models = {name: machine.write(f"{name}.json", config) for name, config in MODELS.items()}
    workloads = {name: machine.write(f"{name}_workload.json", spec) for name, spec in WORKLOADS.items()}
    return models, workloads


def config_of(machine, steps):
    return machine.write("train.yaml", f"steps: {steps}\nseed: 1\ndevice: {machine.device}\n"
                                       "optimizer: {learning_rate: 1.0e-4, weight_decay: 0.01, max_gradient_norm: 1.0}\n")


def two_cores(machine, options):
    return machine.on(sorted(os.sched_getaffinity(0))[:2]) if options.workers > 1 else machine


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


def kendall(measured, predicted, apart_percent=0.0):
    """Of the pairs that were measured further apart than this."""
    pairs = [(i, j) for i, j in itertools.combinations(range(len(measured)), 2)
             if abs(measured[i] - measured[j]) > apart_percent / 100 * min(measured[i], measured[j])]
    agree = sum(1 if (measured[i] - measured[j]) * (predicted[i] - predicted[j]) > 0 else -1 for i, j in pairs)
    return agree / max(1, len(pairs)), len(pairs)


def space(machine, options):
    models, workloads = small_models(machine)
    config = config_of(machine, options.steps)
    pinned = two_cores(machine, options)
    cluster = pinned.cluster(models["llama"], workloads["llama"], 2)
    profiles = [machine.folder / f"space_profile{i}.json" for i in range(options.workers)]
    empty = machine.write("empty_space.json", {})
    # All workers measure, so that the profile is of the load that runs have; the first one's counts.
    in_workers(machine, options.workers,
               [lambda own, out=out: own.call("profile", "--model", models["vl"], "--workload", workloads["vl"], "--cluster", cluster,
                                              "--space", empty, "--out", out, "--time-limit", 3 * machine.profile_s)
                for out in profiles])
    profile = profiles[0]
    found = {}
    degrees = [llm(dp=2, zero=z) for z in (0, 1, 2, 3)] + [llm(tp=2, sequence_parallel=s) for s in (False, True)] + [llm(cp=2), llm(pp=2)]
    for degree, mbs, encoder in itertools.product(degrees, (1, 2, 4), ("inline", "colocated")):
        for schedule in ("1f1b", "zb_h1") if degree["pp"] == 2 else ("1f1b",):
            pins = {"llm": degree, "mbs": mbs, "schedule": [schedule], "recompute": KEEP,
                    "encoders": {"placement": [encoder]} | ({"form": ["before"], "mbs_scale": 1} if encoder == "colocated" else {})}
            name = f"{degree} mbs {mbs} {schedule} {encoder}"
            try:
                plan = make_plan(machine, f"space {len(found)}", models["vl"], workloads["vl"], cluster, pins)
            except RuntimeError as error:
                print(f"left out: {name}: {error}", file=sys.stderr)
                continue
            found[name] = Case(name, plan, config, models["vl"], workloads["vl"])
    for number in range(options.rounds):
        def run(name, own, number=number):
            found[name].round(own, number, profile=profile)
            print(f"round {number + 1}: {name}: {found[name].steps[-1]:.1f} ms, predicted {found[name].predicted[-1]:.1f}",
                  file=sys.stderr, flush=True)

        in_workers(machine, options.workers, [lambda own, name=name: run(name, own) for name in found])
    measured = {name: statistics.median(case.steps) for name, case in found.items()}
    predicted = {name: statistics.median(case.predicted) for name, case in found.items()}
    names = list(found)
    noise = statistics.median(case.noise_percent() for case in found.values())
    by_prediction = sorted(names, key=predicted.get)
    best = min(names, key=measured.get)
    print("| plan | measured, ms | predicted, ms |\n| --- | ---: | ---: |")
    for name in by_prediction:
        print(f"| {name} | {measured[name]:.1f} | {predicted[name]:.1f} |")
    place = by_prediction.index(best) + 1
    worst_of_two = min(measured[name] for name in by_prediction[:2])
    values = [measured[n] for n in names], [predicted[n] for n in names]
    of_all, _ = kendall(*values)
    of_some, count = kendall(*values, apart_percent=noise)
    print(f"\n{len(names)} plans; the fastest measured is number {place} by prediction; the better of the first two takes "
          f"{100 * (worst_of_two / measured[best] - 1):.1f} % longer; noise {noise:.1f} %; "
          f"Kendall {of_all:.2f}, of the {count} pairs further apart than the noise {of_some:.2f}")


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
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--workers", type=int, default=1, help="cases at a time, each on two cores")
    parser.add_argument("--profile-s", type=float, default=30, help="most seconds of a profile")
    parser.add_argument("--cluster", type=pathlib.Path, help="of the GPU, instead of what is measured of it")
    parser.add_argument("--without-profile", action="store_true")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/prediction"))
    options = parser.parse_args()
    machine = Machine(ROOT / "build" / "weft", options.folder.resolve(), "cuda" if options.what == "gpu" else "cpu", options.profile_s)
    {"forms": forms, "space": space, "gpu": gpu}[options.what](machine, options)


if __name__ == "__main__":
    main()
