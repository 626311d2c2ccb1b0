# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel, FullyShardedDataParallel and fully_shard with a scenario's options, which carry the libraries' own names."""
from __future__ import annotations

import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from .job import Job, Unsupported
from .models import TORCH_DTYPES, blocks_of


def wrap(model: nn.Module, job: Job) -> nn.Module:
    wrappers = {"ddp": wrap_ddp, "zero_redundancy": wrap_ddp, "fsdp1": wrap_fsdp1, "fsdp2": wrap_fsdp2, "naive_dp": lambda model, job: model}
    if job.strategy not in wrappers:
        raise Unsupported(f"strategy {job.strategy}")
    return wrappers[job.strategy](model, job)


def reject(options: dict) -> None:
    if options:
        raise Unsupported(f"options {', '.join(options)}")


def mesh_of(job: Job, replicate: int):
    if replicate > 1:
        return init_device_mesh("cpu", (replicate, job.world // replicate), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh("cpu", (job.world,), mesh_dim_names=("shard",))


def wrap_ddp(model: nn.Module, job: Job) -> nn.Module:
    options = dict(job.options)
    for of_the_loop in ("no_sync", "parameters_as_bucket_view", "overlap_with_ddp"):
        options.pop(of_the_loop, None)
    hook, rank = options.pop("comm_hook", "none"), options.pop("powersgd_rank", 1)
    wrapped = nn.parallel.DistributedDataParallel(model, **options)
    if hook != "none":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
        if hook == "powersgd":
            # Plain all-reduces come first in real runs (start_powerSGD_iter, 1,000 steps by default); the recording starts after them.
            state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
            wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        else:
            wrapped.register_comm_hook(None, {"bf16_compress": default_hooks.bf16_compress_hook,
                                              "fp16_compress": default_hooks.fp16_compress_hook}[hook])
    return wrapped


def wrap_fsdp1(model: nn.Module, job: Job) -> nn.Module:
    from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    options = dict(job.options)
    options.pop("no_sync", None)
    strategy = options.pop("sharding_strategy", "FULL_SHARD")
    prefetch = options.pop("backward_prefetch", "BACKWARD_PRE")
    replicate = options.pop("replicate", None)
    arguments = {"sharding_strategy": ShardingStrategy[strategy], "device_id": torch.device("cpu"),
                 "backward_prefetch": None if prefetch == "none" else BackwardPrefetch[prefetch]}
    if "HYBRID" in strategy:
        arguments["device_mesh"] = mesh_of(job, replicate or max(1, job.world // job.gpus_per_node))
    arguments |= auto_wrap_policy(model, options.pop("wrap", "blocks"), options.pop("min_num_params", None))
    precision = job.precision
    if precision.parameters != precision.stored or precision.reduce not in (None, precision.parameters):
        arguments["mixed_precision"] = MixedPrecision(param_dtype=TORCH_DTYPES[precision.parameters],
                                                      reduce_dtype=TORCH_DTYPES[precision.reduce] if precision.reduce else None)
    return FullyShardedDataParallel(model, **arguments, **options)


def auto_wrap_policy(model: nn.Module, kind: str, min_num_params: int | None) -> dict:
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy
    if kind == "none":
        return {}
    if kind == "size":
        return {"auto_wrap_policy": functools.partial(size_based_auto_wrap_policy, min_num_params=min_num_params or 100_000_000)}
    classes = {type(block) for block in blocks_of(model)}
    if kind == "peft":
        from peft.utils.other import fsdp_auto_wrap_policy
        return {"auto_wrap_policy": fsdp_auto_wrap_policy(model)}
    if kind == "embedding":
        classes.add(nn.Embedding)
    return {"auto_wrap_policy": ModuleWrapPolicy(classes)}


def wrap_fsdp2(model: nn.Module, job: Job) -> nn.Module:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    options = dict(job.options)
    for of_the_loop in ("requires_gradient_sync", "requires_all_reduce", "reshard_after_backward", "no_sync"):
        options.pop(of_the_loop, None)
    precision = job.precision
    reduce = options.pop("reduce_dtype", precision.reduce)
    parameters = precision.parameters if precision.parameters != precision.stored else None
    policy = MixedPrecisionPolicy(param_dtype=TORCH_DTYPES[parameters] if parameters else None,
                                  reduce_dtype=TORCH_DTYPES[reduce] if reduce and (parameters or reduce != precision.stored) else None)
    arguments = {"mesh": mesh_of(job, options.pop("replicate", 1)), "mp_policy": policy}
    reshard, reshard_root = options.pop("reshard_after_forward", None), options.pop("reshard_root_after_forward", None)
    kept = {} if reshard is None else {"reshard_after_forward": reshard}
    blocks = blocks_of(model)
    titan = options.pop("wrap", "blocks") == "torchtitan"
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if titan:  # torchtitan, models/llama3/infra/parallelize.py, apply_fsdp
        fully_shard(embedding, **arguments, reshard_after_forward=True if reshard is None else reshard)
    for block in blocks:
        fully_shard(block, **arguments, **kept)
    if titan:
        fully_shard([model.model.norm, head], **arguments, reshard_after_forward=bool(reshard_root))
    root_kept = {} if titan or reshard_root is None else {"reshard_after_forward": reshard_root and (reshard if reshard is not None else True)}
    fully_shard(model, **arguments, **root_kept)
    if ahead := options.pop("forward_prefetch", 0):
        for index, block in enumerate(blocks):
            block.set_modules_to_forward_prefetch(list(blocks[index + 1:index + 1 + ahead]))
    if (ahead := options.pop("backward_prefetch", 1)) > 1:
        for index, block in enumerate(blocks):
            block.set_modules_to_backward_prefetch(list(reversed(blocks[max(0, index - ahead):index])))
    if not options.pop("unshard_in_backward", True):
        embedding.set_unshard_in_backward(False)
    if options.pop("separate_reduce_scatter_group", False):
        model.set_separate_reduce_scatter_group(dist.new_group(list(range(job.world))))
    reject(options)
    return model
