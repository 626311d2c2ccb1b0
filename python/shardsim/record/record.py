# SPDX-License-Identifier: Apache-2.0
"""Records a scenario, or makes goldens anew in place and says which changed."""
from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from .golden import SEPARATOR, Recording, body_of, lines_of, split
from .job import Unsupported, comment, read_job

DEEPSPEED = {"zero1", "zero2", "zero3", "mics"}  # and naive_dp, which is its stage 0, where the head says `# library: deepspeed`


def record(text: str, what: str = "collectives", steps: int | None = None) -> Recording:
    """Runs the scenario; `what` is collectives, memory or checkpoint."""
    job = read_job(text)
    if job.strategy in DEEPSPEED or job.says.get("library") == "deepspeed":
        from . import deepspeed_recorder as recorder
    else:
        from . import torch_recorder as recorder
    if not hasattr(recorder, what):
        raise Unsupported(f"{what} of {job.strategy}")
    return getattr(recorder, what)(job, steps)


def update(path: Path) -> bool:
    """Makes the golden anew; true if its text changed."""
    old = path.read_text()
    head, _ = split(old)
    new = head + SEPARATOR + body_of(record(head, comment(head, "record", "collectives")))
    if new != old:
        path.write_text(new)
    return new != old


def update_all(paths: list[Path]) -> int:
    failed = 0
    for path in paths:
        begin = time.monotonic()
        try:
            verdict = "changed" if update(path) else "as before"
        except (Unsupported, RuntimeError) as problem:
            verdict, failed = f"FAILED: {problem}", failed + 1
        print(f"{path}: {verdict} ({time.monotonic() - begin:.1f} s)", flush=True)
    return 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="record", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="a scenario, or recordings with --update")
    parser.add_argument("--what", choices=["collectives", "memory", "checkpoint"], help="default: what the file's head says")
    parser.add_argument("--steps", type=int, help="default: three; one if the scenario says warm: false")
    parser.add_argument("--update", action="store_true", help="make goldens anew in place")
    parser.add_argument("-o", "--output", type=Path, help="default: standard output")
    given = parser.parse_args(arguments)
    if given.update:
        return update_all(given.files)
    if len(given.files) != 1:
        parser.error("one scenario at a time without --update")
    head, _ = split(given.files[0].read_text())
    lines = lines_of(record(head, given.what or comment(head, "record", "collectives"), given.steps))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    given.output.write_text(text) if given.output else sys.stdout.write(text)
    return 0
