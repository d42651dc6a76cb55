"""Has other systems judge what Weft exports for them: check_exports.py PROGRAM MEGATRON MINDFORMERS [--seed N] [--plans N]

Random plans of Llama 3 8B and Qwen3-30B-A3B (degrees, uneven stages, interleaving, recomputation, context parallelism, order of
ranks, ZeRO, precision) are exported. Every Megatron-LM line goes through Megatron-LM's own parse_args, validate_args and TransformerConfig,
and what these make of it must be the plan again: degrees, batch, layers of every stage, recomputation, order. Every uneven
placement also goes through Megatron-LM's layout parser alone. What Weft refuses is counted by field.

Every MindFormers file goes through MindFormers' own LayerSetting, taken alone from its source so that MindSpore is not needed,
which must come to the same layers and recomputation.

MEGATRON and MINDFORMERS are clones. No GPU is needed; the device that Megatron-LM asks for is taken to be Hopper.

    python -m venv env && env/bin/pip install torch==2.11.0 numpy pyyaml typing_extensions
    env/bin/python tests/parity/check_exports.py build/weft ../Megatron-LM ../mindformers
"""

import argparse
import ast
import collections
import contextlib
import copy
import io
import json
import logging
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import types
import typing
import warnings

import numpy
import typing_extensions
import yaml

PLANS = pathlib.Path(__file__).parents[2] / "scenarios/plans"
MODELS = {
    "llama3-8b_gpipe_tp2_pp2_dp2": "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --swiglu",
    "qwen3-30b-a3b_zb_h1_ep8": "--num-layers 48 --hidden-size 2048 --num-attention-heads 32 --num-experts 128 "
                               "--moe-router-topk 8 --moe-ffn-hidden-size 768 --swiglu",
}
# What is not the plan's to say, but what Megatron-LM asks for.
REST = ("--seq-length 4096 --max-position-embeddings 4096 --tokenizer-type NullTokenizer --vocab-size 1000 "
        "--transformer-impl local --no-gradient-accumulation-fusion --lr 1e-4 --train-iters 1 --group-query-attention "
        "--num-query-groups 4 --untie-embeddings-and-output-weights --no-persist-layer-norm --disable-bias-linear "
        "--normalization RMSNorm --position-embedding-type rope --no-rope-fusion")


def hash_of(document):
    value = 14695981039346656037
    for byte in json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return f"{value:016x}"


def spread(rng, layers, stages):
    """Layers of every stage: even, nearly even, or anything, with empty stages too."""
    kind = rng.choice(("even", "near", "any"))
    if kind != "any":
        counts = [layers // stages + (s < layers % stages) for s in range(stages)]
        if kind == "near":
            rng.shuffle(counts)
        return counts
    cuts = sorted(rng.choices(range(layers + 1), k=stages - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, layers])]


def random_plan(rng, base):
    plan = copy.deepcopy(base)
    llm = plan["modules"]["llm"]
    layers = sum(map(sum, llm["layers"]))
    has_experts = "a3b" in plan["model"]["name"]
    tp, cp, pp, dp = rng.choice((1, 2, 4)), rng.choice((1, 1, 2, 4)), rng.choice((1, 2, 3, 4, 6, 8)), rng.choice((1, 2, 4, 8))
    vpp = rng.choice((1, 1, 2, 3)) if pp > 1 else 1
    stages = spread(rng, layers, pp * vpp)
    llm.update(tp=tp, cp=cp, pp=pp, dp=dp, vpp=vpp, zero=rng.choice((0, 1, 1, 2, 3)),
               ep=rng.choice([e for e in (1, 2, 4, 8) if dp * cp % e == 0]) if has_experts else 1,
               cp_ulysses=rng.choice([u for u in (1, 2, 4) if cp % u == 0]), sequence_parallel=tp > 1 and rng.random() < 0.8,
               axis_order=rng.choice((["tp", "cp", "dp", "pp"],) * 3 + (["tp", "cp", "pp", "dp"], ["cp", "tp", "dp", "pp"])),
               layers=[[stages[c * pp + r] for c in range(vpp)] for r in range(pp)], ranks=f"0-{tp * cp * pp * dp - 1}")
    if tp * cp * pp * dp == 1:
        llm["ranks"] = "0"
    few = rng.choice((0, 0, 1, 2, 99))
    kind = rng.choice(("full", "full", "attention"))
    llm["recompute"] = [[recompute_words(kind, min(few, n) if kind == "full" else n * (few > 0), n) for n in row]
                        for row in llm["layers"]]
    if rng.random() < 0.1:
        llm["recompute"][0][0] = recompute_words("full", 1, llm["layers"][0][0])
    mbs, microbatches = rng.choice((1, 2)), pp * rng.choice((1, 2, 5)) + (rng.random() < 0.1)
    plan["schedule"] = {"name": "interleaved_1f1b" if vpp > 1 else "1f1b", "mbs": mbs, "microbatches": microbatches}
    plan["world_size"] = tp * cp * pp * dp
    plan["cluster"]["spec"].update(nodes=1, devices_per_node=plan["world_size"])
    plan["workload"]["spec"]["global_batch_samples"] = mbs * microbatches * dp
    for part in ("cluster", "workload"):
        plan[part]["hash"] = hash_of(plan[part]["spec"])
    plan["precision"] = rng.choice(({"compute": "bf16", "master": "fp32", "reduce": "fp32"},
                                    {"compute": "bf16", "master": "fp32", "reduce": "bf16"},
                                    {"compute": "fp16", "master": "fp32", "reduce": "fp32"},
                                    {"compute": "fp32", "master": "fp32", "reduce": "fp32"}))
    plan["overlap"] = {"dp": rng.random() < 0.8, "tp": rng.random() < 0.8}
    return plan


def load_megatron(path):
    sys.path.insert(0, str(path))
    if not hasattr(typing, "override"):  # before Python 3.12
        typing.override = typing_extensions.override
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    from megatron.training import arguments
    arguments.get_device_arch_version = lambda: 9
    return types.SimpleNamespace(arguments=arguments, Layout=PipelineParallelLayerLayout, decoder=LayerType.decoder,
                                 embedding=LayerType.embedding, loss=LayerType.loss)


def judged(megatron, line, model, plan):
    """Megatron-LM's arguments after its own checks, and its configuration of the layers."""
    fully_sharded = "--use-megatron-fsdp" in line
    os.environ.update(WORLD_SIZE=str(plan["world_size"]), RANK="0", LOCAL_RANK="0")
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    if not fully_sharded:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    sys.argv = ["pretrain", *shlex.split(model), *shlex.split(REST), *shlex.split(line)]
    with contextlib.redirect_stdout(io.StringIO()):
        args = megatron.arguments.parse_args()
        megatron.arguments.validate_args(args)
        config = megatron.arguments.core_transformer_config_from_args(args)
    return args, config


def layers_of(megatron, args, config):
    """[rank][chunk], as Megatron-LM divides them."""
    vpp = args.virtual_pipeline_model_parallel_size or 1
    pp = args.pipeline_model_parallel_size
    if config.pipeline_model_parallel_layout is None:
        return [[args.num_layers // (pp * vpp)] * vpp for _ in range(pp)]
    layout = config.pipeline_model_parallel_layout.layout
    return [[layout[r][c].count(megatron.decoder) for c in range(vpp)] for r in range(pp)]


def recompute_words(kind, blocks, layers):
    return [f"{word}*{n}" for word, n in ((kind, blocks), ("keep", layers - blocks)) if n > 0] if blocks else []


def blocks_of(words, kind):
    return sum(int((word + "*1").split("*")[1]) for word in words if word.split("*")[0] == kind)


def recompute_of(config, layers):
    if config.recompute_granularity is None:
        return [[(0, 0) for _ in row] for row in layers]
    if config.recompute_granularity == "selective":
        assert config.recompute_modules == ["core_attn"]
        return [[(0, n) for n in row] for row in layers]
    assert config.recompute_method == "block"
    return [[(min(config.recompute_num_layers, n), 0) for n in row] for row in layers]


def compare(megatron, line, model, plan):
    args, config = judged(megatron, line, model, plan)
    llm, schedule, precision = plan["modules"]["llm"], plan["schedule"], plan["precision"]
    layers = layers_of(megatron, args, config)
    degrees = {name: llm[name] for name in ("tp", "cp", "pp", "dp", "vpp", "ep")}
    comm_type = args.cp_comm_type[0]
    ulysses = {"p2p": 1, "a2a": llm["cp"]}.get(comm_type) or args.hierarchical_context_parallel_sizes[0]
    sharded = {"optim_grads": 2, "optim_grads_params": 3}[args.data_parallel_sharding_strategy] \
        if args.use_megatron_fsdp else int(args.use_distributed_optimizer)
    order = ["tp", "cp", "pp", "dp"] if args.use_tp_pp_dp_mapping else ["tp", "cp", "dp", "pp"]
    pairs = {
        "degrees": (degrees, {"tp": args.tensor_model_parallel_size, "cp": args.context_parallel_size,
                              "pp": args.pipeline_model_parallel_size, "dp": args.data_parallel_size,
                              "vpp": args.virtual_pipeline_model_parallel_size or 1,
                              "ep": args.expert_model_parallel_size}),
        "cp_ulysses": (llm["cp_ulysses"], ulysses),
        "layers": (llm["layers"], layers),
        "recompute": ([[(blocks_of(c, "full"), blocks_of(c, "attention")) for c in row] for row in llm["recompute"]],
                      recompute_of(config, layers)),
        "order": ([a for a in llm["axis_order"] if llm[a] > 1], [a for a in order if llm[a] > 1]),
        "zero": (llm["zero"], sharded),
        "sequence_parallel": (llm["sequence_parallel"], args.sequence_parallel),
        "mbs": (schedule["mbs"], args.micro_batch_size),
        "microbatches": (schedule["microbatches"],
                         args.global_batch_size // (args.micro_batch_size * args.data_parallel_size)),
        "compute": (precision["compute"], "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32"),
        "reduce in fp32": (precision["reduce"] == "fp32",
                           args.accumulate_allreduce_grads_in_fp32 or precision["compute"] == "fp32"),
        "overlap.dp": (plan["overlap"]["dp"] and llm["dp"] * llm["cp"] > 1,
                       args.overlap_grad_reduce and llm["dp"] * llm["cp"] > 1),
        "overlap.tp": (plan["overlap"]["tp"] and llm["sequence_parallel"], args.tp_comm_overlap),
    }
    return [f"{name}: {ours} became {theirs}" for name, (ours, theirs) in pairs.items() if ours != theirs]


def load_layer_setting(path):
    """MindFormers' class that places layers, with a pipeline that may interleave and a log that is not kept."""
    source = (path / "mindformers/models/utils.py").read_text()
    node = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == "LayerSetting")
    log = types.SimpleNamespace(info=lambda *_: None, warning=lambda *_: None)
    context = types.SimpleNamespace(get_auto_parallel_context=lambda _: True)
    names = {"np": numpy, "re": re, "ms": context, "logger": log, "MAX_INT32": 2**31 - 1}
    exec(compile(ast.Module([node], []), "LayerSetting", "exec"), names)
    return names["LayerSetting"]


def compare_mindformers(layer_setting, text, plan):
    settings, llm, schedule = yaml.safe_load(text), plan["modules"]["llm"], plan["schedule"]
    config, model = settings["parallel_config"], settings["model"]["model_config"]
    recompute = types.SimpleNamespace(recompute=settings["recompute_config"]["recompute"], select_recompute=False,
                                      select_comm_recompute=False, select_recompute_exclude=False,
                                      select_comm_recompute_exclude=False)
    placed = layer_setting(sum(map(sum, llm["layers"])), model["offset"],
                           types.SimpleNamespace(pipeline_stage=config["pipeline_stage"], recompute=recompute,
                                                 swap=types.SimpleNamespace(swap=False), gradient_aggregation_group=1),
                           model.get("pp_interleave_num", 1))
    microbatches = config["micro_batch_num"] * settings["runner_config"]["gradient_accumulation_steps"]
    pairs = {
        "layers": (llm["layers"], numpy.transpose(placed.layer_list).tolist()),
        "recompute": ([[blocks_of(c, "full") for c in row] for row in llm["recompute"]],
                      numpy.transpose(placed.layer_recompute).tolist()),
        "degrees": ([llm[name] for name in ("tp", "cp", "pp", "dp", "ep")],
                    [config.get(name, 1) for name in ("model_parallel", "context_parallel", "pipeline_stage", "data_parallel",
                                                      "expert_parallel")]),
        "microbatches": (schedule["microbatches"], microbatches),
        "mbs": (schedule["mbs"], settings["runner_config"]["batch_size"]),
    }
    return [f"{name}: {ours} became {theirs}" for name, (ours, theirs) in pairs.items() if ours != theirs]


def export(program, path, target, refused):
    run = subprocess.run([program, "export", "--plan", path, "--to", target], capture_output=True, text=True)
    if run.returncode == 0:
        return run.stdout
    fields = [line.split(":")[0].strip() for line in run.stderr.splitlines()[1:]]
    refused.update(f"{target} {field}" for field in fields or [run.stderr.split(": ")[2]])
    return None


def check_megatron(megatron, line, model, plan):
    words, llm = shlex.split(line), plan["modules"]["llm"]
    try:
        if "--pipeline-model-parallel-layout" in words:
            layout = megatron.Layout(words[words.index("--pipeline-model-parallel-layout") + 1], llm["pp"])
            layout.validate_layer_layout(num_layers=sum(map(sum, llm["layers"])), mtp_num_layers=None)
        return compare(megatron, line, model, plan)
    except (Exception, SystemExit) as error:  # an assertion of Megatron-LM's, or its argparse
        return [f"{type(error).__name__}: {error}"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("megatron", type=pathlib.Path)
    parser.add_argument("mindformers", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plans", type=int, default=1000)
    options = parser.parse_args()
    megatron, layer_setting = load_megatron(options.megatron), load_layer_setting(options.mindformers)
    rng = random.Random(options.seed)
    refused, checked, failures = collections.Counter(), collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.plans):
            name, model = rng.choice(list(MODELS.items()))
            plan = random_plan(rng, json.loads((PLANS / f"{name}.json").read_text()))
            path = pathlib.Path(folder, "plan.json")
            path.write_text(json.dumps(plan))
            if line := export(options.program, path, "megatron", refused):
                checked.update(["lines", *(["layouts"] if "-layout " in line else [])])
                failures += [f"{line}  {difference}" for difference in check_megatron(megatron, line, model, plan)]
            if text := export(options.program, path, "mindformers", refused):
                checked.update(["files"])
                failures += [f"{text}  {difference}" for difference in compare_mindformers(layer_setting, text, plan)]
    print(*failures[:20], sep="\n")
    print(f"{checked['lines']} Megatron-LM lines, {checked['layouts']} of them with a layout, {checked['files']} MindFormers files, "
          f"{len(failures)} differences")
    print("refused:", ", ".join(f"{field} {count}" for field, count in sorted(refused.items())))
    sys.exit(1 if failures or min(checked["lines"], checked["layouts"], checked["files"]) == 0 else 0)


if __name__ == "__main__":
    main()
