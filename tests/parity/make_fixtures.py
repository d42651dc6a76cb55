"""Makes tiny random models, inputs, and what Hugging Face's implementation computes, for Weft's models to be compared with.

    python3 -m venv env && env/bin/pip install torch==2.11.0 transformers==5.17.0 safetensors==0.8.0
    env/bin/python tests/parity/make_fixtures.py [--seed N] [--out DIR] [--only NAME]
    env/bin/python tests/parity/make_fixtures.py --check DIR [--only NAME]

Another seed draws other sizes, weights and inputs. --check computes everything in DIR anew from its inputs and compares.
README.md beside this file says what the files hold.
"""

import argparse
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

import fixture_configs
import fixture_training
from fixture_inputs import Draw, SampleMaker, draw_case, pack, write_json
from fixture_reference import (
    evaluate,
    greedy,
    in_bfloat16,
    in_float64,
    load_model,
    as_published,
    new_model,
    randomise,
    unreached,
)

INPUTS = ("input_ids", "lengths", "targets", "pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw",
          "second_per_grid_ts", "input_features", "audio_feature_lengths")
AUX_COEFFICIENT = 0.02
# A case is drawn again when another implementation's rounding could turn a choice: of an expert, of a generated token.
ROUTER_MARGIN = 1e-3
GREEDY_MARGIN = 1e-2
ATTEMPTS = 200
# Of some weights every draw has ties: then the weights are drawn again.
WEIGHT_DRAWS = 10


class NoClearCase(Exception):
    """None of the inputs drawn for a case of these weights is clear of ties."""


def save_model(model, folder, shard_size, is_fresh):
    model.save_pretrained(folder, **({"max_shard_size": shard_size} if shard_size else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    weights = folder / "model.safetensors"
    if weights.exists() and not is_fresh:
        save_file(as_published(model.config, load_file(weights)), weights, metadata={"format": "pt"})


def prompt_sample(case):
    return {"packed": 2, "mixed": 2, "audio_in_video": 1}.get(case, 0)


def try_case(model, case, key):
    """The case as this key draws it, or None where a choice in it is too close."""
    tensors = pack(model.config, draw_case(model.config, case, key), key)
    facts = {}
    if case == "audio_in_video":
        facts["use_audio_in_video"] = True
    if model.config.model_type in ("qwen3_moe", "qwen3_vl_moe"):
        facts["aux_coefficient"] = AUX_COEFFICIENT
    expected, closest = evaluate(model, tensors, facts)
    assert case != "mixed" or "position_ids_v4" not in expected, "this case is meant to have one reading only"
    if closest is not None and closest < ROUTER_MARGIN:
        return None
    made = greedy(model, tensors, facts, prompt_sample(case))
    special = SampleMaker(model.config, Draw(key)).special
    if made["smallest_margin"] < GREEDY_MARGIN or special & set(made["tokens"]) or len(set(made["tokens"])) < 4:
        return None
    facts["greedy"] = {"prompt_sample": prompt_sample(case), "eos": "ignored: generation never stops early"} | made
    facts["without_grad"] = unreached(model, expected)
    if closest is not None:
        facts["smallest_router_margin"] = closest
    return tensors, expected, facts


def make_case(model, folder, case, key, double):
    for attempt in range(ATTEMPTS):
        made = try_case(model, case, f"{key}/{attempt}")
        if made:
            break
    else:
        raise NoClearCase(f"{folder.name}/{case}: {ATTEMPTS} draws without one that is clear of ties")
    tensors, expected, facts = made
    if double:
        expected |= in_float64(model, tensors, facts)
    facts |= in_bfloat16(folder, model.config, tensors, facts, expected)
    save_file(tensors | expected, folder / f"{case}.safetensors")
    write_json(folder / f"{case}.json", facts)


def make_model(seed, name, folder, draw):
    config = fixture_configs.make_config(seed, name)
    model = new_model(config)
    randomise(model, Draw(f"{seed}/{name}/weights" + (f"/{draw}" if draw else "")))
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    save_model(model, folder, fixture_configs.SHARDED.get(name), name in fixture_configs.FRESH)
    return load_model(folder, config)


def make_fixture(seed, name, folder):
    for draw in range(WEIGHT_DRAWS):
        try:
            return make_with_weights(seed, name, folder, draw)
        except NoClearCase as found:
            print(f"{found}; its weights are drawn again")
    sys.exit(f"{name}: {WEIGHT_DRAWS} draws of its weights without one whose cases are clear of ties; try another --seed")


def make_with_weights(seed, name, folder, draw):
    model = make_model(seed, name, folder, draw)
    if name == fixture_configs.TRAINED:
        fixture_training.make(model, folder, f"{seed}/{name}")
    for case in fixture_configs.CASES.get(name, ()):
        make_case(model, folder, case, f"{seed}/{name}/{case}", fixture_configs.DOUBLE.get(name) == case)
    parameters = sum(p.numel() for p in model.parameters())
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {parameters} parameters, {size / 1024:.0f} KiB")


def difference(found, expected):
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return float("inf")
    if not found.is_floating_point():
        return 0.0 if torch.equal(found, expected) else float("inf")
    if not (found.isfinite().all() and expected.isfinite().all()):
        return float("inf")
    return ((found - expected).norm() / expected.norm().clamp(min=1e-30)).item()


def check_case(model, folder, case):
    """The largest difference of anything in the case from what is computed now."""
    stored = load_file(folder / f"{case}.safetensors")
    facts = json.loads((folder / f"{case}.json").read_text())
    tensors = {k: v for k, v in stored.items() if k in INPUTS}
    expected, _ = evaluate(model, tensors, facts)
    if "loss_f64" in stored:
        expected |= in_float64(model, tensors, facts)
    worst = max((difference(expected[k], stored[k]) for k in expected if k in stored))
    if set(expected) | set(tensors) != set(stored):
        worst = float("inf")
    made = greedy(model, tensors, facts, facts["greedy"]["prompt_sample"])
    if made["tokens"] != facts["greedy"]["tokens"] or made["first_position"] != facts["greedy"]["first_position"]:
        worst = float("inf")
    again = in_bfloat16(folder, model.config, tensors, facts, expected)
    return max(worst, *(abs(again[k] - facts[k]) for k in again))


def check_fixture(folder):
    name = folder.name
    files = [f"{case}.safetensors" for case in fixture_configs.CASES.get(name, ())]
    files += ["training.json"] if name == fixture_configs.TRAINED else []
    missing = [file for file in ["config.json", *files] if not (folder / file).exists()]
    if missing:
        print(f"{folder}: {', '.join(missing)} missing; make it with --out {folder.parent} --only {name}")
        return False
    config = transformers.AutoConfig.from_pretrained(folder)
    model = load_model(folder, config)
    worst = max((check_case(model, folder, case) for case in fixture_configs.CASES.get(name, ())), default=0.0)
    if name == fixture_configs.TRAINED:
        worst = max(worst, fixture_training.check(model, folder))
    print(f"{name}: largest relative difference {worst:.3g}")
    return worst <= 1e-6


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=here / "fixtures")
    parser.add_argument("--only", choices=list(fixture_configs.MAKERS))
    parser.add_argument("--check", type=pathlib.Path)
    args = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    names = [args.only] if args.only else list(fixture_configs.MAKERS)
    if args.check:
        sys.exit(0 if all([check_fixture(args.check / name) for name in names]) else 1)
    for name in names:
        make_fixture(args.seed, name, args.out / name)


if __name__ == "__main__":
    main()
