"""What parallel settings per module bring over one setting for all, simulated on hgx_h200: per_module.py

First the best plan of the whole space against the best one whose encoders are inline, with the llm's degrees. With several
chunks a rank the search deals blocks out by their number, whatever they cost, which serves inline encoders badly; so where the best
plan has such, its llm's settings are tried with all encoders inline too, and of both layers are moved as long as that helps. Then, for
one plan each, its encoder before the pipeline and in its bubbles, and how much of the encoder's time is hidden: the step
is compared with that of the same plan for the same sequences without images and with nothing of the encoder to update.
"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OMNI = ["--model", "qwen2.5-omni-7b", "--nodes", "1", "--workload", "omni_short"]
VL72 = ["--model", "qwen2-vl-72b", "--nodes", "16", "--workload", "vl_sft"]
VL7 = ["--model", "qwen2-vl-7b", "--nodes", "1", "--workload", "vl_sft"]
ZERO_1 = {"llm": {"zero": {"at_most": 1}}}
SEARCHES = {
    "Omni 7B, 8 devices, 256 samples": (OMNI + ["--global-batch", "256"], {}),
    "Omni 7B, 8 devices, 256 samples, ZeRO at most 1": (OMNI + ["--global-batch", "256"], ZERO_1),
    "Omni 7B, 8 devices, 64 samples": (OMNI + ["--global-batch", "64"], {}),
    "VL 72B, 128 devices, 1,024 samples": (VL72 + ["--global-batch", "1024"], {}),
    "VL 72B, 128 devices, 1,024 samples, ZeRO at most 1": (VL72 + ["--global-batch", "1024"], ZERO_1),
    "VL 72B, 128 devices, 256 samples": (VL72 + ["--global-batch", "256"], {}),
    "VL 72B, 128 devices, 256 samples, ZeRO at most 1": (VL72 + ["--global-batch", "256"], ZERO_1),
}


def filling(schedule, **llm):
    return {"llm": llm, "schedule": schedule, "mbs": 1,
            "encoders": {"placement": "colocated", "form": "fill"}}


FILLS = {
    "VL 7B, 8 devices, pp 4, 8 microbatches": (VL7 + ["--global-batch", "16"], filling("1f1b", tp=1, pp=4, cp=1)),
    "VL 7B, 8 devices, pp 4, 32 microbatches": (VL7 + ["--global-batch", "64"], filling("1f1b", tp=1, pp=4, cp=1)),
    "VL 72B, 128 devices, pp 8, 64 microbatches": (VL72 + ["--global-batch", "256"], filling("1f1b", tp=4, pp=8, cp=1)),
    "VL 72B, 128 devices, pp 8, 256 microbatches": (VL72 + ["--global-batch", "1024"], filling("1f1b", tp=4, pp=8, cp=1)),
}


def weft(*arguments):
    run = subprocess.run([ROOT / "build" / "weft", *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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

    def plan(self, arguments, space):
        return weft("plan", "--cluster", "hgx_h200", *arguments, "--space", self.write("space.json", space))

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


def inline(plan, recomputes):
    """The same settings of the llm, with all encoders in its first stage."""
    changed = copy.deepcopy(plan)
    llm = changed["modules"]["llm"]
    for name, module in changed["modules"].items():
        if name == "llm":
            continue
        count = sum(map(sum, module["layers"]))
        zeros = [[0] * llm["vpp"] for _ in range(llm["pp"])]
        module.clear()
        module.update({key: llm[key] for key in ("ranks", "axis_order", "tp", "cp", "cp_ulysses", "pp", "dp", "sequence_parallel", "zero")},
                      placement="inline", layers=zeros, recompute=[[[] for _ in row] for row in zeros])
        module["layers"][0][0] = count
        module["recompute"][0][0] = [f"full*{count}"] if recomputes and count else []
    return changed


def climbed(runs, plan):
    """Moves one layer of the llm at a time, the best move first. Returns the step where it fits, or nothing."""
    def price(candidate):
        report = runs.simulate(candidate)
        # What does not fit is worth less than anything that does.
        return (not report["fits"], report["mean_batch_step_time_ms"])

    def moves(best):
        layers = best["modules"]["llm"]["layers"]
        places = [(rank, chunk) for rank in range(len(layers)) for chunk in range(len(layers[0]))]
        for source in places:
            if layers[source[0]][source[1]] == 0 or (source[0] not in (0, len(layers) - 1) and source[1] > 0):
                continue
            for target in places:
                if target == source:
                    continue
                moved = copy.deepcopy(best)
                moved["modules"]["llm"]["layers"][source[0]][source[1]] -= 1
                moved["modules"]["llm"]["layers"][target[0]][target[1]] += 1
                moved["modules"]["llm"]["recompute"] = [[[] for _ in row] for row in layers]
                yield moved

    best, cost = plan, price(plan)
    while True:
        found = min(((price(moved), index, moved) for index, moved in enumerate(moves(best))), default=None)
        if found is None or found[0] >= cost:
            return None if cost[0] else cost[1]
        cost, _, best = found


def improved(runs, found, plans):
    """The step of what was searched, or of these plans with their layers moved where that is faster."""
    steps = [climbed(runs, plan) for plan in plans]
    return min([found["step_time_ms"]] + [step for step in steps if step is not None])


def settings(found):
    return found["top"][0]["settings"] + ("" if found["optimal"] else f" (gap {100 * found['gap']:.2f} %)")


def main():
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(folder)
        print("| case | one setting for all, searched, ms | best known, ms | per module, searched, ms | best known, ms | gain | "
              "settings as searched: one, per module |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
        for name, (arguments, space) in SEARCHES.items():
            one, own = runs.plan(arguments, space | {"encoders": {"placement": "inline"}}), runs.plan(arguments, space)
            has_chunks = own["plan"]["modules"]["llm"]["vpp"] > 1
            one_ms = improved(runs, one, [inline(own["plan"], recomputes) for recomputes in (False, True)] if has_chunks else [])
            own_ms = improved(runs, own, [own["plan"]] if has_chunks else [])
            print(f"| {name} | {one['step_time_ms']:.1f} | {one_ms:.1f} | {own['step_time_ms']:.1f} | {own_ms:.1f} | "
                  f"{100 * (one_ms / own_ms - 1):.1f} % | {settings(one)}; {settings(own)} |", flush=True)
        print()
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


if __name__ == "__main__":
    main()
