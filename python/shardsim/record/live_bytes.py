# SPDX-License-Identifier: Apache-2.0
"""Bytes of all live tensors of the process, unrounded, with the peak of each phase: every operation is seen by a dispatch mode, and a
storage counts until it is destroyed."""
from __future__ import annotations

import gc
import warnings
import weakref

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class LiveBytes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.peaks: dict[str, int] = {}
        self._alive: dict[int, tuple[weakref.ref, int]] = {}
        self._now, self._phase = 0, ""

    def next_phase(self, name: str) -> None:
        if not self._phase:
            self._add_what_is_there()
        self._phase = name
        self._peak()

    def _add_what_is_there(self) -> None:
        gc.collect()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for thing in gc.get_objects():
                try:
                    if isinstance(thing, torch.Tensor) and thing.device.type == "cpu":
                        self._add(thing)
                except Exception:  # lazy modules answer isinstance by raising
                    pass

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive or size == 0:
            return

        def destroyed(_: weakref.ref, key: int = key) -> None:
            if known := self._alive.pop(key, None):
                self._now -= known[1]
        self._alive[key] = (weakref.ref(storage, destroyed), size)
        self._now += size
        self._peak()

    def _peak(self) -> None:
        if self._phase:
            self.peaks[self._phase] = max(self.peaks.get(self._phase, 0), self._now)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if self._phase:
            for leaf in pytree.tree_leaves(out):
                if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu":
                    self._add(leaf)
        return out
