#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python, dispatcher, autograd and each library's hooks cost the host: the figures of scenarios/stacks.

Tensors of a few elements on the CPU, one thread, process time, median of 15: arithmetic is nothing. Slopes between small and large models leave the rest out.
    python scripts/stack_costs.py eager      needs torch and transformers
    python scripts/stack_costs.py fsdp2|ddp  needs torch
    python scripts/stack_costs.py zero1|zero2|zero3  needs deepspeed (DS_ACCELERATOR=cpu)
"""
import os
import statistics
import sys
import time

import torch
from torch import nn

torch.set_num_threads(1)


def microseconds(run, repetitions=15):
    for _ in range(3):
        run()
    times = []
    for _ in range(repetitions):
        begin = time.process_time()
        run()
        times.append((time.process_time() - begin) * 1e6)
    return statistics.median(times)


def eager():
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
    small = dict(vocab_size=128)
    makers = {
        "llama": lambda n: LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=n, num_attention_heads=4,
                                                        num_key_value_heads=2, max_position_embeddings=64, **small)),
        "gpt2": lambda n: GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=n, n_head=4, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **small)),
    }
    tokens = torch.randint(0, 128, (1, 8))
    for name, make in makers.items():
        found = {}
        for layers in (4, 20):
            model = make(layers)
            forward = microseconds(lambda: model(input_ids=tokens, labels=tokens, use_cache=False).loss)
            found[layers] = forward, microseconds(lambda: model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()) - forward
        print(name, "us a block: forward %.0f, backward %.0f" % tuple((b - a) / 16 for a, b in zip(found[4], found[20])))
    parameters = [nn.Parameter(torch.zeros(4)) for _ in range(400)]
    for p in parameters:
        p.grad = torch.zeros(4)
    print("fused AdamW, us a tensor: %.1f" % (microseconds(torch.optim.AdamW(parameters, fused=True).step) / 400))
    module, x = nn.Identity(), torch.zeros(4)
    print("module call: %.2f us" % (microseconds(lambda: [module(x) for _ in range(1000)]) / 1000))


class Block(nn.Module):
    def __init__(self, parameters):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(parameters))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def blocks(count, parameters):
    return nn.Sequential(*[Block(parameters) for _ in range(count)])


def wrapped(kind):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    torch.distributed.init_process_group("gloo")
    if kind == "ddp":
        wrap = nn.parallel.DistributedDataParallel
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (1,))

        def wrap(model):
            for block in model:
                fully_shard(block, mesh=mesh)
            return fully_shard(model, mesh=mesh)
    x = torch.zeros(2, 8, requires_grad=True)

    def times(model):
        forward = microseconds(lambda: model(x))
        return forward, microseconds(lambda: model(x).sum().backward()) - forward

    def slope(make, parameters):
        few, many = times(make(blocks(4, parameters))), times(make(blocks(16, parameters)))
        return [(b - a) / 12 for a, b in zip(few, many)]

    for parameters in (1, 7):
        plain, with_library = slope(lambda m: m, parameters), slope(wrap, parameters)
        print(kind, "adds to a block of %d parameters: forward %.0f us, backward %.0f us" % (parameters, *[b - a for a, b in zip(plain, with_library)]))


def zero(stage):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29518", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", DS_ACCELERATOR="cpu")
    import deepspeed
    deepspeed.init_distributed("gloo")
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0, "reduce_bucket_size": 1000000, "stage3_prefetch_bucket_size": 100},
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}}

    def times(count):
        model = blocks(count, 7)
        engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
        x = torch.zeros(2, 8, dtype=torch.bfloat16, requires_grad=True)
        parts = ([], [], [])
        for i in range(14):
            marks = [time.process_time()]
            loss = engine(x).sum()
            marks.append(time.process_time())
            engine.backward(loss)
            marks.append(time.process_time())
            engine.step()
            marks.append(time.process_time())
            if i >= 4:
                for part, a, b in zip(parts, marks, marks[1:]):
                    part.append((b - a) * 1e6)
        return [statistics.median(part) for part in parts]

    few, many = times(4), times(16)
    block = [(b - a) / 12 for a, b in zip(few, many)]
    print("stage %d, us a block of 7 parameters: forward %.0f, backward %.0f, step %.0f; step beside blocks %.0f" % (stage, *block, few[2] - 4 * block[2]))


if __name__ == "__main__":
    what = sys.argv[1]
    eager() if what == "eager" else zero(int(what[-1])) if what.startswith("zero") else wrapped(what)
