# SPDX-License-Identifier: Apache-2.0
"""Results as objects: the JSON contract (docs/json.md) with attributes, tables and pages."""

from __future__ import annotations

import copy
import html
from typing import Any, Callable, Iterator


class Section:
    """A part of a result: its keys are attributes. Names end in their unit: `_bytes`, `_s` (seconds); the rest are counts, shares or words."""

    __slots__ = ("_data",)

    def __init__(self, data: dict[str, Any]):
        object.__setattr__(self, "_data", data)

    def __getattr__(self, name: str) -> Any:
        try:
            return _wrapped(self._data[name])
        except KeyError:
            raise AttributeError(f"{name!r}; there is {', '.join(self._data)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("results do not change")

    def __getitem__(self, name: str) -> Any:
        return _wrapped(self._data[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._data]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Section) and self._data == other._data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={_short(v)}' for k, v in self._data.items())})"

    def to_dict(self) -> dict[str, Any]:
        """The same values as plain Python: equal to the JSON of the command line. A copy."""
        return copy.deepcopy(self._data)


def _wrapped(value: Any) -> Any:
    if isinstance(value, dict):
        return Section(value)
    if isinstance(value, list):
        return [_wrapped(v) for v in value]
    return value


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{...}"
    if isinstance(value, list):
        return f"[{len(value)}]"
    return repr(value)


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Single figures by dotted path; lists are left out."""
    out: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            out.update(_flat(value, f"{prefix}{key}."))
        elif not isinstance(value, list):
            out[prefix + key] = value
    return out


def _frame(rows: list[dict[str, Any]]):
    try:
        import pandas
    except ImportError:
        raise ImportError("to_pandas() needs pandas: pip install shardsim[pandas]") from None
    return pandas.DataFrame(rows)


class Report(Section):
    """A result with the report that the command prints, and its page."""

    __slots__ = ("_page", "_table")

    def __init__(self, data: dict[str, Any], table: str | Callable[[], str], page: str | Callable[[], str]):
        super().__init__(data)
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_page", page)

    def table(self) -> str:
        """The report as text, as in a terminal."""
        return self._table() if callable(self._table) else self._table

    def html(self) -> str:
        """One self-contained page with charts; opens without a network."""
        return self._page() if callable(self._page) else self._page

    def _repr_html_(self) -> str:
        # The page brings its own styles and scripts, which must not meet the notebook's.
        return f'<iframe srcdoc="{html.escape(self.html(), quote=True)}" style="width:100%;height:640px;border:0"></iframe>'

    def __str__(self) -> str:
        return self.table()


class Simulation(Report):
    """One simulated step of a rank.

    `traffic`: bytes that each rank sends, by collective and group, next to what the papers count.
    `memory`: peak allocated, reserved and device bytes, what they consist of, and whether the job `fits`.
    `step`: seconds of the step and what they consist of, tokens per second, MFU and HFU (shares of the peak), what bounds it.
    `warnings`: sentences. docs/json.md describes every key.
    """

    __slots__ = ("_report",)

    def __init__(self, data: dict[str, Any], report: Callable[[str], str]):
        super().__init__(data, lambda: report("table"), lambda: report("html"))
        object.__setattr__(self, "_report", report)

    def trace(self) -> str:
        """The step's timeline as a trace for Perfetto or chrome://tracing (JSON text)."""
        return self._report("trace")

    def svg(self) -> str:
        """The step's timeline as a picture."""
        return self._report("svg")

    def schedule(self) -> str:
        """The program that one rank's host issues, as text."""
        return self._report("schedule")

    def to_pandas(self):
        """One row; a column for each figure, named by its dotted path."""
        return _frame([_flat(self._data)])


class Comparison(Report):
    """The same job under several strategies: `results`, fastest first."""

    __slots__ = ()

    def to_pandas(self):
        """A row for each strategy that ran; a column for each figure, named by its dotted path."""
        return _frame([_flat(r) for r in self._data["results"]])


class Plan(Report):
    """Ways to run a job: `best` by time, cost and GPUs, the Pareto front, and answers in words."""

    __slots__ = ()

    def to_pandas(self):
        """The Pareto front, a row for each way."""
        return _frame([_flat(e) for e in self._data["pareto"]])


class Sweep:
    """The rows of a sweep in order of their number: dictionaries with `index`, the keys that vary, `error`, and every figure by its dotted path."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def to_pandas(self):
        """A row for each scenario."""
        return _frame(self.rows)

    def to_dict(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self.rows)

    def _repr_html_(self) -> str:
        return self.to_pandas()._repr_html_()

    def __repr__(self) -> str:
        return f"Sweep({len(self.rows)} rows)"
