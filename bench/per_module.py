"""What parallel settings per module bring over one setting for all, simulated: per_module.py [gains|fills] [--plans DIR]

gains: the best plan of the whole space against the best one whose encoders are inline, with the llm's degrees: on batches that are
drawn from the workload and the same for both, balanced as suits each, filling memory alike. First with the llm free, then with the
llm's degrees and micro-batch pinned to what MindSpeed-MM's examples publish for the model. --plans keeps the plans, for
weft_sleeping_plans.
fills: for one plan each, its encoder before the pipeline and in its bubbles, for the mean batch, and how much of the encoder's time
is hidden: the step is compared with that of the same plan for the same sequences without images and with nothing of the encoder to
update.
"""

import argparse
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKLOADS = ROOT / "bench" / "workloads"


def problem(model, cluster, nodes, workload, samples):
    return ["--model", model, "--cluster", cluster, "--nodes", str(nodes), "--workload", str(workload), "--global-batch", str(samples)]


def published(tp, pp):
    """As the examples have it: a distributed optimizer, micro-batches of one sample."""
    return {"llm": {"tp": tp, "pp": pp, "cp": 1, "zero": 1, "vpp": 1}, "mbs": 1, "schedule": ["1f1b"]}


GAINS = {
    "Omni 7B, 8 H200, 256 samples": (problem("qwen2.5-omni-7b", "hgx_h200", 1, "omni_short", 256), {}),
    "Omni 7B, 8 910B, 192 samples": (problem("qwen2.5-omni-7b", "ascend_910b_8", 1, "omni_short", 192), {}),
    "Omni 7B, 16 910B, 128 samples, heavy-tailed sound": (
        problem("qwen2.5-omni-7b", "ascend_910b_8", 2, WORKLOADS / "heavy_audio.yaml", 128), {}),
    "VL 7B, 8 910B, 192 samples": (problem("qwen2-vl-7b", "ascend_910b_8", 1, "vl_sft", 192), {}),
    "2.5-VL 7B, 32 H100, 256 samples, heavy-tailed images": (
        problem("qwen2.5-vl-7b", "dgx_h100", 4, WORKLOADS / "heavy_images.yaml", 256), {}),
    "2.5-VL 72B, 64 H200, 128 samples, heavy-tailed videos": (
        problem("qwen2.5-vl-72b", "hgx_h200", 8, WORKLOADS / "heavy_video.yaml", 128), {}),
    "VL 72B, 128 910B, 768 samples": (problem("qwen2-vl-72b", "ascend_910b_16", 8, "vl_sft", 768), {}),
    "Omni 7B, 8 910B, 192 samples, llm tp 1, pp 2": (problem("qwen2.5-omni-7b", "ascend_910b_8", 1, "omni_short", 192), published(1, 2)),
    "Omni 7B, 16 910B, 128 samples, heavy-tailed sound, llm tp 1, pp 2": (
        problem("qwen2.5-omni-7b", "ascend_910b_8", 2, WORKLOADS / "heavy_audio.yaml", 128), published(1, 2)),
    "VL 7B, 8 910B, 192 samples, llm tp 1, pp 4": (problem("qwen2-vl-7b", "ascend_910b_8", 1, "vl_sft", 192), published(1, 4)),
    "2.5-VL 7B, 8 910B, 64 samples, heavy-tailed images, llm tp 1, pp 4": (
        problem("qwen2.5-vl-7b", "ascend_910b_8", 1, WORKLOADS / "heavy_images.yaml", 64), published(1, 4)),
    "VL 72B, 128 910B, 768 samples, llm tp 2, pp 8": (problem("qwen2-vl-72b", "ascend_910b_16", 8, "vl_sft", 768), published(2, 8)),
}
VL72 = ["--cluster", "hgx_h200", "--model", "qwen2-vl-72b", "--nodes", "16", "--workload", "vl_sft", "--batches", "0"]
VL7 = ["--cluster", "hgx_h200", "--model", "qwen2-vl-7b", "--nodes", "1", "--workload", "vl_sft", "--batches", "0"]


def filling(schedule, **llm):
    return {"llm": llm, "schedule": schedule, "mbs": 1,
            "encoders": {"placement": "colocated", "form": "fill"}}


FILLS = {
    "VL 7B, 8 devices, pp 4, 8 microbatches": (VL7 + ["--global-batch", "16"], filling("1f1b", tp=1, pp=4, cp=1)),
    "VL 7B, 8 devices, pp 4, 32 microbatches": (VL7 + ["--global-batch", "64"], filling("1f1b", tp=1, pp=4, cp=1)),
    "VL 72B, 128 devices, pp 8, 64 microbatches": (VL72 + ["--global-batch", "256"], filling("1f1b", tp=4, pp=8, cp=1)),
    "VL 72B, 128 devices, pp 8, 256 microbatches": (VL72 + ["--global-batch", "1024"], filling("1f1b", tp=4, pp=8, cp=1)),
}


def weft(*arguments, may_not_fit=False):
    """What the verb prints. None where no plan fits, if that may be."""
    run = subprocess.run([ROOT / "build" / "weft", *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode == 1 and may_not_fit:
        return None
    if run.returncode != 0:
        sys.exit(f"weft {' '.join(map(str, arguments))}: {run.stderr}")
    return json.loads(run.stdout)


class Runs:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def write(self, name, document):
        path = self.folder / name
        path.write_text(json.dumps(document))
        return path

    def plan(self, arguments, space, may_not_fit=False):
        return weft("plan", *arguments, "--fastest", "--memory-margin", "0", "--time-limit", "60", "--space",
                    self.write("space.json", space), may_not_fit=may_not_fit)

    def simulate(self, plan):
        return weft("simulate", "--plan", self.write("plan.json", plan))


def fnv(document):
    value = 14695981039346656037
    for byte in json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return f"{value:016x}"


def before(plan):
    changed = copy.deepcopy(plan)
    changed["modules"]["vision"].update(form="before", actions={}, live_macro_batches=0)
    return changed


def without_encoder(plan):
    """The same sequences, of text alone, and an encoder that has nothing to update."""
    changed = before(plan)
    workload = changed["workload"]
    assert fnv(workload["spec"]) == workload["hash"], "the hash of a workload is not what it is known to be"
    assert "sequence_tokens" in workload["spec"], "images must be part of the sequences"
    for key in ("images_per_sample", "patches_per_image"):
        del workload["spec"][key]
    workload["spec"]["frozen"] = ["vision"]
    workload["hash"] = fnv(workload["spec"])
    return changed


def settings(found):
    return found["top"][0]["settings"] + ("" if found["optimal"] else f" (gap {100 * found['gap']:.2f} %)")


def print_gains(runs, plans):
    print("| case | one setting for all, ms | per module, ms | gain | settings: one, per module |")
    print("| --- | ---: | ---: | ---: | --- |")
    for number, (name, (arguments, space)) in enumerate(GAINS.items()):
        one = runs.plan(arguments, space | {"encoders": {"placement": ["inline"]}}, may_not_fit=True)
        own = runs.plan(arguments, space, may_not_fit=True)
        if one is None or own is None:
            fits = "nothing fits" if own is None else f"{own['step_time_ms']:.1f}"
            print(f"| {name} | nothing fits | {fits} | | {'' if own is None else settings(own)} |", flush=True)
            continue
        # What was searched longer may be slower where neither was proven.
        own = min(own, one, key=lambda found: found["step_time_ms"])
        print(f"| {name} | {one['step_time_ms']:.1f} | {own['step_time_ms']:.1f} | {100 * (one['step_time_ms'] / own['step_time_ms'] - 1):.1f} % | "
              f"{settings(one)}; {settings(own)} |", flush=True)
        if plans:
            for kind, found in (("one", one), ("own", own)):
                (plans / f"{number}_{kind}.json").write_text(json.dumps(found["plan"]))


def print_fills(runs):
    print("| case | without encoder, ms | before, ms | fill, ms | encoder a rank, ms | hidden before | hidden fill | fits |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for name, (arguments, space) in FILLS.items():
        plan = runs.plan(arguments, space)["plan"]
        steps = {form: runs.simulate(changed)
                 for form, changed in {"none": without_encoder(plan), "before": before(plan), "fill": plan}.items()}
        encoder = max(row["time"]["encoder_ms"] for row in steps["before"]["ranks"])
        none = steps["none"]["mean_batch_step_time_ms"]
        step = {form: steps[form]["mean_batch_step_time_ms"] for form in steps}
        hidden = {form: 1 - (step[form] - none) / encoder for form in ("before", "fill")}
        fits = ", ".join(f"{form} {max(steps[form]['peak_memory_gib']):.0f} GiB" for form in ("before", "fill"))
        print(f"| {name} | {none:.1f} | {step['before']:.1f} | {step['fill']:.1f} | {encoder:.1f} | "
              f"{100 * hidden['before']:.0f} % | {100 * hidden['fill']:.0f} % | {fits} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["gains", "fills"])
    parser.add_argument("--plans", type=pathlib.Path)
    options = parser.parse_args()
    if options.plans:
        options.plans.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(folder)
        print_gains(runs, options.plans) if options.what == "gains" else print_fills(runs)


if __name__ == "__main__":
    main()
