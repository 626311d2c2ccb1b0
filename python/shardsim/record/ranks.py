# SPDX-License-Identifier: Apache-2.0
"""Ranks of a recording: processes of this machine over gloo, or one process that plays rank 0 of any world over the fake backend."""
from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from typing import Any, Callable

import torch
import torch.distributed as dist

def in_ranks(world: int, backend: str, run: Callable[[int], Any]) -> list[Any]:
    """What `run(rank)` returns in each process, as JSON. Processes are forks, so that libraries are imported once for all of them."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = range(world) if backend == "gloo" else range(1)
        children = {_fork(rank, world, backend, folder, run): rank for rank in ranks}
        failed = False
        while children:
            pid, status = os.wait()
            if pid not in children:
                continue
            del children[pid]
            if status and not failed:
                failed = True
                for other in children:
                    os.kill(other, signal.SIGKILL)
        if failed:
            raise RuntimeError("a rank failed")
        return [json.load(open(os.path.join(folder, f"result.{rank}"))) for rank in ranks]


def _fork(rank: int, world: int, backend: str, folder: str, run: Callable[[int], Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        torch.set_num_threads(1)
        _join(rank, world, backend, folder)
        result = run(rank)
        with open(os.path.join(folder, f"result.{rank}"), "w") as file:
            json.dump(result, file)
        if backend == "gloo":
            dist.barrier()
        dist.destroy_process_group()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _join(rank: int, world: int, backend: str, folder: str) -> None:
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore  # importing it registers the backend
        store: Any = FakeStore()
    else:
        store = dist.FileStore(os.path.join(folder, "store"), world)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
