# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint of a job's model and optimizer: tensor bytes by rank, without the framing of the files."""
from __future__ import annotations

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

from .job import Job
from .loop import build, run_steps


def state_after_a_step(job: Job, rank: int) -> dict:
    """Optimizer states are made by the first step."""
    model, optimizers = build(job)
    run_steps(model, optimizers, job, rank, 1, lambda step, phase: None)
    weights, states = get_state_dict(model, optimizers)
    return {"model": weights, "optimizer": states}



class CountingWriter(dcp.FileSystemWriter):
    """Adds up the tensors that this rank's plan has it write. Scalars (the optimizer's step) do not count: a few bytes a tensor."""
    planned = 0

    def write_data(self, plan, planner):
        for item in plan.items:
            data = item.tensor_data
            if data is not None and data.chunk.sizes.numel() > 1:
                CountingWriter.planned += data.chunk.sizes.numel() * data.properties.dtype.itemsize
        return super().write_data(plan, planner)


class CountingReader(dcp.FileSystemReader):
    """Adds up the stored chunks that this rank reads, each of them whole."""
    read = 0

    def read_data(self, plan, planner):
        chunks = {item.storage_index for item in plan.items}
        metadata = self.read_metadata().state_dict_metadata
        for index in chunks:
            tensor = metadata[index.fqn]
            if not hasattr(tensor, "chunks"):
                continue
            chunk = next((c for c in tensor.chunks if index.offset is None or c.offsets == index.offset))
            if chunk.sizes.numel() > 1:
                CountingReader.read += chunk.sizes.numel() * tensor.properties.dtype.itemsize
        return super().read_data(plan, planner)


def save(job: Job, rank: int, folder: str) -> int:
    dcp.save(state_after_a_step(job, rank), storage_writer=CountingWriter(folder))
    dist.barrier()
    return CountingWriter.planned


def load(job: Job, rank: int, folder: str) -> int:
    dcp.load(state_after_a_step(job, rank), storage_reader=CountingReader(folder))
    dist.barrier()
    return CountingReader.read
