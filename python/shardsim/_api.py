# SPDX-License-Identifier: Apache-2.0
"""The functions of the package. Each takes a scenario as a path, as YAML text or as a dict, and overrides as a dict of dotted keys."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Union

from . import _core
from ._problem import PredictionWarning
from ._results import Comparison, Plan, Section, Simulation, Sweep, _flat

ScenarioLike = Union[str, "os.PathLike[str]", Mapping[str, Any]]
Overrides = Union[Mapping[str, Any], None]
Progress = Union[Callable[[int, int], None], None]


def _yaml(value: Any) -> str:
    """JSON is YAML: what a dict says, with a place on a line of its own for each key."""
    return json.dumps(value, indent=1, default=str)


def _given(scenario: ScenarioLike) -> _core.Given:
    if isinstance(scenario, Mapping):
        return _core.Given("<dict>", os.getcwd(), _yaml(scenario))
    text = os.fspath(scenario)
    if "\n" in text or ": " in text:
        return _core.Given("<text>", os.getcwd(), text)
    return _core.Given(text, os.path.dirname(text), None)


def _assignments(overrides: Overrides) -> list[str]:
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in (overrides or {}).items()]


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        warnings.warn(sentence, PredictionWarning, stacklevel=3)


def simulate(scenario: ScenarioLike, overrides: Overrides = None, *, explain: bool = False) -> Simulation:
    """Predicts one optimizer step: traffic, memory and time of a rank.

    scenario: a path, YAML text, or a dict of the same keys (docs/scenario.md). Relative paths inside start at the file's folder, for text and
        dicts at the working directory, then at the shipped scenarios.
    overrides: {"cluster.nodes": 16, "cluster.nic_bandwidth": "100 Gbit/s"}, as --set.
    explain: also what the memory peak consists of and what would lower it (`result.explanation`).

    Raises Problem with the places of what is wrong. Sentences of `result.warnings` are Python warnings too. Calls that differ in overrides
    share what they can: thousands run in a second.
    """
    given, assignments = _given(scenario), _assignments(overrides)
    data = _core.simulate(given, assignments, explain)
    _warn(data["warnings"])
    return Simulation(data, lambda form: _core.simulate_report(given, assignments, form))


def compare(scenario: ScenarioLike, strategies: Union[str, Iterable[str]] = "all", overrides: Overrides = None) -> Comparison:
    """Simulates the same job under several strategies (names of `shardsim.strategies()`, or "all"), fastest first.

    Strategies that cannot run the job are left out with a warning that says why.
    """
    names = strategies if isinstance(strategies, str) else ",".join(strategies)
    data, left_out, page, table = _core.compare(_given(scenario), _assignments(overrides), names)
    _warn(left_out)
    return Comparison(data, table, page)


def plan(scenario: ScenarioLike, overrides: Overrides = None, *, scaling: Union[tuple[int, int], None] = None, progress: Progress = None) -> Plan:
    """Searches nodes, strategy, micro-batch and checkpointing for a job (keys of `plan:` in the scenario say what is allowed).

    scaling: (1, 64) adds the job on 1 to 64 GPUs. progress: called with (candidates settled, candidates), from the threads that search.
    """
    least, most = scaling or (0, 0)
    data, page, table = _core.plan(_given(scenario), _assignments(overrides), least, most, progress)
    return Plan(data, table, page)


def sweep(sweep: ScenarioLike, *, jobs: int = 0, progress: Progress = None) -> Sweep:
    """Simulates a grid or list of scenarios: a sweep file, its YAML text, or a dict with `base` and `grid` or `list` (docs/scenario.md).

    jobs: threads (0: one a core). progress: called with (rows done, rows). A row that cannot run has its reason in `error` and no figures.
    For more than one machine, or tables of millions of rows, use the command `shardsim sweep`, which keeps a journal.
    """
    if isinstance(sweep, Mapping) or "\n" in os.fspath(sweep):
        text = _yaml(sweep) if isinstance(sweep, Mapping) else os.fspath(sweep)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=os.getcwd(), prefix=".sweep-") as file:
            file.write(text)
            file.flush()
            lines = _core.sweep(file.name, jobs, progress)
    else:
        lines = _core.sweep(os.fspath(sweep), jobs, progress)
    rows = []
    for line in lines:
        row = json.loads(line)
        rows.append({"index": row["index"], **row["set"], "error": row["error"], **_flat(row["result"] or {})})
    return Sweep(rows)


def check(paths: Union[str, "os.PathLike[str]", Iterable[Union[str, "os.PathLike[str]"]]]) -> Section:
    """Holds scenarios (files, or folders of them) to their `expect:` blocks: `checked`, `failed`, and `cases` with expected and actual."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    return Section(_core.check([os.fspath(p) for p in paths]))


def formula(strategy: str = "zero3", *, parameters: float = 7.5e9, ranks: int = 64) -> Section:
    """What the papers count for a strategy: bytes of the states that a rank holds and that it sends in a step, each with its formula and reason."""
    return Section(_core.formula(strategy, parameters, ranks))


def import_scenario(format: str, file: Union[str, "os.PathLike[str]"], *, model: str = "", cluster: str = "", nodes: int = 0, gpus_per_node: int = 0) -> str:
    """Turns another tool's configuration (formats as in `shardsim import --help`) into the YAML text of a scenario. What was assumed is a warning."""
    text, notes = _core.import_scenario(format, os.fspath(file), model, cluster, nodes, gpus_per_node)
    _warn(notes)
    return text


def strategies() -> list[Section]:
    """Every strategy: `name`, `summary`, `library`, and `options` with what each does."""
    return [Section(d) for d in _core.strategies()]


def models() -> list[str]:
    """Names for `model: {preset: ...}`."""
    return list(_core.models())


def clusters() -> list[str]:
    """Shipped profiles, for `cluster: {profile: ...}`."""
    folder = Path(_core.shipped_folder())
    return sorted(str(p.relative_to(folder)) for p in (folder / "clusters").rglob("*.yaml"))
