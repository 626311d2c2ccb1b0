# SPDX-License-Identifier: Apache-2.0
"""For training code in PyTorch: record what a real job does, and hold a prediction against it.

    with shardsim.torch.record("run.json") as run:
        for batch in loader:
            train_step(batch)
            run.step()               # where the optimizer's step ends

    shardsim verify job.yaml --run run.json

Works on CPU (gloo) and GPU (NCCL), with any number of ranks; the ranks that should be recorded open the context (rank 0 alone is enough). Does not
need the compiled module.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Union

import torch
import torch.distributed as dist

from .record.collectives import Log


class Run:
    """A job that is being recorded: call `step()` where an optimizer step ends."""

    def __init__(self, path: Union[str, "os.PathLike[str]"], memory: bool = True):
        self.path = Path(path)
        self.steps: list[dict[str, Any]] = []
        self._memory = memory and torch.cuda.is_available()
        self._log = Log()
        self._began = 0.0

    def __enter__(self) -> "Run":
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError("torch.distributed is not initialized: record inside the job, after init_process_group")
        self._open()
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is None and not self.steps:
            raise RuntimeError("no step was recorded: call run.step() where the optimizer's step ends")
        if self.steps:
            self.save()

    def step(self) -> None:
        """Ends a step: its collectives, its time and its peak of memory are kept."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        step: dict[str, Any] = {
            "time_s": now - self._began,
            "collectives": [
                {"kind": c.kind, "elements": c.elements, "dtype": c.dtype, "ranks": c.ranks, "stride": c.stride} for c in self._log.collectives
            ],
        }
        if self._memory:
            step["peak_bytes"] = torch.cuda.max_memory_allocated()
            step["reserved_peak_bytes"] = torch.cuda.max_memory_reserved()
        self.steps.append(step)
        self._open()

    def save(self) -> None:
        """Writes the file; done at the end of the context."""
        document = {"schema": "shardsim.run/1", "library": f"torch {torch.__version__.split('+')[0]}", "ranks": dist.get_world_size(), "rank": dist.get_rank(), "steps": self.steps}
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        draft.write_text(json.dumps(document))
        draft.replace(self.path)

    def _open(self) -> None:
        self._log.collectives.clear()
        self._log.attach()  # groups that were made since
        if self._memory:
            torch.cuda.reset_peak_memory_stats()
        self._began = time.perf_counter()


def record(path: Union[str, "os.PathLike[str]"], *, memory: bool = True) -> Run:
    """Records the steps of a real job into one JSON file (schema shardsim.run/1): a context manager, see the module's example.

    memory: also the allocator's peaks, which are reset at the beginning of each step (GPU only).
    """
    return Run(path, memory)
