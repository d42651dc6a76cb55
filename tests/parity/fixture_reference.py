"""What Hugging Face's implementation computes for a fixture's inputs: sample by sample, unpadded, unfused, on the CPU."""

import contextlib
import pathlib
import tempfile

import torch
from safetensors.torch import load_file
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, InternVLForConditionalGeneration
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniThinkerForConditionalGeneration
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLForConditionalGeneration
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl_moe.modeling_qwen3_vl_moe import (
    Qwen3VLMoeForConditionalGeneration,
    Qwen3VLMoeTextTopKRouter,
)

from fixture_inputs import IGNORED, unpack

MULTIMODAL = {
    "qwen2_vl": Qwen2VLForConditionalGeneration,
    "qwen2_5_vl": Qwen2_5_VLForConditionalGeneration,
    "qwen2_5_omni_thinker": Qwen2_5OmniThinkerForConditionalGeneration,
    "qwen3_vl": Qwen3VLForConditionalGeneration,
    "qwen3_vl_moe": Qwen3VLMoeForConditionalGeneration,
    "internvl": InternVLForConditionalGeneration,
}
PLAIN = {"attn_implementation": "eager", "experts_implementation": "eager"}
GENERATED = 16


def new_model(config):
    if config.model_type in MULTIMODAL:
        return MULTIMODAL[config.model_type]._from_config(config, **PLAIN).eval()
    return AutoModelForCausalLM.from_config(config, **PLAIN).eval()


def load_model(folder, config, dtype=torch.float32):
    """As users load it: weights in dtype, while what the model computes at construction stays float32."""
    cls = MULTIMODAL.get(config.model_type, AutoModelForCausalLM)
    return cls.from_pretrained(folder, dtype=dtype, **PLAIN).eval()


class InDouble(TorchFunctionMode):
    """Takes every request for float32 as one for float64, so that nothing is rounded to float32 on the way."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        double = lambda x: torch.float64 if x is torch.float32 else x
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*map(double, args), **{k: double(v) for k, v in (kwargs or {}).items()})


@contextlib.contextmanager
def in_double():
    torch.set_default_dtype(torch.float64)
    try:
        with InDouble():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def randomise(model, draw):
    """Weights that let nothing pass by accident: no norm of ones, no bias of zeros, activations of order one."""
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if "norm" in name or "ln_" in name:
                weight.copy_(draw.normal(*weight.shape) * 0.3 + (0 if name.endswith("bias") else 1))
            elif name.endswith("bias"):
                weight.copy_(draw.normal(*weight.shape) * 0.3)
            elif "embed_tokens" in name:
                weight.copy_(draw.normal(*weight.shape) * 0.3)
            elif weight.dim() == 3 and "experts" in name:
                weight.copy_(draw.normal(*weight.shape) * weight.shape[2] ** -0.5)
            else:
                weight.copy_(draw.normal(*weight.shape) * 1.2 * weight[0].numel() ** -0.5)


def as_published(config, tensors):
    """Experts as the published files have them, inputs first. transformers reads both and writes a fresh model the other way."""
    if config.model_type != "qwen3_vl_moe":
        return tensors
    return {name: t.transpose(1, 2).contiguous() if ".experts." in name else t for name, t in tensors.items()}


def saved_names(model, tensors):
    """Tensors of parameters under the names, and cut, as the files hold the parameters themselves."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, state_dict={k: v.detach().clone() for k, v in tensors.items()})
        return as_published(model.config, load_file(pathlib.Path(folder) / "model.safetensors"))


def model_inputs(config, sample, facts):
    """A sample as the keyword arguments of the family's forward."""
    ids = sample["input_ids"]
    inputs = {"input_ids": ids[None]}
    if config.model_type not in MULTIMODAL:
        return inputs
    if sample["image"]:
        inputs["pixel_values"] = torch.cat([m["pixel_values"] for _, m in sample["image"]])
    if config.model_type == "internvl":
        return inputs
    if sample["image"]:
        inputs["image_grid_thw"] = torch.stack([g for g, _ in sample["image"]])
    if sample["video"]:
        inputs["pixel_values_videos"] = torch.cat([m["pixel_values_videos"] for _, m in sample["video"]])
        inputs["video_grid_thw"] = torch.stack([g for g, _ in sample["video"]])
        seconds = torch.stack([m["second_per_grid_ts"] for _, m in sample["video"]])
    if config.model_type == "qwen2_5_omni_thinker":
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        if sample["video"]:
            inputs["video_second_per_grid"] = seconds
            inputs["use_audio_in_video"] = facts.get("use_audio_in_video", False)
        if sample["audio"]:
            lengths = torch.stack([n for n, _ in sample["audio"]])
            clips = [m["input_features"].T for _, m in sample["audio"]]
            inputs["input_features"] = torch.nn.utils.rnn.pad_sequence(clips, batch_first=True).transpose(1, 2)
            inputs["feature_attention_mask"] = (torch.arange(lengths.max()) < lengths[:, None]).long()
    else:
        inputs["mm_token_type_ids"] = ((ids == config.image_token_id) + 2 * (ids == config.video_token_id)).int()[None]
        if sample["video"] and config.model_type == "qwen2_5_vl":
            inputs["second_per_grid_ts"] = seconds
    return inputs


def vision_rows(out):
    """What the llm gets of each medium: merged rows, beside them those that earlier layers' mergers gave."""
    return torch.cat([out.pooler_output, *(getattr(out, "deepstack_features", None) or [])], 1)


class Watch:
    """Hooks that keep what passes inside the model: positions, encoder rows, router logits by layer."""

    def __init__(self, model):
        self.model, self.positions, self.vision, self.audio, self.router = model, [], [], [], {}

    def __enter__(self):
        self.hooks = [self.watch_positions()]
        for name, module in self.model.named_modules():
            if name.split(".")[-1] == "visual":
                self.hooks.append(module.register_forward_hook(lambda m, a, out: self.vision.append(vision_rows(out))))
            elif name.split(".")[-1] == "multi_modal_projector":
                self.hooks.append(module.register_forward_hook(lambda m, a, out: self.vision.append(out.flatten(0, 1))))
            elif name.split(".")[-1] == "audio_tower":
                self.hooks.append(module.register_forward_hook(lambda m, a, out: self.audio.append(out.last_hidden_state)))
            elif isinstance(module, (Qwen3MoeTopKRouter, Qwen3VLMoeTextTopKRouter)):
                self.router[name] = []
                self.hooks.append(module.register_forward_hook(lambda m, a, out, n=name: self.router[n].append(out[0])))
        return self

    def watch_positions(self):
        """Where they are turned into angles or, where they are learned, looked up."""
        learned = dict(self.model.named_modules()).get("transformer.wpe")
        if learned is not None:
            return learned.register_forward_pre_hook(lambda m, args: self.positions.append(args[0]))
        return self.model.get_decoder().rotary_emb.register_forward_pre_hook(
            lambda m, args, kwargs: self.positions.append(kwargs["position_ids"] if "position_ids" in kwargs else args[1]),
            with_kwargs=True)

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()


def run(model, tensors, facts):
    """Forward over all samples: what was computed, with its graph, and the sum of cross entropies over their number."""
    config = model.config
    logits, images, videos, loss = [], [], [], 0
    samples = unpack(config, tensors)
    with Watch(model) as watch:
        for sample in samples:
            watch.vision.clear()
            # A forward after a generation must not see the offsets that the generation left behind.
            getattr(model, "model", model).rope_deltas = model.rope_deltas = None
            logits.append(model(**model_inputs(config, sample, facts), use_cache=False).logits[0])
            seen = list(watch.vision)
            images += [seen.pop(0)] if sample["image"] else []
            videos += [seen.pop(0)] if sample["video"] else []
            loss = loss + torch.nn.functional.cross_entropy(logits[-1], sample["targets"], ignore_index=IGNORED, reduction="sum")
    loss = loss / (tensors["targets"] != IGNORED).sum()
    positions = torch.cat([p.reshape(-1, p.shape[-1]) for p in watch.positions], 1)
    rows = {"vision_rows": images, "video_rows": videos, "audio_rows": watch.audio}
    rows = {k: torch.cat(v) for k, v in rows.items() if v}
    return {"position_ids": positions, "logits": torch.cat(logits), "loss": loss} | rows, watch.router


def balance_loss(config, router):
    """Megatron-LM's load-balancing loss over all tokens of the case, summed over layers; also the closest call of a choice."""
    total, closest = 0, 1.0
    for parts in router.values():
        probs = torch.cat(parts).softmax(-1)
        ordered = probs.sort(-1, descending=True)
        k, experts, tokens = config.get_text_config().num_experts_per_tok, probs.shape[1], probs.shape[0]
        closest = min(closest, (ordered.values[:, k - 1] - ordered.values[:, k]).min().item())
        counts = torch.bincount(ordered.indices[:, :k].flatten(), minlength=experts)
        total = total + experts / (tokens**2 * k) * (counts * probs.sum(0)).sum()
    return total, closest


def gradients(model, loss, prefix, keep_graph=False):
    model.zero_grad(set_to_none=True)
    loss.backward(retain_graph=keep_graph)
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {prefix + name: grad for name, grad in saved_names(model, grads).items()}


def evaluate(model, tensors, facts):
    """Expected tensors of a case, its gradients among them, and the closest call of its router."""
    found, router = run(model, tensors, facts)
    expected, closest = dict(found), None
    if model.config.model_type in ("qwen2_vl", "qwen2_5_vl"):
        older = older_positions(model.config, tensors)
        if not torch.equal(older, found["position_ids"]):
            expected["position_ids_v4"] = older
    expected |= gradients(model, found["loss"], "grad.", keep_graph=bool(router))
    if router:
        aux, closest = balance_loss(model.config, router)
        expected["loss_with_aux"] = found["loss"] + facts["aux_coefficient"] * aux
        expected |= gradients(model, expected["loss_with_aux"], "grad_with_aux.")
    return {k: v.detach().contiguous().clone() for k, v in expected.items()}, closest


def unreached(model, expected):
    """Parameters that no gradient reached, such as an encoder's in a case without its media."""
    names = saved_names(model, dict(model.named_parameters()))
    return sorted(name for name in names if f"grad.{name}" not in expected)


def older_positions(config, tensors):
    """Positions as transformers 4 counted them: text goes on after the largest position of a medium, its time included."""
    parts = []
    for sample in unpack(config, tensors):
        ids, start, at = sample["input_ids"].tolist(), 0, 0
        media = {config.image_token_id: list(sample["image"]), config.video_token_id: list(sample["video"])}
        while at < len(ids):
            if ids[at] not in media:
                parts.append(torch.full((3, 1), start))
                start, at = start + 1, at + 1
                continue
            (t, h, w), medium = media[ids[at]].pop(0)
            merge = config.vision_config.spatial_merge_size
            step = int(medium.get("second_per_grid_ts", 1)) * getattr(config.vision_config, "tokens_per_second", 1)
            grid = torch.meshgrid(torch.arange(t) * step, torch.arange(h // merge), torch.arange(w // merge), indexing="ij")
            parts.append(torch.stack(grid).reshape(3, -1) + start)
            start, at = parts[-1].max().item() + 1, at + parts[-1].shape[1]
    return torch.cat(parts, 1)


def in_bfloat16(folder, config, tensors, facts, expected):
    with torch.no_grad():
        found, _ = run(load_model(folder, config, torch.bfloat16), tensors, facts)
    logits = expected["logits"]
    return {"bf16_logits_error": ((found["logits"].float() - logits).norm() / logits.norm()).item(),
            "bf16_loss": found["loss"].float().item()}


def in_float64(model, tensors, facts):
    with in_double(), torch.no_grad():
        exact = new_model(type(model.config).from_dict(model.config.to_dict()))
        exact.load_state_dict(model.state_dict())
        found, _ = run(exact.double(), {k: v.double() if v.is_floating_point() else v for k, v in tensors.items()}, facts)
    return {"logits_f64": found["logits"], "loss_f64": found["loss"]}


def greedy(model, tensors, facts, sample):
    """Greedy continuation of one sample with a cache: tokens, where the first stands, how close the closest choice was."""
    inputs = model_inputs(model.config, unpack(model.config, tensors)[sample], facts)
    inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    model.generation_config.eos_token_id = None
    with Watch(model) as watch:
        out = model.generate(**inputs, do_sample=False, use_cache=True, max_new_tokens=GENERATED, output_logits=True,
                             return_dict_in_generate=True, pad_token_id=0)
    best = torch.cat(out.logits).topk(2, -1).values
    fed = [p.unique().tolist() for p in watch.positions[1:]]
    assert all(len(p) == 1 for p in fed), "a generated token's positions differ"
    return {"tokens": out.sequences[0, inputs["input_ids"].shape[1]:].tolist(), "first_position": fed[0][0],
            "smallest_margin": (best[:, 0] - best[:, 1]).min().item()}
