"""Ten steps of LoRA with PEFT and transformers on the committed tiny models, for Weft's adapters to be compared with.

    python3 -m venv env && env/bin/pip install torch==2.15.0 transformers==5.22.2 safetensors peft==0.21.2
    env/bin/python tests/parity/make_adapter_fixtures.py [--out DIR] [--only NAME]
    env/bin/python tests/parity/make_adapter_fixtures.py --check DIR [--only NAME]

A folder DIR/NAME has adapters as PEFT saves them before the first step, and training.json: model and batch, which are
those of fixtures/NAME, settings, losses and norms of gradients. --check trains anew from a folder's own adapters and
compares, so that adapters which other programs wrote can be judged, too.
"""

import argparse
import json
import pathlib
import shutil

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoConfig

from fixture_inputs import Draw, write_json
from fixture_reference import load_model, run

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE / "fixtures"
STEPS = 10
SETTINGS = {"lr": 5e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0}
LLM = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# By fixture: the batch, and the layers.
CASES = {
    "llama_tied": ("packed", LLM),
    "qwen2_tied": ("packed", ["q_proj", "v_proj", "down_proj"]),
    "qwen3": ("packed", LLM),
    "gpt2": ("packed", ["c_attn", "c_fc", "c_proj"]),
    "qwen3_moe_norm": ("packed", ["q_proj", "k_proj", "v_proj", "o_proj"]),
    "qwen2_vl_tied": ("mixed", LLM + ["qkv", "attn.proj", "fc1", "fc2", "mlp.0"]),
    # transformers 5.22 places videos of this family's mixed batch otherwise than 5.17, which fixtures are of.
    "qwen2_5_vl": ("video", LLM + ["qkv", "attn.proj"]),
    "qwen3_vl_untied": ("mixed", LLM + ["qkv", "linear_fc1", "linear_fc2"]),
    "internvl": ("tiles", LLM + ["fc1", "fc2", "linear_1"]),
    "qwen2_5_omni": ("mixed", LLM + ["out_proj", "fc1", "qkv"]),
}


def read_config(folder):
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] == "qwen2_5_omni_thinker":
        from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniThinkerConfig
        return Qwen2_5OmniThinkerConfig.from_pretrained(folder)
    return AutoConfig.from_pretrained(folder)


def train(model, batch):
    """Trains what PEFT has put into a model, in place."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=SETTINGS["lr"], betas=(SETTINGS["beta1"], SETTINGS["beta2"]),
                                  eps=SETTINGS["eps"], weight_decay=SETTINGS["weight_decay"], foreach=False)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = run(model, batch, {})[0]["loss"]
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, SETTINGS["clip_norm"], foreach=False).item())
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "grad_norms": norms}


def make(name, folder):
    case, targets = CASES[name]
    model = load_model(FIXTURES / name, read_config(FIXTURES / name))
    adapted = get_peft_model(model, LoraConfig(r=2, lora_alpha=3, target_modules=targets, bias="none"))
    draw = Draw(f"adapters/{name}")
    with torch.no_grad():
        for key, weight in sorted(adapted.named_parameters()):
            if "lora_" in key:
                weight.copy_(draw.normal(*weight.shape) * 0.3 * (weight.shape[1] ** -0.5 if "lora_A" in key else 1))
    shutil.rmtree(folder, ignore_errors=True)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = None
    config["target_modules"] = sorted(config["target_modules"])
    write_json(folder / "adapter_config.json", config)
    found = train(model, load_file(FIXTURES / name / f"{case}.safetensors"))
    write_json(folder / "training.json", {"fixture": name, "case": case} | SETTINGS | found)
    return found


def check(folder):
    """The largest relative difference from what the folder says."""
    stored = json.loads((folder / "training.json").read_text())
    base = FIXTURES / stored["fixture"]
    model = load_model(base, read_config(base))
    PeftModel.from_pretrained(model, folder, is_trainable=True)
    found = train(model, load_file(base / f"{stored['case']}.safetensors"))
    return max(abs(a - b) / abs(b) for key in found for a, b in zip(found[key], stored[key]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "adapters")
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--only", choices=list(CASES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in [options.only] if options.only else CASES:
        if options.check:
            print(f"{name}: largest relative difference {check(options.check / name):.2e}", flush=True)
        else:
            found = make(name, options.out / name)
            print(f"{name}: loss {found['losses'][0]:.4f} to {found['losses'][-1]:.4f}", flush=True)


if __name__ == "__main__":
    main()
