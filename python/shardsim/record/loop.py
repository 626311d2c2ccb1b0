# SPDX-License-Identifier: Apache-2.0
"""The training loop of a PyTorch job: micro-batches, clipping, optimizer, in the order in which users write them."""
from __future__ import annotations

import contextlib
from typing import Callable

import torch
from torch import nn

from .job import Job, Unsupported
from .models import checkpoint_blocks, make_model
from .wrappers import wrap

Mark = Callable[[int, str], None]  # told before each phase of each step


def build(job: Job, attention: str = "sdpa") -> tuple[nn.Module, list[torch.optim.Optimizer]]:
    model = make_model(job, attention)
    kind = job.checkpointing.get("kind", "none")
    if kind not in ("none", "full"):
        raise Unsupported(f"activation_checkpointing {kind}")
    reentrant, outside = job.checkpointing.get("use_reentrant", False), job.checkpointing.get("around_unit", False)
    if kind == "full" and not outside:
        checkpoint_blocks(model, reentrant)
    model = wrap(model, job)
    if kind == "full" and outside:  # checkpoint(FSDP(block)): recomputation calls the wrapped module
        checkpoint_blocks(model.module, reentrant)
    model.train()
    return model, make_optimizers(model, job)


def make_optimizers(model: nn.Module, job: Job) -> list[torch.optim.Optimizer]:
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    kind = job.optimizer["name"]
    implementation = job.optimizer.get("implementation", "foreach")
    how = {"foreach": {"foreach": True}, "fused": {"fused": True}, "for_loop": {"foreach": False}}[implementation]
    classes = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    if job.strategy == "zero_redundancy":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return [ZeroRedundancyOptimizer([p for _, p in trained], optimizer_class=classes[kind], lr=1e-4,
                                        parameters_as_bucket_view=job.options.get("parameters_as_bucket_view", False))]
    if kind == "muon":
        blocks = [p for name, p in trained if ".layers." in name and p.ndim == 2]
        rest = [p for name, p in trained if not (".layers." in name and p.ndim == 2)]
        return [torch.optim.Muon(blocks, lr=1e-4), torch.optim.AdamW(rest, lr=1e-4, **how)]
    return [classes[kind]([p for _, p in trained], lr=1e-4, **how)]


def synchronises(job: Job, last: bool, model: nn.Module):
    """What the job does about gradients in the micro-batches before the last; a context of forward and backward."""
    options = job.options
    if job.strategy == "fsdp2":
        model.set_requires_gradient_sync(options.get("requires_gradient_sync", True) or last)
        model.set_requires_all_reduce(options.get("requires_all_reduce", True) or last)
        model.set_reshard_after_backward(options.get("reshard_after_backward", True) or last)
    no_sync = options.get("no_sync", job.strategy in ("ddp", "zero_redundancy"))
    wrapped = job.strategy in ("ddp", "zero_redundancy", "fsdp1")
    return model.no_sync() if wrapped and no_sync and not last else contextlib.nullcontext()


def inputs_of(job: Job, generator: torch.Generator | None) -> torch.Tensor:
    batch = job.training.get("micro_batch_size", 1)
    if job.model.get("preset") == "resnet-18":
        return torch.randn(batch, 3, 64, 64, generator=generator)
    return torch.randint(0, job.model["hf_config"]["vocab_size"], (batch, job.training["sequence_length"]), generator=generator)


def forward(model: nn.Module, inputs: torch.Tensor, job: Job):
    """The loss, and what the caller still holds when backward starts."""
    with torch.autocast("cpu", torch.bfloat16, enabled=job.precision.compute != job.precision.parameters):
        if inputs.is_floating_point():
            return model(inputs).float().square().mean(), None
        if job.training.get("loss_in_model", False):
            output = model(input_ids=inputs, labels=inputs)
            return output.loss, output
        logits = model(input_ids=inputs).logits
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), inputs.flatten()), logits


def clip(model: nn.Module, job: Job) -> None:
    limit = job.optimizer.get("clip_grad_norm")
    if limit is None:
        return
    if job.strategy == "fsdp1":
        model.clip_grad_norm_(limit)
        return
    norm = nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], limit)
    if hasattr(norm, "full_tensor"):  # as every loop does to log it
        norm.full_tensor()


def run_steps(model: nn.Module, optimizers: list[torch.optim.Optimizer], job: Job, rank: int, steps: int, mark: Mark) -> None:
    generator = torch.Generator().manual_seed(100 + rank)
    hold = job.training.get("logits", "freed") == "held"
    for step in range(steps):
        for micro_batch in range(job.micro_batches):
            inputs = inputs_of(job, generator)
            with synchronises(job, micro_batch + 1 == job.micro_batches, model):
                mark(step, f"forward {micro_batch}")
                loss, output = forward(model, inputs, job)
                if not hold:
                    output = None
                mark(step, f"backward {micro_batch}")
                loss.backward()
            del loss, output
        mark(step, "step")
        clip(model, job)
        for optimizer in optimizers:
            optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=job.optimizer.get("zero_grad", "set_to_none") == "set_to_none")
