"""What the parts of prediction_error.py share: small models, the program in a folder of its own, workers on cores of their own."""

import concurrent.futures
import json
import os
import pathlib
import queue
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 384, "intermediate_size": 1024,
         "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_act": "silu", "vocab_size": 4096,
         "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False}
EXPERTS = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
           "moe_intermediate_size": 128, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1,
           "mlp_only_layers": [], "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
           "hidden_act": "silu", "vocab_size": 4096, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
           "attention_bias": False, "router_aux_loss_coef": 0.0, "tie_word_embeddings": False}
VISION = {"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"], "tie_word_embeddings": False,
          "text_config": {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 6,
                          "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 32768,
                          "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
                          "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}},
          "vision_config": {"depth": 4, "embed_dim": 192, "hidden_size": 256, "hidden_act": "quick_gelu", "mlp_ratio": 4,
                            "num_heads": 4, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
          "image_token_id": 4000, "video_token_id": 4001, "vision_start_token_id": 4002, "vision_end_token_id": 4003}
MODELS = {"llama": LLAMA, "experts": EXPERTS, "vl": VISION}
WORKLOADS = {
    "llama": {"global_batch_samples": 8, "sequence_tokens": 256, "precision": "fp32", "optimizer": "adamw"},
    "experts": {"global_batch_samples": 8, "sequence_tokens": 256, "precision": "fp32", "optimizer": "adamw"},
    "vl": {"global_batch_samples": 8, "text_tokens": {"values": [64, 128, 192], "weights": [0.3, 0.4, 0.3]}, "images_per_sample": 1,
           "patches_per_image": {"values": [144, 256, 400], "weights": [0.3, 0.4, 0.3]}, "precision": "fp32", "optimizer": "adamw"},
}
ONE = {"tp": 1, "cp": 1, "pp": 1, "zero": 0}
KEEP = ["none"]


def llm(**degrees):
    return ONE | degrees


class Machine:
    """Runs the program in a folder that keeps everything."""

    def __init__(self, weft, folder, device, profile_s, cores=None):
        self.weft, self.folder, self.device, self.profile_s, self.cores = weft, folder, device, profile_s, cores
        folder.mkdir(parents=True, exist_ok=True)

    def on(self, cores):
        """The same machine as a program sees it that may use these cores alone."""
        return Machine(self.weft, self.folder, self.device, self.profile_s, cores)

    def call(self, *arguments, json_out=True):
        pinned = ["taskset", "-c", ",".join(map(str, self.cores))] if self.cores else []
        command = [*pinned, str(self.weft), *map(str, arguments)] + (["--json"] if json_out else [])
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if run.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {run.stderr[-2000:]}")
        return json.loads(run.stdout) if json_out else run.stdout

    def write(self, name, document):
        path = self.folder / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    def cluster(self, model, workload, ranks):
        """This machine for so many ranks, measured once."""
        path = self.folder / f"cluster{ranks}.yaml"
        if not path.exists():
            self.call("profile", "--model", model, "--workload", workload, "--device", self.device, "--ranks", ranks,
                      "--cluster-out", path, "--out", self.folder / f"cluster{ranks}_profile.json", "--time-limit", 5)
        return path


def recomputed(plan, only=None):
    """The plan with all layers, or those of one module, recomputed whole."""
    for name, module in plan["modules"].items():
        if only is None or name == only:
            module["recompute"] = [[[f"full*{count}"] if count else [] for count in chunks] for chunks in module["layers"]]
    return plan


def make_plan(machine, name, model, workload, cluster, space, only=None, options=()):
    """The fastest plan of a space. "recompute": "full" recomputes all its layers, or those of the module `only`: a search may always keep them."""
    key = "".join(c if c.isalnum() else "_" for c in name)
    wants_recompute = space.get("recompute") == "full"
    written = machine.write(f"{key}_space.json", space | ({"recompute": KEEP} if wants_recompute else {}))
    found = machine.call("plan", "--model", model, "--cluster", cluster, "--workload", workload, "--space", written, "--fastest",
                         "--memory-margin", 0, *options)
    plan = recomputed(found["plan"], only) if wants_recompute else found["plan"]
    return machine.write(f"{key}_plan.json", plan)


def physical_cores():
    """Logical cores that this process may use, grouped by the core that has them."""
    groups = {}
    for core in sorted(os.sched_getaffinity(0)):
        path = pathlib.Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        groups.setdefault(path.read_text().strip() if path.exists() else str(core), []).append(core)
    return list(groups.values())


def core_pairs(num_workers):
    """Two logical cores for each worker. A rank gets a core whose other threads stay idle where there are enough; else a worker's two
    ranks share cores, since a worker that shared one with another would be slowed by it."""
    groups = physical_cores()
    if len(groups) >= 2 * num_workers:
        return [[groups[2 * i][0], groups[2 * i + 1][0]] for i in range(num_workers)]
    cores = [core for group in groups for core in group]
    if len(cores) < 2 * num_workers:
        raise RuntimeError(f"--workers {num_workers}: needs {2 * num_workers} cores, this process may use {len(cores)}. Give fewer workers.")
    return [cores[2 * i:2 * i + 2] for i in range(num_workers)]


def in_workers(machine, num_workers, jobs):
    """Each job with a machine: all with this one in turn, or side by side, each with two cores of its own."""
    if num_workers == 1:
        for job in jobs:
            job(machine)
        return
    free = queue.Queue()
    for pair in core_pairs(num_workers):
        free.put(pair)

    def work(job):
        own = free.get()
        try:
            job(machine.on(own))
        finally:
            free.put(own)

    with concurrent.futures.ThreadPoolExecutor(num_workers) as pool:
        for done in [pool.submit(work, job) for job in jobs]:
            done.result()


def small_models(machine):
    models = {name: machine.write(f"{name}.json", config) for name, config in MODELS.items()}
    workloads = {name: machine.write(f"{name}_workload.json", spec) for name, spec in WORKLOADS.items()}
    return models, workloads


def config_of(machine, steps):
    return machine.write("train.yaml", f"steps: {steps}\nseed: 1\ndevice: {machine.device}\n"
                                       "optimizer: {learning_rate: 1.0e-4, weight_decay: 0.01, max_gradient_norm: 1.0}\n")


def two_cores(machine, options):
    return machine.on(core_pairs(options.workers)[0]) if options.workers > 1 else machine
