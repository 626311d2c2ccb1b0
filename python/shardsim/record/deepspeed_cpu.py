# SPDX-License-Identifier: Apache-2.0
"""What DeepSpeed's CPU accelerator, or gloo, does otherwise than CUDA with NCCL where it changes what is sent. Each repair says why."""
from __future__ import annotations

import sys

import torch
import torch.distributed as dist

from .collectives import Collective, Log


class QuantizerShapes:
    """The CUDA quantizer without its kernels: sizes of csrc/quantization/pt_binding.cpp, no values."""
    Symmetric = 0

    def quantize(self, tensor, groups, bits, kind):
        return torch.zeros(tensor.numel() * bits // 8, dtype=torch.int8), torch.ones(groups, dtype=torch.float32)

    def dequantize(self, values, scales, groups, bits, kind):
        return torch.zeros(values.shape if bits == 8 else [values.numel() * 8 // bits], dtype=torch.float16)

    def swizzle_quant(self, tensor, groups, bits, kind, pipeline, nodes, devices):
        return self.quantize(tensor, groups, bits, kind)

    def quantized_reduction(self, values, scales, in_groups, out_groups, bits, kind, devices):
        return torch.zeros(values.numel() // devices, dtype=torch.int8), torch.ones(out_groups, dtype=torch.float32)


class QuantizerBuilder:
    def load(self, verbose=False):
        return QuantizerShapes()


def by_dtype(tensors):
    """DeepSpeed compares names of types with 'torch.cpu.HalfTensor', which no tensor has, and so drops every gradient."""
    dtypes = (torch.float16, torch.float32, torch.float64, torch.bfloat16)
    return [found for found in ([t for t in tensors if t.dtype == d] for d in dtypes) if found]


def mend() -> None:
    """In a rank, after deepspeed is imported."""
    from deepspeed.accelerator import get_accelerator
    from deepspeed.ops import op_builder
    import deepspeed.runtime.zero.stage_1_and_2 as stage_1_and_2
    backend = sys.modules["deepspeed.comm.torch"]
    backend.build_shm_op = lambda: None  # would compile an operator that inference uses
    accelerator = type(get_accelerator())
    accelerator.is_fp16_supported = accelerator.is_bf16_supported = lambda self: True
    stage_1_and_2.split_half_float_double = by_dtype
    op_builder.QuantizerBuilder = QuantizerBuilder


def coalesce_into(log: Log) -> None:
    """gloo cannot coalesce (it hangs, or has no such call): the calls are made one by one, and recorded as the one that NCCL would get."""
    backend = sys.modules["deepspeed.comm.torch"].TorchBackend

    def as_one(begin: int) -> None:
        parts = log.collectives[begin:]
        if len(parts) > 1:
            first = parts[0]
            log.collectives[begin:] = [Collective(first.step, first.phase, first.kind, sum(p.elements for p in parts), first.dtype, first.ranks, first.stride)]

    def all_gather_coalesced(self, output_tensors, input_tensors, group=None, async_op=False):
        begin = len(log.collectives)
        handles = [dist.all_gather_into_tensor(o, i, group=group, async_op=True) for o, i in zip(output_tensors, input_tensors)]
        as_one(begin)
        for handle in handles[:-1]:
            handle.wait()
        if async_op:
            return handles[-1]
        handles[-1].wait()

    def all_reduce_coalesced(self, tensors, op=dist.ReduceOp.SUM, group=None, async_op=False):
        begin = len(log.collectives)
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
        as_one(begin)

    backend.all_gather_coalesced, backend.all_reduce_coalesced = all_gather_coalesced, all_reduce_coalesced
