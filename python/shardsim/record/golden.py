# SPDX-License-Identifier: Apache-2.0
"""The text of a golden recording: a scenario, a line of three dashes, and what the library did with it (tests/recordings/README.md)."""
from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby

from .collectives import Collective

SEPARATOR = "---\n"


@dataclass
class Recording:
    libraries: dict[str, str]                      # name: version; first the one that the strategy is of
    backend: str = ""                              # gloo, fake; empty for what runs without ranks
    parameters: int = 0
    trainable: int = 0
    collectives: list[Collective] = field(default_factory=list)       # of every step
    step: int = -1                                 # the step that the golden shows
    memory: dict[str, dict[str, int]] = field(default_factory=dict)   # phase: bytes by category where the phase holds most
    checkpoint: dict[str, list[int]] = field(default_factory=dict)    # what: bytes by rank


def split(text: str) -> tuple[str, str]:
    """(scenario with its comments, body)."""
    head, _, body = text.partition("\n" + SEPARATOR)
    return head.rstrip("\n") + "\n", body


def body_of(recording: Recording) -> str:
    lines = ["library: " + ", ".join(f"{name} {version}" for name, version in recording.libraries.items())]
    if recording.backend:
        lines.append(f"backend: {recording.backend}")
    lines.append(f"parameters: {recording.parameters}, trainable {recording.trainable}")
    chosen = [c for c in recording.collectives if c.step == recording.step]
    for phase, of_phase in groupby(chosen, key=lambda c: c.phase):
        lines.append(f"{phase}:")
        for text, run in groupby(map(text_of, of_phase)):
            count = len(list(run))
            lines.append(f"  {text}" + (f" x{count}" if count > 1 else ""))
    for phase, categories in recording.memory.items():
        lines.append(f"memory {phase}:")
        lines += [f"  {category} {size}" for category, size in categories.items() if size]
    if recording.checkpoint:
        lines.append("checkpoint:")
        lines += [f"  {what} {' '.join(map(str, sizes))}" for what, sizes in recording.checkpoint.items()]
    return "\n".join(lines) + "\n"


def text_of(c: Collective) -> str:
    return f"{c.kind} {c.elements} {c.dtype} over {c.ranks}" + (f" stride {c.stride}" if c.stride > 1 else "")


def lines_of(recording: Recording) -> list[dict]:
    """The same, of every step, as JSON objects."""
    lines: list[dict] = [{"libraries": recording.libraries, "backend": recording.backend, "parameters": recording.parameters,
                          "trainable": recording.trainable}]
    lines += [c.as_dict() for c in recording.collectives]
    lines += [{"phase": phase, "memory": categories} for phase, categories in recording.memory.items()]
    if recording.checkpoint:
        lines.append({"checkpoint": recording.checkpoint})
    return lines
