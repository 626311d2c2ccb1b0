# SPDX-License-Identifier: Apache-2.0
"""Recordings of PyTorch's strategies."""
from __future__ import annotations

import tempfile

import torch
import torch.distributed.fsdp  # noqa: F401  before ranks are forked

from .collectives import Collective, Log
from .golden import Recording
from .job import Job, with_world
from .loop import build, run_steps
from .models import make_model
from .ranks import in_ranks

WARM_STEPS = 4  # DDP rebuilds its buckets in the second step, of a static graph in the third; FSDP knows its orders from the second on


def libraries(job: Job) -> dict[str, str]:
    found = {"torch": torch.__version__.split("+")[0]}
    if "hf_config" in job.model:
        import transformers
        found["transformers"] = transformers.__version__
    if job.lora:
        import peft
        found["peft"] = peft.__version__
    return found


def sizes(job: Job) -> tuple[int, int]:
    with torch.device("meta"):
        model = make_model(job)
    return sum(p.numel() for p in model.parameters()), sum(p.numel() for p in model.parameters() if p.requires_grad)


def begin(job: Job) -> Recording:
    """Imports what the ranks need before they are forked."""
    found = Recording(libraries(job), job.backend)
    found.parameters, found.trainable = sizes(job)
    return found


def collectives(job: Job, steps: int | None = None) -> Recording:
    steps = steps or (WARM_STEPS if job.training.get("warm", True) else 1)
    found = begin(job)

    def run(rank: int) -> list[dict]:
        log = Log()

        def mark(step: int, phase: str) -> None:
            log.step, log.phase = step, phase
            log.attach()
        run_steps(*build(job), job, rank, steps, mark)
        return [c.as_dict() for c in log.collectives if c.step >= 0]

    found.collectives = [Collective(**line) for line in in_ranks(job.world, job.backend, run)[0]]
    found.step = steps - 1
    return found


def memory(job: Job, steps: int | None = None) -> Recording:
    from .memory import measure
    found = begin(job)
    found.backend = "fake"
    found.memory = in_ranks(job.world, "fake", lambda rank: measure(job, steps or 2))[0]
    return found


def checkpoint(job: Job, steps: int | None = None) -> Recording:
    """Bytes of tensors that each rank writes with torch.distributed.checkpoint, and reads on another number of ranks."""
    from .checkpoint import load, save
    found = begin(job)
    with tempfile.TemporaryDirectory() as folder:
        written = in_ranks(job.world, "gloo", lambda rank: save(job, rank, folder))
        loading = with_world(job, job.scenario["checkpoint"].get("load_world_size", job.world))
        read = in_ranks(loading.world, "gloo", lambda rank: load(loading, rank, folder))
    found.checkpoint = {"written": written, "read": read}
    return found
