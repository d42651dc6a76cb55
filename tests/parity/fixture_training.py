"""A short training run with PyTorch's AdamW: five steps, a batch of its own each, losses and gradient norms kept."""

import json

import torch
from safetensors.torch import load_file, save_file

from fixture_inputs import draw_case, pack, write_json
from fixture_reference import run, saved_names

STEPS = 5
SETTINGS = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0}


def train(model, batches):
    """Trains the model in place; weights with two dimensions or more decay, others do not."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": SETTINGS["weight_decay"]},
                                   {"params": others, "weight_decay": 0.0}], lr=SETTINGS["lr"],
                                  betas=(SETTINGS["beta1"], SETTINGS["beta2"]), eps=SETTINGS["eps"], foreach=False)
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = run(model, batch, {})[0]["loss"]
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS["clip_norm"], foreach=False).item())
        optimizer.step()
        losses.append(loss.item())
    weights = saved_names(model, {k: p for k, p in model.named_parameters()})
    return {"losses": losses, "grad_norms": norms}, weights


def make(model, folder, key):
    batches = []
    for step in range(STEPS):
        batches.append(pack(model.config, draw_case(model.config, f"step{step}", f"{key}/{step}"), f"{key}/{step}"))
        save_file(batches[-1], folder / f"step{step}.safetensors")
    found, weights = train(model, batches)
    save_file(weights, folder / "trained.safetensors")
    write_json(folder / "training.json", {"steps": STEPS} | SETTINGS | found)


def check(model, folder):
    stored = json.loads((folder / "training.json").read_text())
    found, weights = train(model, [load_file(folder / f"step{step}.safetensors") for step in range(STEPS)])
    worst = max(abs(a - b) / abs(b) for k in found for a, b in zip(found[k], stored[k]))
    trained = load_file(folder / "trained.safetensors")
    return max(worst, *((weights[k] - trained[k]).norm().item() / trained[k].norm().item() for k in trained))
