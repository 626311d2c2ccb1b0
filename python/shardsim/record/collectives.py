# SPDX-License-Identifier: Apache-2.0
"""Collectives of this process in the order of issue, as torch.distributed's process groups are asked for them.

ProcessGroup.register_pre_hook (PyTorch 2.15) sees calls from C++ (DDP's reducer, functional collectives of DTensor) as well as from
Python; nothing is patched.
"""
from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist

KINDS = {
    "ALLREDUCE": "all_reduce", "ALLREDUCE_COALESCED": "all_reduce", "BROADCAST": "broadcast", "REDUCE": "reduce",
    "ALLGATHER": "all_gather", "ALLGATHER_BASE": "all_gather", "ALLGATHER_COALESCED": "all_gather",
    "ALLGATHER_INTO_TENSOR_COALESCED": "all_gather",
    "REDUCE_SCATTER": "reduce_scatter", "REDUCE_SCATTER_BASE": "reduce_scatter", "REDUCE_SCATTER_TENSOR_COALESCED": "reduce_scatter",
    "ALLTOALL": "all_to_all", "ALLTOALL_BASE": "all_to_all",
}
MOVES_NOTHING = {"BARRIER", "SPLIT", "NEW_WINDOW", "UNKNOWN"}
# shardsim's names; bytes are bytes, signed or not.
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64", torch.int32: "int32",
          torch.int64: "int64", torch.uint8: "int8", torch.int8: "int8"}


@dataclass(frozen=True)
class Collective:
    """`elements` are those of the whole buffer with its padding: an all-gather's output, a reduce-scatter's input."""
    step: int
    phase: str          # "forward 0", "backward 0" (of a micro-batch), "step"
    kind: str
    elements: int
    dtype: str
    ranks: int
    stride: int         # from one rank of the group to the next

    def as_dict(self) -> dict:
        return asdict(self)


class Log:
    """One a process. The training loop says where it is by `step` and `phase`; only collectives of more than one rank are kept."""

    def __init__(self) -> None:
        self.collectives: list[Collective] = []
        self.step, self.phase = -1, "setup"
        self._hooked: set[int] = set()

    def attach(self) -> None:
        """Hooks every process group that exists by now: libraries make more of them while they run."""
        for group in list(dist.distributed_c10d._world.pg_map):
            if id(group) in self._hooked or not hasattr(group, "register_pre_hook"):
                continue
            self._hooked.add(id(group))
            ranks = dist.get_process_group_ranks(group)
            group.register_pre_hook(len(self._hooked), lambda call, ranks=ranks: self._on_call(call, ranks))

    def add(self, kind: str, elements: int, dtype: torch.dtype, ranks: list[int]) -> None:
        if len(ranks) > 1:
            self.collectives.append(Collective(self.step, self.phase, kind, elements, DTYPES[dtype], len(ranks), ranks[1] - ranks[0]))

    def _on_call(self, call, ranks: list[int]) -> None:
        name = call.name.name
        if name in MOVES_NOTHING:
            return
        kind = KINDS[name]
        whole = call.output_tensors if kind == "all_gather" else call.input_tensors or call.output_tensors
        elements: dict[torch.dtype, int] = {}
        for tensor in whole:
            elements[tensor.dtype] = elements.get(tensor.dtype, 0) + tensor.numel()
        for dtype, count in elements.items():
            self.add(kind, count, dtype, ranks)
