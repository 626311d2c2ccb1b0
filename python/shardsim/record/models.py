# SPDX-License-Identifier: Apache-2.0
"""The scenario's model as a real module: transformers' class for a Hugging Face configuration, PEFT's adapters, a ResNet."""
from __future__ import annotations

from fnmatch import fnmatchcase

import torch
from torch import nn

from .job import Job, Unsupported

TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}


def make_model(job: Job, attention: str = "sdpa") -> nn.Module:
    torch.manual_seed(1)
    if "hf_config" in job.model:
        from transformers import AutoConfig, AutoModelForCausalLM
        keys = dict(job.model["hf_config"])
        config = AutoConfig.for_model(keys.pop("model_type"), use_cache=False, **keys)
        config._attn_implementation = attention
        torch.set_default_dtype(TORCH_DTYPES[job.precision.stored])
        model = AutoModelForCausalLM.from_config(config)
        torch.set_default_dtype(torch.float32)
    elif job.model.get("preset") == "resnet-18":
        model = ResNet18().to(TORCH_DTYPES[job.precision.stored])
    else:
        raise Unsupported("recorded models are given by hf_config, or are resnet-18")
    if job.lora:
        model = add_adapters(model, job)
    elif isinstance(job.trainable, list):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(any(fnmatchcase(name, pattern) for pattern in job.trainable))
    return model


def add_adapters(model: nn.Module, job: Job) -> nn.Module:
    from peft import LoraConfig, get_peft_model
    lora = job.lora
    model = get_peft_model(model, LoraConfig(r=lora["rank"], target_modules=list(lora["targets"]), lora_dropout=lora.get("dropout", 0.0)),
                           autocast_adapter_dtype=False)
    dtype = TORCH_DTYPES[lora.get("dtype", job.precision.stored)]
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            parameter.data = parameter.data.to(dtype)
    return model


def blocks_of(model: nn.Module) -> nn.ModuleList:
    """The repeated blocks: the first list of modules that has as many entries as the configuration has layers."""
    layers = model.config.num_hidden_layers if hasattr(model, "config") else len(model.blocks)
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == layers:
            return module
    raise Unsupported("a model without a list of blocks")


def checkpoint_blocks(model: nn.Module, use_reentrant: bool) -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
    kind = CheckpointImpl.REENTRANT if use_reentrant else CheckpointImpl.NO_REENTRANT
    blocks = blocks_of(model)
    for index, block in enumerate(blocks):
        blocks[index] = checkpoint_wrapper(block, checkpoint_impl=kind, preserve_rng_state=False)


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """Modules and parameters as torchvision registers them."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.ModuleList()
        inputs = 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            self.blocks += [BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1)]
            inputs = outputs
        self.fc = nn.Linear(512, 1000)

    def forward(self, images):
        x = self.maxpool(torch.relu(self.bn1(self.conv1(images))))
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((2, 3)))
