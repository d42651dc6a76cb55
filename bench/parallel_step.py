"""A training step of ours on two ranks beside PyTorch's own distributed training:
    cmake --build build --target weft_parallel_step && python bench/parallel_step.py [--steps N] [--only CASE ...] [--detail]

Needs torch 2.11 and transformers. Every side starts from the same weights, gets the same
batch in fp32, and has two ranks of one thread each; a step is forward, backward, gradient reduction, clipping by the global
norm and fused AdamW. Ours run as thread ranks and as MPI processes, PyTorch's under torchrun with gloo: dp is
DistributedDataParallel, tp is parallelize_module with the loss parallel too (with and without sequence parallelism), pp is
Schedule1F1B over the same split of the layers. All sides of a case are started, then step in turn, so that the machine's
noise falls on all alike; a ratio is of two steps of one round. Where a side has two forms the one with the better median
counts. The clock is that of the slower rank; processor time is of both ranks together. On a machine that others use, too, only
the latter says something: the scheduler gives torchrun's two sessions more than one of ours. All of it takes about four
minutes on two idle cores. Losses and norms of all sides must agree, or they do different work; norms do to about 1e-3 only, as PyTorch adds up
single precision without care, and losses to 1e-4 where its sequence parallelism runs, which drifts from all others.

What PyTorch cannot do with its own parts: parallelize_module cuts no fused qkv, so that attention in the vision encoder is
whole on both ranks there (ours divides it), and its sequence parallelism does not fit images that are scattered into rows, so
that only the form without it is run for Qwen2-VL; a weight that is tied across tensor- or pipeline-parallel places is not kept
tied, so that those cases have embeddings of their own on both sides.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from model_step import IGNORED, IMAGE, ROOT, configuration, draw_inputs, model_class  # noqa: E402

PROGRAM = ROOT / "build" / "bench" / "weft_parallel_step"
MPIRUN = ROOT / "scripts" / "mpirun"
RANKS = 2
WARM_UP = 2
LEARNING_RATE, MAX_NORM = 1e-3, 1.0
TEXT = [(128, [])] * 8
IMAGES = [(100, [(16, 20)])] * 4
# Model, whether the head has the embedding's weights, samples, our forms, PyTorch's, microbatches, layers by stage.
CASES = {
    "llama, dp 2": ("llama", False, TEXT, ["dp"], ["dp"], 1, []),
    "llama, tp 2": ("llama", False, TEXT, ["tp", "sp"], ["tp", "sp"], 1, []),
    "llama, pp 2, 8 microbatches": ("llama", False, TEXT, ["pp"], ["pp"], 8, [4, 2]),
    "qwen2-vl, dp 2": ("vl", True, IMAGES, ["dp"], ["dp"], 1, []),
    "qwen2-vl, tp 2": ("vl", False, IMAGES, ["tp"], ["tp"], 1, []),
    "qwen2-vl, pp 2, 4 microbatches": ("vl", False, IMAGES, ["pp"], ["pp"], 4, [1, 3]),
}


def part_of(tensors, part, parts):
    """An equal share of a batch whose samples are all alike."""
    return {name: x.chunk(parts)[part].clone() for name, x in tensors.items()}


def write_inputs(folder, tensors, data_parallel, microbatches):
    from safetensors.torch import save_file

    save_file(tensors, folder / "batch.safetensors")
    for rank in range(data_parallel):
        for m in range(microbatches):
            part = part_of(part_of(tensors, rank, data_parallel), m, microbatches)
            save_file(part, folder / f"inputs.{rank}.{m}.safetensors")


def batch_of(tensors, model):
    """Ids, targets shifted to their places, and what a model with images takes besides; samples in the first dim."""
    import torch

    ids = tensors["input_ids"].view(len(tensors["lengths"]), -1)
    batch = {"ids": ids, "targets": tensors["targets"].view_as(ids)}
    if "pixel_values" in tensors:
        kinds = (ids == IMAGE).int()
        positions, _ = model.model.get_rope_index(ids, kinds, image_grid_thw=tensors["image_grid_thw"])
        batch |= {"pixels": tensors["pixel_values"], "grids": tensors["image_grid_thw"],
                  "positions": positions.transpose(0, 1).contiguous()}
    else:
        batch["positions"] = torch.arange(ids.shape[1]).expand_as(ids)
    return batch


def logits_of(model, batch):
    arguments = {"input_ids": batch["ids"], "use_cache": False}
    if "pixels" in batch:
        arguments |= {"pixel_values": batch["pixels"], "image_grid_thw": batch["grids"],
                      "position_ids": batch["positions"].transpose(0, 1)}
    else:
        arguments["position_ids"] = batch["positions"]
    return model(**arguments).logits


def mean_loss(logits, targets):
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def make_optimizer(parameters):
    """Our settings: no decay for vectors. Kinds of tensors that do not mix are in groups of their own."""
    import torch
    from torch.distributed.tensor import DTensor

    groups = {}
    for p in parameters:
        groups.setdefault((isinstance(p, DTensor), p.dim() >= 2), []).append(p)
    return torch.optim.AdamW([{"params": g, "weight_decay": 0.1 if decays else 0.0} for (_, decays), g in groups.items()],
                             lr=LEARNING_RATE, betas=(0.9, 0.95), eps=1e-8, fused=True)


def clip(parameters, norm):
    from torch.nn.utils import clip_grads_with_norm_

    clip_grads_with_norm_(parameters, MAX_NORM, norm)


class DataParallel:
    def __init__(self, model, tensors, rank, arguments):
        from torch.nn.parallel import DistributedDataParallel

        self.batch = batch_of(part_of(tensors, rank, RANKS), model)
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.optimizer = make_optimizer(self.model.parameters())

    def step(self):
        import torch

        loss = mean_loss(logits_of(self.model, self.batch), self.batch["targets"])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach(), norm

    def whole_loss(self, loss):
        import torch.distributed as dist

        dist.all_reduce(loss)
        return loss.item() / RANKS


class TensorParallel:
    def __init__(self, model, tensors, rank, arguments):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Replicate, Shard
        from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                                       parallelize_module)

        self.batch = batch_of(tensors, model)
        mesh = init_device_mesh("cpu", (RANKS,))
        between = Shard(1) if arguments.form == "sp" else Replicate()
        text, prefix = (model.model, "model") if arguments.kind == "llama" else (model.model.language_model, "model.language_model")
        plan = {f"{prefix}.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
                "lm_head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)}
        if arguments.form == "sp":
            plan[f"{prefix}.norm"] = SequenceParallel()
        for i in range(len(text.layers)):
            layer = f"{prefix}.layers.{i}"
            plan |= {f"{layer}.self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": between},
                                                              desired_input_kwarg_layouts={"hidden_states": Replicate()}),
                     f"{layer}.mlp": PrepareModuleInput(input_layouts=between, desired_input_layouts=Replicate())}
            plan |= {f"{layer}.{name}": ColwiseParallel() for name in
                     ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")}
            plan |= {f"{layer}.{name}": RowwiseParallel(output_layouts=between) for name in ("self_attn.o_proj", "mlp.down_proj")}
            if arguments.form == "sp":
                plan |= {f"{layer}.{name}": SequenceParallel() for name in ("input_layernorm", "post_attention_layernorm")}
        if arguments.kind == "vl":
            for i in range(len(model.model.visual.blocks)):
                plan |= {f"model.visual.blocks.{i}.mlp.fc1": ColwiseParallel(),
                         f"model.visual.blocks.{i}.mlp.fc2": RowwiseParallel()}
            plan |= {"model.visual.merger.mlp.0": ColwiseParallel(), "model.visual.merger.mlp.2": RowwiseParallel()}
        self.model = parallelize_module(model, mesh, plan)
        self.divided = [p for p in model.parameters() if isinstance(p, DTensor)]
        self.whole = [p for p in model.parameters() if not isinstance(p, DTensor)]
        self.optimizer = make_optimizer(model.parameters())

    def step(self):
        import torch
        from torch.distributed.tensor.parallel import loss_parallel
        from torch.nn.utils import get_total_norm

        with loss_parallel():
            loss = mean_loss(logits_of(self.model, self.batch), self.batch["targets"])
            loss.backward()
        norm = get_total_norm([p.grad for p in self.divided]).full_tensor()
        if self.whole:
            norm = torch.hypot(norm, get_total_norm([p.grad for p in self.whole]))
            clip(self.whole, norm)
        clip(self.divided, norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach(), norm

    def whole_loss(self, loss):
        return loss.full_tensor().item()


def stage_class():
    import torch

    class Stage(torch.nn.Module):
        """The layers of one pipeline stage, the encoder and embedding in the first, norm and head in the last."""

        def __init__(self, model, kind, begin, end):
            super().__init__()
            text = model.model if kind == "llama" else model.model.language_model
            self.is_first, self.is_last = begin == 0, end == len(text.layers)
            self.layers, self.rotary = text.layers[begin:end], text.rotary_emb
            if self.is_first:
                self.embedding = text.embed_tokens
                self.visual = model.model.visual if kind == "vl" else None
            if self.is_last:
                self.norm, self.head = text.norm, model.lm_head

        def forward(self, x, positions, pixels=None, grids=None):
            if self.is_first:
                ids = x
                x = self.embedding(ids)
                if pixels is not None:
                    rows = self.visual(pixels, grid_thw=grids).pooler_output
                    x = x.masked_scatter((ids == IMAGE).unsqueeze(-1), rows)
            if positions.dim() == 3:
                positions = positions.transpose(0, 1)
            embeddings = self.rotary(x, positions)
            for layer in self.layers:
                x = layer(x, attention_mask=None, position_ids=positions, position_embeddings=embeddings)
            return self.head(self.norm(x)) if self.is_last else x

    return Stage


class PipelineParallel:
    def __init__(self, model, tensors, rank, arguments):
        import torch
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        batch = batch_of(tensors, model)
        begin = sum(arguments.layers[:rank])
        self.stage = stage_class()(model, arguments.kind, begin, begin + arguments.layers[rank])
        self.is_last = self.stage.is_last
        self.inputs = {"positions": batch["positions"]}
        if rank == 0 and "pixels" in batch:
            self.inputs |= {"pixels": batch["pixels"], "grids": batch["grids"]}
        self.ids, self.targets = batch["ids"], batch["targets"]
        self.schedule = Schedule1F1B(PipelineStage(self.stage, rank, RANKS, torch.device("cpu")), arguments.microbatches,
                                     loss_fn=mean_loss)
        self.parameters = list(self.stage.parameters())
        self.optimizer = make_optimizer(self.parameters)

    def step(self):
        import torch
        import torch.distributed as dist
        from torch.nn.utils import get_total_norm

        losses = []
        if self.is_last:
            self.schedule.step(target=self.targets, losses=losses, **self.inputs)
        else:
            self.schedule.step(self.ids, **self.inputs)
        squares = get_total_norm([p.grad for p in self.parameters]) ** 2
        dist.all_reduce(squares)
        norm = squares.sqrt()
        clip(self.parameters, norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack(losses).mean().detach() if losses else torch.zeros(()), norm

    def whole_loss(self, loss):
        import torch.distributed as dist

        dist.all_reduce(loss)
        return loss.item()


def work(arguments):
    """One rank of PyTorch's side: rank 0 answers a line for every line, as weft_parallel_step does."""
    import time

    import torch
    import torch.distributed as dist
    from safetensors.torch import load_file

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = pathlib.Path(arguments.folder)
    model = model_class(arguments.kind).from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").train()
    trainer = {"dp": DataParallel, "tp": TensorParallel, "sp": TensorParallel, "pp": PipelineParallel}[arguments.form](
        model, load_file(folder / "batch.safetensors"), rank, arguments)
    del model

    def together(value, operation):
        x = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(x, operation)
        return x.item()

    while True:
        goes_on = rank != 0 or bool(sys.stdin.readline())
        if together(float(goes_on), dist.ReduceOp.MIN) == 0:
            break
        dist.barrier()
        start, processor = time.perf_counter(), time.process_time()
        loss, norm = trainer.step()
        ms = (time.perf_counter() - start) * 1e3
        slowest_ms = together(ms, dist.ReduceOp.MAX)
        processor_ms = together((time.process_time() - processor) * 1e3, dist.ReduceOp.SUM)
        loss = trainer.whole_loss(loss)
        if rank == 0:
            print(f"{slowest_ms:.3f} {processor_ms:.3f} {loss:.7f} {norm.item():.7f}", flush=True)
    dist.destroy_process_group()


class Side:
    def __init__(self, name, command):
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")
        # Linux shares a busy machine out by session, and torchrun's ranks are sessions of their own.
        self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=self.errors, start_new_session=True)
        self.ms, self.processor_ms, self.losses, self.norms, self.detail = [], [], [], [], ""

    def step(self):
        try:
            print(file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.errors.seek(0)
            sys.exit(f"{self.name} ended with {self.process.wait()}:\n{self.errors.read()[-4000:]}")
        ms, processor_ms, loss, norm, *detail = answer.split()
        self.ms.append(float(ms))
        self.processor_ms.append(float(processor_ms))
        self.losses.append(float(loss))
        self.norms.append(float(norm))
        self.detail = " ".join(detail)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(name, case, folder, steps, detail):
    kind, _, _, forms, their_forms, microbatches, layers = case
    ours = [PROGRAM, folder]
    sides = {"threads": [Side(f"threads {f}", [*ours, f, microbatches, *layers]) for f in forms],
             "MPI": [Side(f"MPI {f}", [MPIRUN, "-n", RANKS, *ours, f, microbatches, *layers]) for f in forms],
             "PyTorch": [Side(f"PyTorch {f}", [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                                               RANKS, __file__, "--worker", "--kind", kind, "--form", f, "--folder", folder,
                                               "--microbatches", microbatches, "--layers", *layers]) for f in their_forms]}
    everyone = [side for group in sides.values() for side in group]
    for _ in range(steps + WARM_UP):
        for side in everyone:
            side.step()
    for side in everyone:
        side.close()
    median = statistics.median
    best = {group: min(members, key=lambda s: median(s.ms[WARM_UP:])) for group, members in sides.items()}
    theirs = best["PyTorch"]
    print(f"{name}: PyTorch {median(theirs.ms[WARM_UP:]):.0f} ms ({theirs.name})")
    for side in (best["threads"], best["MPI"]):
        ratios = [a / b for a, b in zip(side.ms[WARM_UP:], theirs.ms[WARM_UP:])]
        processor = [a / b for a, b in zip(side.processor_ms[WARM_UP:], theirs.processor_ms[WARM_UP:])]
        print(f"  {side.name}: {median(side.ms[WARM_UP:]):.0f} ms, time {median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f}), "
              f"fastest {min(side.ms[WARM_UP:]):.0f} against {min(theirs.ms[WARM_UP:]):.0f}, "
              f"processor time {median(processor):.3f} ({min(processor):.2f} to {max(processor):.2f})")
    for what in ("losses", "norms"):
        values = [getattr(side, what) for side in everyone]
        apart = max((max(row) - min(row)) / max(row) for row in zip(*values))
        print(f"  {what} {values[0][0]:.4f} to {values[0][-1]:.4f}, apart by {apart:.1e}")
    if detail:
        for side in everyone:
            print(f"  {side.name}: {median(side.ms[WARM_UP:]):.1f} ms, {median(side.processor_ms[WARM_UP:]):.1f} ms of processors "
                  f"{side.detail}")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[""])
    parser.add_argument("--detail", action="store_true", help="every form, and where our rank 0 spent its last step")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    for option in ("--kind", "--form", "--folder"):
        parser.add_argument(option, help=argparse.SUPPRESS)
    parser.add_argument("--microbatches", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--layers", type=int, nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work(arguments)
    import torch

    for name, case in CASES.items():
        if not any(part in name for part in arguments.only):
            continue
        kind, is_tied, samples, forms, _, microbatches, _ = case
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(1)
            settings = configuration(kind)
            settings.tie_word_embeddings = is_tied
            model_class(kind)(settings).save_pretrained(folder)
            write_inputs(pathlib.Path(folder), draw_inputs(kind, samples), RANKS if forms == ["dp"] else 1, microbatches)
            compare(name, case, folder, arguments.steps, arguments.detail)


if __name__ == "__main__":
    main()
