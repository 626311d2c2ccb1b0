# SPDX-License-Identifier: Apache-2.0
"""Peak memory of each phase of a step by category, with PyTorch's own trackers (torch.distributed._tools).

Every tensor is a fake one: no memory is needed, and every operation of the real model, wrapper and optimizer runs. Attention is CUDA's
flash operator, of which only the shapes run. What the trackers do not see: cuBLAS' workspaces, the allocator's rounding.
"""
from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker

from .job import Job
from .loop import build, run_steps

# The trackers' words for shardsim's categories. They know activations from temporaries by the phase only, and neither from logits.
CATEGORIES = {
    "Parameter": "parameters", "Sharded Param": "parameters", "Gradient": "gradients", "Sharded Grad": "gradients",
    "Optstate": "optimizer_states", "OptState": "optimizer_states", "Unsharded Param": "unsharded_parameters",
    "Unsharded Grad": "unsharded_gradients", "All Gather": "communication_buffers", "Reduce Scatter": "communication_buffers",
}
REST = "activations+logits+temporaries"
FLASH = "cuda_flash"


def cuda_flash(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **_):
    """sdpa_attention_forward of transformers as it runs on CUDA without a mask: grouped heads are not repeated (enable_gqa)."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else query.dtype  # SDPA is on autocast's list of 16-bit operators
    out = torch.ops.aten._scaled_dot_product_flash_attention(query.to(dtype), key.to(dtype), value.to(dtype), dropout, True, False, scale=scaling)[0]
    return out.transpose(1, 2).contiguous(), None


class Peaks:
    """The most that each phase held; phases of several micro-batches are one."""

    def __init__(self, tracker: MemTracker):
        self.tracker, self.phase = tracker, ""
        self.found: dict[str, dict[str, int]] = {}

    def next_phase(self, name: str) -> None:
        self.close()
        self.phase = name.split()[0]
        self.tracker._peak_mem, self.tracker._peak_mem_snap = {}, {}

    def close(self) -> None:
        snapshots = self.tracker.get_tracker_snapshot("peak")
        if not self.phase or not snapshots:
            return
        most = max(snapshots.values(), key=lambda by: by["Total"])
        rows = {"total": most["Total"]}
        for kind, size in most.items():
            if kind == "Total":
                continue
            row = CATEGORIES.get(getattr(kind, "value", kind), REST)
            rows[row] = rows.get(row, 0) + size
        if rows["total"] > self.found.get(self.phase, {"total": -1})["total"]:
            self.found[self.phase] = rows


def measure(job: Job, steps: int) -> dict[str, dict[str, int]]:
    """In a process that has joined its (fake) process group."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    ALL_ATTENTION_FUNCTIONS.register(FLASH, cuda_flash)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model, optimizers = build(job, FLASH)
        if job.strategy == "fsdp2":
            tracker: MemTracker = FSDPMemTracker(model, *optimizers)
        else:
            tracker = MemTracker()
            tracker.track_external(model, *optimizers)
        peaks = Peaks(tracker)

        def mark(step: int, phase: str) -> None:
            if step + 1 == steps:
                peaks.next_phase(phase)
        with tracker:
            run_steps(model, optimizers, job, 0, steps, mark)
            peaks.close()
    return peaks.found
