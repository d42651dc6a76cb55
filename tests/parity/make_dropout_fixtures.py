"""What Hugging Face's implementation computes of the fixtures' models while they drop, for Weft's dropout to be compared with.

    python3 -m venv env && env/bin/pip install torch==2.11.0 transformers==5.17.0 safetensors==0.8.0 numpy==2.3.0
    env/bin/python tests/parity/make_dropout_fixtures.py [--out DIR] [--seed N]
    env/bin/python tests/parity/make_dropout_fixtures.py --check DIR

transformers' own modules say where something is dropped: its models run in training mode, and every call of PyTorch's
dropout gets its mask here. Qwen2.5-Omni's audio layers, which were made of Whisper's, read what they should drop and drop
nothing; Whisper's own layer says where. Which elements a mask drops is drawn as docs/design/models-on-one-device.md says, with
NumPy.
"""

import argparse
import json
import pathlib
import re
import sys

import numpy
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniThinkerConfig
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniAudioEncoderLayer
from transformers.models.whisper.modeling_whisper import WhisperEncoderLayer

from fixture_inputs import IGNORED, unpack
from fixture_reference import gradients, in_double, model_inputs, new_model
from fixture_reference import load_model as load_fixture

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
# By name: the fixture, its case, and what drops in it.
CASES = {
    "gpt2": ("gpt2", "packed", {"embd_pdrop": 0.25, "attn_pdrop": 0.3, "resid_pdrop": 0.15}),
    "internvl": ("internvl", "tiles", {"vision_config": {"attention_dropout": 0.3, "hidden_dropout_prob": 0.2,
                                                         "projection_dropout": 0.15}}),
    "internvl_norms": ("internvl_norms", "tiles", {"vision_config": {"projection_dropout": 0.4},
                                                   "text_config": {"attention_dropout": 0.1}}),
    "qwen2_5_omni": ("qwen2_5_omni", "audio", {"audio_config": {"attention_dropout": 0.3, "dropout": 0.2,
                                                                "activation_dropout": 0.25}}),
}
EMBEDDING, ATTENTION, ATTENTION_SUM, MLP_SUM, MLP = 0, 1, 2, 3, 6
# Modules of dropout, those whose attention calls the function, and those that run before a layer calls it, by what their
# names end in.
SITES = [
    (r"transformer\.drop|vision_tower\.embeddings\.dropout", EMBEDDING),
    (r"h\.(\d+)\.attn|layer\.(\d+)\.attention|layers\.(\d+)\.self_attn", ATTENTION),
    (r"h\.(\d+)\.attn\.resid_dropout|layer\.(\d+)\.attention\.projection_dropout|layers\.(\d+)\.self_attn\.out_proj",
     ATTENTION_SUM),
    (r"layers\.(\d+)\.fc1", MLP),
    (r"h\.(\d+)\.mlp\.dropout|layer\.(\d+)\.dropout|layers\.(\d+)\.fc2", MLP_SUM),
]
WORD = 0xFFFFFFFF
TEXT, VISION, AUDIO = "text", "vision", "audio"
APART = {TEXT: 0, VISION: 0x9E3779B97F4A7C15, AUDIO: 2 * 0x9E3779B97F4A7C15 % 2**64}  # seeds of modules


def philox(counter, key):
    """Philox 4x32-10 of counters, four arrays of one shape, as its authors describe it."""
    c = [numpy.asarray(x, dtype=numpy.uint64) for x in numpy.broadcast_arrays(*counter)]
    k = [int(x) for x in key]
    for _ in range(10):
        a, b = c[0] * numpy.uint64(0xD2511F53), c[2] * numpy.uint64(0xCD9E8D57)
        shift, low = numpy.uint64(32), numpy.uint64(WORD)
        c = [(b >> shift) ^ c[1] ^ numpy.uint64(k[0]), b & low, (a >> shift) ^ c[3] ^ numpy.uint64(k[1]), a & low]
        k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
    return numpy.stack(c, -1)


def key_of(seed, step, layer, site):
    made = philox([step & WORD, step >> 32, 0x64726F70, 0], [seed & WORD, seed >> 32])
    made = philox([layer, site, made[2], made[3]], made[:2])
    return made[:2]


def chosen(blocks, lanes):
    """Of every element's block of four numbers its own."""
    return numpy.take_along_axis(blocks, lanes[..., None].astype(numpy.int64), -1)[..., 0]


class Masks:
    """Takes the place of PyTorch's dropout while one sample runs."""

    def __init__(self, model, seed, step):
        self.seed, self.step, self.rows, self.now, self.num_seen = seed, step, {}, None, 0
        self.calls = {}
        for name, module in model.named_modules():
            for pattern, site in SITES:
                found = re.search(rf"(?:^|\.)(?:{pattern})$", name)
                if found:
                    layer = int(next((g for g in found.groups() if g), 0))
                    kind = VISION if "vision_tower" in name else AUDIO if "audio_tower" in name else TEXT
                    module.register_forward_pre_hook(lambda m, a, s=(kind, layer, site): self.begin(s))

    def begin(self, site):
        self.now, self.num_seen = site, 0

    def __call__(self, x, p=0.5, training=True, inplace=False):
        if p == 0 or not training:
            return x
        kind, layer, site = self.now
        if x.dim() == 2:  # sound has no batch
            return self(x[None], p)[0]
        assert (x.dim() == 4) == (site == ATTENTION), f"{site} drops rows of {x.dim()} dims"
        self.calls[(kind, site)] = self.calls.get((kind, site), 0) + 1
        key = key_of(self.seed ^ APART[kind], self.step, layer, site)
        rows = self.rows[kind]  # [batch, rows]
        if site == ATTENTION:
            # One call after the other has rows that see each other.
            rows = rows[:, self.num_seen:self.num_seen + x.shape[2]]
            self.num_seen += x.shape[2]
            query, place = rows[:, None, :, None], (rows & WORD)[:, None, None, :]
            head = numpy.arange(x.shape[1])[None, :, None, None]
            drawn = philox([query & WORD, query >> 32, place // 4, head], key)
            lanes = numpy.broadcast_to(place % 4, drawn.shape[:-1])
        else:
            column, row = numpy.arange(x.shape[2])[None, None, :], rows[:, :, None]
            drawn = philox([row & WORD, row >> 32, column // 4, 0], key)
            lanes = numpy.broadcast_to(column % 4, drawn.shape[:-1])
        kept = chosen(drawn, lanes) >= int(p * 2**32)
        return x * (torch.from_numpy(kept).to(x.dtype) / (1 - p))

    def number(self, config, sample, number):
        """Rows of a sample: tokens by their places; patches by theirs among all of the sample's, squares that are merged
        together, and a class's row by that of its first patch, set apart; sound by its places in all clips."""
        high = number << 32
        self.rows = {TEXT: (high | numpy.arange(len(sample["input_ids"])))[None]}
        if sample["audio"]:
            chunk = 2 * config.audio_config.n_window
            frames = [int(n) for n, _ in sample["audio"]]
            positions = sum((min(chunk, n - begin) - 1) // 2 + 1 for n in frames for begin in range(0, n, chunk))
            self.rows[AUDIO] = (high | numpy.arange(positions))[None]
        if config.model_type != "internvl" or not sample["image"]:
            return
        side = config.vision_config.image_size[0] // config.vision_config.patch_size[0]
        merge = round(1 / config.downsample_ratio)
        y, x = numpy.divmod(numpy.arange(side * side), side)
        place = ((y // merge) * (side // merge) + x // merge) * merge**2 + y % merge * merge + x % merge
        tiles = [high | (tile * side * side + place) for tile in range(len(sample["image"]))]
        self.rows[VISION] = numpy.stack([numpy.concatenate([[t[0] | 1 << 31], t]) for t in tiles])


def changed_config(folder, changes):
    fields = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        fields[key] = fields[key] | value if isinstance(value, dict) else value
    if fields["model_type"] == "qwen2_5_omni_thinker":
        return Qwen2_5OmniThinkerConfig(**fields)
    return AutoConfig.for_model(**fields)


def drop_like_whisper(model):
    """Has audio layers run Whisper's code, which drops what they read and leave out."""
    for layer in model.modules():
        if not isinstance(layer, Qwen2_5OmniAudioEncoderLayer):
            continue
        attention = layer.self_attn
        attention.attention_dropout = attention.dropout
        attend = attention.forward
        attention.forward = lambda hidden_states, attention_mask, cu_seqlens, attend=attend: (
            attend(hidden_states, cu_seqlens=cu_seqlens), None)
        layer.forward = lambda hidden_states, cu_seqlens, layer=layer, **ignored: (
            WhisperEncoderLayer.forward(layer, hidden_states, None, cu_seqlens=cu_seqlens),)


def evaluate(name, seed, step):
    fixture, case, changes = CASES[name]
    folder = FIXTURES / fixture
    tensors = load_file(folder / f"{case}.safetensors")
    config = changed_config(folder, changes)
    weights = load_fixture(folder, config).state_dict()
    with in_double():
        model = new_model(config)
        model.load_state_dict(weights)
        model = model.double().train()
        drop_like_whisper(model)
        masks = Masks(model, seed, step)
        plain, torch.nn.functional.dropout = torch.nn.functional.dropout, masks
        try:
            loss = 0
            doubles = {k: v.double() if v.is_floating_point() else v for k, v in tensors.items()}
            for number, sample in enumerate(unpack(config, doubles)):
                masks.number(config, sample, number)
                logits = model(**model_inputs(config, sample, {}), use_cache=False).logits[0]
                loss = loss + torch.nn.functional.cross_entropy(logits, sample["targets"], ignore_index=IGNORED, reduction="sum")
            loss = loss / (tensors["targets"] != IGNORED).sum()
            found = {"loss": loss.detach()} | gradients(model, loss, "grad.")
        finally:
            torch.nn.functional.dropout = plain
    facts = {"fixture": fixture, "case": case, "seed": seed, "step": step, "config": changes,
             "calls": {f"{kind} {site}": n for (kind, site), n in sorted(masks.calls.items())}}
    return {k: v.contiguous() for k, v in found.items()}, facts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "dropout")
    parser.add_argument("--seed", type=int, default=0x1234567890)
    parser.add_argument("--step", type=int, default=7)
    parser.add_argument("--check", type=pathlib.Path)
    options = parser.parse_args()
    worst = 0
    for name in CASES:
        if options.check:
            facts = json.loads((options.check / f"{name}.json").read_text())
            found, _ = evaluate(name, facts["seed"], facts["step"])
            expected = load_file(options.check / f"{name}.safetensors")
            assert found.keys() == expected.keys(), name
            largest = max(((found[k] - v).norm() / v.norm().clamp(min=1e-30)).item() for k, v in expected.items()
                          if v.norm() > 1e-12)
            print(f"{name}: differs by {largest:.1e}")
            worst = max(worst, largest)
            continue
        options.out.mkdir(parents=True, exist_ok=True)
        found, facts = evaluate(name, options.seed, options.step)
        save_file(found, options.out / f"{name}.safetensors")
        (options.out / f"{name}.json").write_text(json.dumps(facts, indent=2) + "\n")
        print(f"{name}: loss {found['loss'].item():.6f}, masks by module and operator {facts['calls']}")
    sys.exit(worst > 1e-10)


if __name__ == "__main__":
    main()
