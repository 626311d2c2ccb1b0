# SPDX-License-Identifier: Apache-2.0
"""The job to run: a scenario as shardsim reads it, here as plain values."""
from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

PRECISIONS = {
    "mixed": {"parameters": "bf16", "master": "fp32"},
    "autocast": {"parameters": "fp32", "compute": "bf16", "reduce": "fp32"},
    "pure-bf16": {"parameters": "bf16", "master": "none", "reduce": "bf16"},
    "fp32": {"parameters": "fp32", "reduce": "fp32"},
}


NEEDS_GLOO = {"ddp", "zero_redundancy"}  # the fake backend's futures hold nothing, and DDP's reducer looks into them


class Unsupported(Exception):
    """The scenario asks for something that no recorder runs."""


@dataclass
class Precision:
    """As training.precision has it: `stored` is the dtype in which the optimizer's parameters are made."""
    parameters: str = "bf16"
    compute: str = "bf16"
    reduce: str | None = None
    master: str = "none"

    @property
    def stored(self) -> str:
        return self.parameters if self.master == "none" else self.master


@dataclass
class Job:
    scenario: dict[str, Any]
    strategy: str
    options: dict[str, Any]
    world: int
    gpus_per_node: int
    precision: Precision
    optimizer: dict[str, Any]
    checkpointing: dict[str, Any]
    backend: str = "fake"
    training: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    says: dict[str, str] = field(default_factory=dict)  # comment lines of the scenario: `# init: zero`

    @property
    def micro_batches(self) -> int:
        return self.training.get("gradient_accumulation_steps", 1)

    @property
    def trainable(self) -> Any:
        return self.model.get("trainable", "all")

    @property
    def lora(self) -> dict[str, Any] | None:
        return self.trainable.get("lora") if isinstance(self.trainable, dict) else None


def read_precision(value: Any) -> Precision:
    given = dict(PRECISIONS[value]) if isinstance(value, str) else dict(value)
    parameters = given.get("parameters", "bf16")
    default_master = "fp32" if parameters in ("bf16", "fp16") else "none"
    return Precision(parameters, given.get("compute", parameters), given.get("reduce"), given.get("master", default_master))


def comment(text: str, key: str, fallback: str) -> str:
    """What a comment line of the scenario says to the recorder: `# ranks: gloo`, `# record: memory`."""
    match = re.search(rf"^# {key}: (\w+)$", text, re.MULTILINE)
    return match[1] if match else fallback


def read_job(text: str) -> Job:
    scenario = yaml.safe_load(text)
    training = scenario.get("training", {})
    options = copy.deepcopy(scenario["strategy"])
    name = options.pop("name")
    options.pop("version", None)
    optimizer = training.get("optimizer", "adamw")
    checkpointing = training.get("activation_checkpointing", "none")
    cluster = scenario["cluster"]
    per_node = cluster.get("gpus_per_node", 8)
    return Job(scenario=scenario, strategy=name, options=options, world=cluster.get("nodes", 1) * per_node, gpus_per_node=per_node,
               precision=read_precision(training.get("precision", "mixed")),
               optimizer=optimizer if isinstance(optimizer, dict) else {"name": optimizer},
               checkpointing=checkpointing if isinstance(checkpointing, dict) else {"kind": checkpointing},
               backend=comment(text, "ranks", "gloo" if name in NEEDS_GLOO else "fake"), training=training, model=scenario["model"],
               says=dict(re.findall(r"^# (\w+): (\w+)$", text, re.MULTILINE)))


def with_world(job: Job, world: int) -> Job:
    """The same job on other ranks of one node."""
    return replace(job, world=world, gpus_per_node=world)
