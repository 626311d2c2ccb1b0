# SPDX-License-Identifier: Apache-2.0
"""Recordings of DeepSpeed: a process a rank over gloo, on its CPU accelerator (deepspeed_cpu says what had to be mended there)."""
from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_BUILD_OPS", "0")

import torch

from .collectives import Collective, Log
from .deepspeed_cpu import coalesce_into, mend
from .golden import Recording
from .job import Job, Unsupported
from .live_bytes import LiveBytes
from .models import make_model
from .ranks import in_ranks
from .torch_recorder import begin

WARM_STEPS = 3  # ZeRO-3 records the trace of modules in the first step and follows it from the second on
STAGES = {"naive_dp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "mics": 3}
NOT_DEEPSPEEDS = ("all_reduce",)  # options of ours that its configuration does not have


def ds_config(job: Job) -> dict[str, Any]:
    """DeepSpeed's configuration of the scenario. Options of the strategy carry its names."""
    training, options = job.training, {k: v for k, v in job.options.items() if k not in NOT_DEEPSPEEDS}
    precision = training["precision"] if isinstance(training["precision"], dict) else {}
    model = job.precision.parameters
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": training.get("micro_batch_size", 1), "gradient_accumulation_steps": job.micro_batches,
        "gradient_clipping": job.optimizer.get("clip_grad_norm", 0.0), "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10**9,
    }
    if model == "bf16":
        config["bf16"] = {"enabled": True}
        if "check_grad_overflow" in options:
            config["bf16"]["check_grad_overflow"] = options.pop("check_grad_overflow")
        if job.precision.master in ("none", "bf16"):
            config["bf16"] |= {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    elif model == "fp16":
        config["fp16"] = {"enabled": True, "loss_scale": 1}
    if precision.get("gradients", model) != model:
        config["data_types"] = {"grad_accum_dtype": precision["gradients"]}
    if "reduce" in precision:
        config["communication_data_type"] = precision["reduce"]
    for ours, theirs in (("optimizer", "offload_optimizer"), ("parameters", "offload_param")):
        if (device := training.get("offload", {}).get(ours, "none")) != "none":
            options[theirs] = {"device": device}
    config["zero_optimization"] = {"stage": STAGES[job.strategy], **options}
    return config


def param_groups(model: torch.nn.Module, split: bool) -> list[dict[str, Any]]:
    """One group, or matrices with weight decay and the rest without, as transformers' Trainer makes them."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if not split:
        return [{"params": trained}]
    is_matrix = [len(getattr(p, "ds_shape", p.shape)) >= 2 for p in trained]
    groups = [{"params": [p for p, matrix in zip(trained, is_matrix) if matrix], "weight_decay": 0.1},
              {"params": [p for p, matrix in zip(trained, is_matrix) if not matrix], "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def build(job: Job):
    import deepspeed
    config = ds_config(job)
    contexts = {"zero": "Init", "mics": "MiCS_Init"}
    if init := job.says.get("init"):
        with getattr(deepspeed.zero, contexts[init])(config_dict_or_path=config):
            model = make_model(job, job.says.get("attention", "sdpa"))
    else:
        model = make_model(job, job.says.get("attention", "sdpa"))
    kind = job.checkpointing.get("kind", "none")
    if kind not in ("none", "full"):
        raise Unsupported(f"activation_checkpointing {kind}")
    if kind == "full":
        reentrant = job.checkpointing.get("use_reentrant", False)
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        if reentrant:
            model.enable_input_require_grads()
    groups = param_groups(model, job.optimizer.get("weight_decay_groups") == "split")
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups, lr=1e-4, fused=True), config=config)
    return engine


def train(job: Job, engine, steps: int, mark) -> None:
    """Tells `mark` which phase of which step begins."""
    generator = torch.Generator().manual_seed(100 + engine.global_rank)
    shape = (job.training.get("micro_batch_size", 1), job.training["sequence_length"])
    for step in range(steps):
        for micro in range(job.micro_batches):
            inputs = torch.randint(0, job.model["hf_config"]["vocab_size"], shape, generator=generator)
            mark(step, f"forward {micro}")
            loss = engine(input_ids=inputs, labels=inputs).loss
            mark(step, f"backward {micro}")
            engine.backward(loss)
            if micro + 1 == job.micro_batches:
                mark(step, "step")
            engine.step()
    if engine.skipped_steps:
        raise RuntimeError("DeepSpeed skipped a step: gradients overflowed")


def prepare(job: Job, rank: int) -> None:
    local = job.gpus_per_node
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank % local), WORLD_SIZE=str(job.world), LOCAL_SIZE=str(local))
    mend()


def begin_deepspeed(job: Job) -> Recording:
    """Imports what the ranks need before they are forked."""
    import deepspeed
    found = begin(job)
    found.backend = "gloo"
    found.libraries = {"deepspeed": deepspeed.__version__, **found.libraries}
    return found


def collectives(job: Job, steps: int | None = None) -> Recording:
    steps = steps or (WARM_STEPS if job.training.get("warm", True) else 1)
    found = begin_deepspeed(job)

    def run(rank: int) -> list[dict]:
        prepare(job, rank)
        log = Log()
        coalesce_into(log)
        engine = build(job)
        log.attach()

        def mark(step: int, phase: str) -> None:
            log.step, log.phase = step, phase
        train(job, engine, steps, mark)
        return [c.as_dict() for c in log.collectives if c.step >= 0 and c.elements > 0]

    found.collectives = [Collective(**line) for line in in_ranks(job.world, "gloo", run)[0]]
    found.step = steps - 1
    return found


def memory(job: Job, steps: int | None = None) -> Recording:
    """Bytes of all live tensors where the last optimizer step holds most. Forward and backward run the CPU's kernels, which save and need
    other tensors than CUDA's: their peaks say nothing."""
    steps = steps or WARM_STEPS
    found = begin_deepspeed(job)

    def run(rank: int) -> dict[str, int]:
        prepare(job, rank)
        engine, live = build(job), LiveBytes()

        def mark(step: int, phase: str) -> None:
            if step + 1 == steps:
                live.next_phase(phase.split()[0])
        with live:
            train(job, engine, steps, mark)
        return live.peaks

    found.memory = {"step": {"total": in_ranks(job.world, "gloo", run)[0]["step"]}}
    return found
