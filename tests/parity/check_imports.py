"""Has other systems read the files that Weft imports: check_imports.py PROGRAM [--megatron DIR] [--mindformers DIR] [--seed N] [--lines N]

The same values must come of the same files. Of Megatron-LM these are its own functional tests' files of arguments and random lines,
which go through its parse_args, validate_args and TransformerConfig; of MindFormers its own YAML files and random changes of them,
which go through its MindFormerConfig, build_parallel_config, LayerSetting and configuration classes of models. Compared are degrees, layers of every stage,
recomputation, ZeRO, precision, batch, sizes of the model, rate, schedule, optimizer, steps and seed.

What one side refuses and the other reads is listed by its reason: Weft reads some files that the system refuses on this machine,
which has no GPU, and refuses files of models that it does not know.

DIR are clones. Each system has an environment of its own, so give one of them at a time:

    python -m venv env && env/bin/pip install torch==2.11.0 numpy pyyaml typing_extensions
    env/bin/python tests/parity/check_imports.py build/weft --megatron ../Megatron-LM
    python -m venv ms && ms/bin/pip install mindspore==2.10.0 -r ../mindformers/requirements.txt
    ms/bin/python tests/parity/check_imports.py build/weft --mindformers ../mindformers
"""

import argparse
import collections
import contextlib
import copy
import io
import json
import math
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import types

import yaml

DEVICES = 8
# What this machine does not have, or what is not compared.
WITHOUT_GPU = "--no-gradient-accumulation-fusion --no-persist-layer-norm --transformer-impl local --no-rope-fusion --no-masked-softmax-fusion"
LEFT_OUT = ("--transformer-impl", "--attention-backend", "--spec", "--tp-comm-overlap", "--cuda-graph-impl", "--cuda-graph-scope",
            "--enable-cuda-graph", "--external-cuda-graph", "--use-flash-attn", "--moe-grouped-gemm", "--moe-permute-fusion",
            "--moe-router-fusion", "--cross-entropy-fusion-impl", "--ckpt-fully-parallel-load", "--nccl-communicator-config-path")


def imported(program, system, files, *options):
    run = subprocess.run([program, "import", "--from", system, *map(str, files), *options, "--json"], capture_output=True, text=True)
    return (json.loads(run.stdout), "") if run.returncode == 0 else (None, run.stderr.strip())


def reason(text):
    """A refusal without its numbers and paths."""
    return re.sub(r"\d+", "N", re.sub(r"/\S+", "", text.splitlines()[0] if text else "nothing"))[:110]


def differences(pairs):
    def same(a, b):
        if isinstance(a, float) or isinstance(b, float):
            return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-15)
        return a == b
    return [f"{name}: {ours} here, {theirs} there" for name, (ours, theirs) in pairs.items() if not same(ours, theirs)]


def recompute_of(llm):
    """[rank][chunk]; a plan that recomputes nothing has no list."""
    return llm["recompute"] or [[[] for _ in row] for row in llm["layers"]]


def words_of(arguments):
    """As Megatron-LM's tests put their files on a command line."""
    words = []
    for key, value in arguments.items():
        if value is True:
            words.append(key)
        elif value is not False and value is not None and value != "":
            text = str(value)
            if re.fullmatch(r"\[.*\]", text) and key != "--moe-layer-freq":
                text = text[1:-1]
            words += [key, *(shlex.split(text) if " " in text and not text.startswith("(") else [text])]
    return words


def without(words, keys):
    left, skips = [], False
    for word in words:
        if word.startswith("--"):
            skips = word.split("=")[0] in keys
        if not skips:
            left.append(word)
    return left


def degree(words, key):
    return int(words[words.index(key) + 1]) if key in words else 1


class Megatron:
    def __init__(self, path):
        import check_exports
        self.exports = check_exports
        self.path = path
        self.megatron = check_exports.load_megatron(path)
        from megatron.training.vocab_utils import calculate_padded_vocab_size
        self.padded = calculate_padded_vocab_size

    def parsed(self, words, world_size):
        os.environ.update(WORLD_SIZE=str(world_size), RANK="0", LOCAL_RANK="0", CUDA_DEVICE_MAX_CONNECTIONS="1")
        if "--use-megatron-fsdp" in words or "--use-torch-fsdp2" in words or "--use-custom-fsdp" in words:
            os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS")
        sys.argv = ["pretrain", *without(words, LEFT_OUT), *shlex.split(WITHOUT_GPU)]
        errors = io.StringIO()
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
                args = self.megatron.arguments.parse_args()
                self.megatron.arguments.validate_args(args)
                config = self.megatron.arguments.core_transformer_config_from_args(args)
        except SystemExit:
            return None, errors.getvalue().strip().splitlines()[-1]
        except Exception as error:  # an assertion of Megatron-LM's
            return None, f"{type(error).__name__}: {error}"
        return (args, config), ""

    def stages(self, args, config):
        """[rank][chunk] as Megatron-LM divides layers."""
        pp, vpp = args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size or 1
        layout = self.exports.layers_of(self.megatron, args, config)
        if config.pipeline_model_parallel_layout is not None:
            return layout
        first, last = args.decoder_first_pipeline_num_layers, args.decoder_last_pipeline_num_layers
        counts = [args.num_layers // pp] * pp
        if first or last:
            ends = [n for n in (first, last) if n]
            counts = [(args.num_layers - sum(ends)) // max(1, pp - len(ends))] * pp
            counts[0], counts[-1] = first or counts[0], last or counts[-1]
        by_chunk = [[n // vpp] * vpp for n in counts]
        both = args.account_for_embedding_in_pipeline_split, args.account_for_loss_in_pipeline_split
        if any(both):
            each = (args.num_layers + sum(both)) // (pp * vpp)
            by_chunk = [[each] * vpp for _ in range(pp)]
            by_chunk[0][0] -= both[0]
            by_chunk[-1][-1] -= both[1]
        return by_chunk

    def recomputed(self, config, layers):
        if config.recompute_granularity == "full" and config.recompute_method == "uniform":
            return [[(n, 0) for n in row] for row in layers]
        return self.exports.recompute_of(config, layers)

    def compare(self, run, args, config):
        plan, training = run["plan"], run["config"]
        llm, schedule, precision, model = plan["modules"]["llm"], plan["schedule"], plan["precision"], plan["model"]["config"]
        layers = self.stages(args, config)
        blocks = self.exports.blocks_of
        sharded = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}[args.data_parallel_sharding_strategy] \
            if args.use_megatron_fsdp else 3 if args.use_torch_fsdp2 else int(args.use_distributed_optimizer)
        if args.data_parallel_size * args.context_parallel_size == 1:
            sharded = 0
        has_experts = args.num_experts is not None
        comm = (args.cp_comm_type or ["p2p"])[0]
        ulysses = 1 if args.context_parallel_size == 1 or comm == "p2p" else args.context_parallel_size if comm == "a2a" \
            else args.hierarchical_context_parallel_sizes[0]
        of = lambda *names: next((model[n] for n in names if n in model), None)
        pairs = {
            "degrees": ([llm[n] for n in ("tp", "pp", "cp", "dp", "vpp")],
                        [args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.context_parallel_size,
                         args.data_parallel_size, args.virtual_pipeline_model_parallel_size or 1]),
            "ep": (llm["ep"], args.expert_model_parallel_size if has_experts else 1),
            "cp_ulysses": (llm["cp_ulysses"], ulysses),
            "sequence_parallel": (llm["sequence_parallel"], args.sequence_parallel),
            "layers": (llm["layers"], layers),
            "recompute": ([[(blocks(c, "full"), blocks(c, "attention")) for c in row] for row in recompute_of(llm)],
                          self.recomputed(config, layers)),
            "zero": (llm["zero"], sharded),
            "mbs": (schedule["mbs"], args.micro_batch_size),
            "batch": (plan["workload"]["spec"]["global_batch_samples"], args.global_batch_size),
            "tokens": (plan["workload"]["spec"]["sequence_tokens"], args.seq_length),
            "compute": (precision["compute"], "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32"),
            "reduce in fp32": (precision["reduce"] == "fp32",
                               args.accumulate_allreduce_grads_in_fp32 or precision["compute"] == "fp32"),
            "overlap.dp": (plan["overlap"]["dp"] and llm["dp"] * llm["cp"] > 1 and llm["zero"] < 2,
                           args.overlap_grad_reduce and llm["dp"] * llm["cp"] > 1 and sharded < 2),
            "layers of the model": (of("num_hidden_layers", "n_layer"), args.num_layers),
            "width": (of("hidden_size", "n_embd"), args.hidden_size),
            "heads": (of("num_attention_heads", "n_head"), args.num_attention_heads),
            "MLP": (of("intermediate_size", "n_inner"), args.ffn_hidden_size),
            "groups": (of("num_key_value_heads") or args.num_attention_heads, config.num_query_groups),
            "tied": (of("tie_word_embeddings"), not args.untie_embeddings_and_output_weights),
            "epsilon": (float(of("rms_norm_eps", "layer_norm_epsilon")), float(config.layernorm_epsilon)),
        }
        if args.vocab_size:
            pairs["vocabulary"] = (of("vocab_size"), self.padded(args.vocab_size, args.make_vocab_size_divisible_by,
                                                                 args.tensor_model_parallel_size, logging_enabled=False))
        if "head_dim" in model:
            pairs["channels"] = (model["head_dim"], config.kv_channels)
        if args.position_embedding_type == "rope":
            pairs["rotary base"] = (float(of("rope_theta")), float(args.rotary_base))
        if "n_embd" in model:
            pairs["dropout"] = ([model["embd_pdrop"], model["resid_pdrop"], model["attn_pdrop"]],
                                [args.hidden_dropout, args.hidden_dropout, args.attention_dropout])
        if has_experts:
            pairs["experts"] = ([of("num_experts"), of("num_experts_per_tok"), of("moe_intermediate_size")],
                                [args.num_experts, config.moe_router_topk, config.moe_ffn_hidden_size])
            pairs["routers' loss"] = (float(of("router_aux_loss_coef")), float(args.moe_aux_loss_coeff)
                                      if args.moe_router_load_balancing_type != "none" else 0.0)
        if training:
            pairs |= self.training(training, args)
        return differences(pairs)

    def training(self, training, args):
        optimizer, schedule = training["optimizer"], training["learning_rate_schedule"]
        steps = args.train_iters or args.train_samples // args.global_batch_size
        decay = args.lr_decay_iters or (args.lr_decay_samples or 0) // args.global_batch_size or steps
        warmup = round(args.lr_warmup_fraction * decay) if args.lr_warmup_fraction is not None else \
            args.lr_warmup_iters or args.lr_warmup_samples // args.global_batch_size
        return {
            "steps": (training["steps"], steps),
            "seed": (training["seed"], args.seed),
            "rate": (float(optimizer["learning_rate"]), float(args.lr)),
            "last rate": (schedule["end_fraction"] * optimizer["learning_rate"], float(args.min_lr or 0)),
            "schedule": (schedule["kind"], args.lr_decay_style),
            "warmup": (schedule["warmup_steps"], min(warmup, steps - 1)),
            "decay": (float(optimizer["weight_decay"]), float(args.weight_decay)),
            "betas": ([optimizer["beta1"], optimizer["beta2"]], [args.adam_beta1, args.adam_beta2]),
            "adam epsilon": (float(optimizer["epsilon"]), float(args.adam_eps)),
            "clip": (float(optimizer["max_gradient_norm"]), float(args.clip_grad)),
            "saving": (training.get("checkpoints", {}).get("interval_steps"), args.save_interval if args.save else None),
        }

    def real_files(self):
        for file in sorted((self.path / "tests").rglob("model_config*.yaml")):
            arguments = (yaml.safe_load(file.read_text()) or {}).get("MODEL_ARGS")
            if isinstance(arguments, dict) and "--micro-batch-size" in arguments and \
                    ("--train-iters" in arguments or "--train-samples" in arguments):
                yield file, words_of(arguments)

    def random_line(self, rng):
        tp, pp, cp = rng.choice((1, 2, 4)), rng.choice((1, 2, 4)), rng.choice((1, 1, 2))
        layers = rng.choice((8, 12, 16, 24))
        world = max(DEVICES, tp * pp * cp) * rng.choice((1, 2))
        dp = world // (tp * pp * cp)
        mbs = rng.choice((1, 2))
        line = [f"--num-layers {layers} --num-attention-heads 16 --hidden-size {rng.choice((512, 1024))}",
                f"--seq-length {rng.choice((512, 2048))} --max-position-embeddings 4096 --tokenizer-type NullTokenizer",
                f"--vocab-size {rng.randrange(900, 70000)} --micro-batch-size {mbs} --tensor-model-parallel-size {tp}",
                f"--pipeline-model-parallel-size {pp} --context-parallel-size {cp}",
                f"--lr {rng.choice(('1e-4', '3.0e-4', '6e-5'))} --train-iters {rng.choice((10, 500))}"]
        some = lambda text, chance=0.4: line.append(text) if rng.random() < chance else None
        some(f"--global-batch-size {mbs * dp * pp * rng.choice((1, 2, 4)) + (rng.random() < 0.05)}", 0.8)
        some(f"--make-vocab-size-divisible-by {rng.choice((1, 64, 128, 256))}")
        some("--sequence-parallel", 0.6)
        some(f"--min-lr {rng.choice(('1e-5', '0', '1e-6'))}")
        some(f"--lr-decay-style {rng.choice(('linear', 'cosine', 'constant'))}", 0.7)
        line.append(rng.choice(("", "--lr-warmup-fraction 0.1", "--lr-warmup-iters 3", "--lr-warmup-fraction 0.01")))
        some(f"--lr-decay-iters {rng.choice((400, 320000))}")
        some(f"--weight-decay {rng.choice((0, 0.1))}")
        some("--adam-beta1 0.8 --adam-beta2 0.95 --adam-eps 1e-9")
        some(f"--clip-grad {rng.choice((0.5, 2))}")
        some(f"--seed {rng.randrange(10**6)}")
        some("--save /tmp/x --save-interval 7")
        some("--use-tp-pp-dp-mapping", 0.2)
        some("--untie-embeddings-and-output-weights")
        some(rng.choice(("--bf16", "--bf16", "--fp16", "--bf16 --accumulate-allreduce-grads-in-fp32", "--bf16 --grad-reduce-in-bf16")), 0.8)
        some(rng.choice(("--use-distributed-optimizer", "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
                         "--overlap-grad-reduce")), 0.6)
        some(rng.choice(("--recompute-granularity selective", "--recompute-activations", "--recompute-granularity full",
                         f"--recompute-granularity full --recompute-method block --recompute-num-layers {rng.choice((1, 3))}",
                         "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")), 0.6)
        if pp > 1:
            some(rng.choice((f"--num-layers-per-virtual-pipeline-stage {rng.choice((1, 2, 3))}",
                             f"--num-virtual-stages-per-pipeline-rank {rng.choice((2, 3))}",
                             f"--decoder-first-pipeline-num-layers {rng.choice((1, 2, 4))}",
                             f"--decoder-last-pipeline-num-layers {rng.choice((1, 2, 4))}",
                             "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split")), 0.6)
        if cp > 1:
            some(f"--cp-comm-type {rng.choice(('p2p', 'a2a'))}")
        if rng.random() < 0.6:
            line.append("--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear "
                        f"--hidden-dropout 0 --attention-dropout 0 --rotary-base {rng.choice((10000, 500000))}")
            some(f"--group-query-attention --num-query-groups {rng.choice((4, 8))}")
            some(f"--ffn-hidden-size {rng.choice((1376, 2816))}")
            some(f"--norm-epsilon {rng.choice(('1e-6', '1e-5'))}")
            some("--kv-channels 64")
            kind = rng.choice(("", "--add-qkv-bias", "--qk-layernorm", "--qk-layernorm --num-experts 8 --moe-router-topk 2"))
            line.append(kind)
            if "experts" in kind:
                some(f"--moe-ffn-hidden-size {rng.choice((256, 768))}")
                some(f"--expert-model-parallel-size {rng.choice((2, 4))} --moe-token-dispatcher-type alltoall")
                some(f"--moe-aux-loss-coeff {rng.choice((0.01, 0.001))} --moe-router-load-balancing-type aux_loss")
        else:
            some(f"--hidden-dropout {rng.choice((0, 0.2))} --attention-dropout {rng.choice((0, 0.3))}")
        return " ".join(part for part in line if part), world

    def check(self, program, seed, lines, outcome):
        for file, words in self.real_files():
            replica = degree(words, "--tensor-model-parallel-size") * degree(words, "--pipeline-model-parallel-size") * \
                degree(words, "--context-parallel-size")
            nodes = max(1, -(-replica * degree(words, "--expert-model-parallel-size") // DEVICES))
            name = f"{file.parent.name}/{file.name}"
            run, ours = imported(program, "megatron", [file], "--nodes", str(nodes))
            made, theirs = self.parsed(words, nodes * DEVICES)
            outcome.add("Megatron-LM files", name, run, ours, made, theirs, lambda: self.compare(run, *made))
        rng = random.Random(seed)
        for _ in range(lines):
            line, world = self.random_line(rng)
            run, ours = imported(program, "megatron", [], f"--args={line}", "--nodes", str(world // DEVICES))
            made, theirs = self.parsed(shlex.split(line), world)
            outcome.add("Megatron-LM lines", line, run, ours, made, theirs, lambda: self.compare(run, *made))


class Mindformers:
    def __init__(self, path):
        sys.path.insert(0, str(path))
        self.path = path
        os.environ.setdefault("LOG_MF_PATH", tempfile.mkdtemp())
        with contextlib.redirect_stdout(io.StringIO()):
            from mindformers.core.parallel_config import build_parallel_config
            from mindformers.models.llama.llama_config import LlamaConfig
            from mindformers.models.utils import LayerSetting
            from mindformers.tools.register.config import MindFormerConfig
        import mindspore
        self.mindspore = mindspore
        self.Config, self.build, self.Llama, self.Layers = MindFormerConfig, build_parallel_config, LlamaConfig, LayerSetting

    def parsed(self, file):
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                config = self.Config(str(file))
                raw = yaml.safe_load(pathlib.Path(file).read_text())
                self.build(config)
                fields = dict(raw["model"]["model_config"])
                fields.pop("type", None)
                model = self.Llama(**fields)
                stages = config.parallel_config.pipeline_stage or 1
                # As the system's context does it, which a machine without its devices cannot be given whole.
                pipeline = (raw.get("parallel") or {}).get("pipeline_config") or {}
                self.mindspore.set_auto_parallel_context(pipeline_config={"pipeline_interleave": False, "pipeline_scheduler": "1f1b"} | dict(pipeline))
                layers = self.Layers(model.num_layers, model.offset, config.parallel_config, model.pp_interleave_num or 1)
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"
        return (config, model, layers, stages), ""

    def compare(self, run, config, model, placed, stages):
        plan, training = run["plan"], run["config"]
        llm, schedule, ours = plan["modules"]["llm"], plan["schedule"], plan["model"]["config"]
        parallel, is_parallel = config.parallel_config, config.use_parallel
        count = lambda value: value if is_parallel and value else 1
        layers = [[int(n) for n in row] for row in zip(*placed.layer_list)]
        import check_exports
        full = [[check_exports.blocks_of(c, "full") for c in row] for row in recompute_of(llm)]
        theirs_full = [[int(n) for n in row] for row in zip(*placed.layer_recompute)]
        if config.recompute_config.recompute is True:
            theirs_full = layers
        mbs = (config.runner_config.batch_size or 1) * (config.micro_batch_interleave_num or 1)
        micro = parallel.micro_batch_num if stages > 1 else config.runner_config.gradient_accumulation_steps or 1
        pairs = {
            "degrees": ([llm[n] for n in ("dp", "tp", "pp", "cp")],
                        [count(parallel.data_parallel), count(parallel.model_parallel), count(parallel.pipeline_stage),
                         count(parallel.context_parallel)]),
            "layers": (llm["layers"], layers),
            "recompute": (full, theirs_full),
            "mbs": (schedule["mbs"], mbs),
            "microbatches": (schedule["microbatches"], micro),
            "layers of the model": (ours["num_hidden_layers"], model.num_layers),
            "width": (ours["hidden_size"], model.hidden_size),
            "heads": (ours["num_attention_heads"], model.num_heads),
            "groups": (ours["num_key_value_heads"], model.n_kv_heads or model.num_heads),
            "vocabulary": (ours["vocab_size"], model.vocab_size),
            "rotary base": (float(ours["rope_theta"]), float(model.theta)),
            "epsilon": (float(ours["rms_norm_eps"]), float(model.rms_norm_eps)),
            "tied": (ours["tie_word_embeddings"], bool(model.tie_word_embeddings)),
            "compute": (plan["precision"]["compute"], {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[
                str(model.compute_dtype).lower()]),
        }
        if model.intermediate_size:
            pairs["MLP"] = (ours["intermediate_size"], model.intermediate_size)
        if training:
            optimizer = training["optimizer"]
            pairs |= {"seed": (training["seed"], config.seed),
                      "rate": (float(optimizer["learning_rate"]), float(config.lr_schedule.learning_rate))}
            if config.optimizer.betas:
                pairs["betas"] = ([optimizer["beta1"], optimizer["beta2"]], [float(b) for b in config.optimizer.betas])
            if config.optimizer.weight_decay is not None:
                pairs["decay"] = (float(optimizer["weight_decay"]), float(config.optimizer.weight_decay))
        return differences(pairs)

    def real_files(self):
        for file in sorted(self.path.rglob("*.yaml")):
            text = file.read_text(errors="replace")
            if "parallel_config" in text and re.search(r"type:\s*['\"]?LlamaConfig", text):
                yield file

    def changed(self, rng, raw):
        """A file with other degrees, stages and recomputation; mostly ones that fit."""
        raw = copy.deepcopy(raw)
        layers = raw["model"]["model_config"]["num_layers"] = rng.choice((8, 12, 32))
        pp = rng.choice((1, 2, 4))
        raw["use_parallel"] = True
        raw.setdefault("parallel", {})["parallel_mode"] = 1
        raw["parallel_config"] = {"data_parallel": rng.choice((1, 2, 4)), "model_parallel": rng.choice((1, 2, 4)), "pipeline_stage": pp,
                                  "micro_batch_num": pp * rng.choice((1, 2)), "vocab_emb_dp": False}
        raw["runner_config"]["batch_size"] = rng.choice((1, 2))
        raw["micro_batch_interleave_num"] = rng.choice((1, 1, 2))
        raw["runner_config"]["gradient_accumulation_steps"] = 1
        interleave = rng.choice((1, 1, 2)) if pp > 1 else 1
        raw["parallel"].pop("pipeline_config", None)
        if interleave > 1:
            raw["parallel"]["pipeline_config"] = {"pipeline_interleave": True, "pipeline_scheduler": "1f1b"}
            raw["model"]["model_config"]["pp_interleave_num"] = interleave
        else:
            raw["model"]["model_config"].pop("pp_interleave_num", None)
        even = [[0] * pp for _ in range(interleave)]
        if pp > 1 and rng.random() < 0.5:
            even[0][0], even[-1][-1] = even[0][0] + 1, even[-1][-1] - 1
        raw["model"]["model_config"]["offset"] = even if interleave > 1 else even[0]
        per = layers // (pp * interleave)
        raw["recompute_config"] = {"recompute": rng.choice((True, False, [rng.randrange(per) for _ in range(pp)] if interleave == 1 else False))}
        return raw

    def check(self, program, seed, lines, outcome):
        files = list(self.real_files())
        for file in files:
            run, ours = imported(program, "mindformers", [file], "--steps", "10")
            made, theirs = self.parsed(file)
            outcome.add("MindFormers files", str(file.relative_to(self.path)), run, ours, made, theirs, lambda: self.compare(run, *made))
        rng = random.Random(seed)
        trained = [f for f in files if re.search(r"^run_mode:\s*['\"]?(train|finetune)", f.read_text(), re.M)]
        with tempfile.TemporaryDirectory() as folder:
            for number in range(lines):
                file = pathlib.Path(folder, f"{number}.yaml")
                file.write_text(yaml.safe_dump(self.changed(rng, yaml.safe_load(rng.choice(trained).read_text()))))
                world = math.prod(yaml.safe_load(file.read_text())["parallel_config"][k] for k in
                                  ("data_parallel", "model_parallel", "pipeline_stage"))
                size = ("--nodes", str(world // DEVICES)) if world % DEVICES == 0 else ("--nodes", "1", "--devices-per-node", str(world))
                run, ours = imported(program, "mindformers", [file], "--steps", "10", *size)
                made, theirs = self.parsed(file)
                outcome.add("MindFormers changed files", file.read_text(), run, ours, made, theirs, lambda: self.compare(run, *made))


class Outcome:
    def __init__(self):
        self.counts, self.refused, self.failures = collections.Counter(), collections.defaultdict(collections.Counter), []

    def add(self, kind, name, run, ours, made, theirs, compare):
        who = "read by both" if run and made else "read by neither" if not run and not made else \
            "read by Weft alone" if run else "read by the system alone"
        self.counts[kind, who] += 1
        if run and made:
            found = compare()
            self.counts[kind, "equal"] += not found
            self.failures += [f"{name}: {difference}" for difference in found]
        else:
            self.refused[kind, who][reason(theirs if run else ours)] += 1

    def tell(self):
        for (kind, who), count in sorted(self.counts.items()):
            print(f"{kind}: {who} {count}")
            for why, times in self.refused[kind, who].most_common(12):
                print(f"    {times:4} {why}")
        print(*self.failures[:40], sep="\n")
        print(f"{len(self.failures)} differences")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--megatron", type=pathlib.Path)
    parser.add_argument("--mindformers", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", type=int, default=300)
    options = parser.parse_args()
    outcome = Outcome()
    if options.megatron:
        Megatron(options.megatron).check(options.program, options.seed, options.lines, outcome)
    if options.mindformers:
        Mindformers(options.mindformers).check(options.program, options.seed, options.lines, outcome)
    outcome.tell()
    compared = sum(count for (_, who), count in outcome.counts.items() if who == "read by both")
    sys.exit(1 if outcome.failures or compared == 0 else 0)


if __name__ == "__main__":
    main()
