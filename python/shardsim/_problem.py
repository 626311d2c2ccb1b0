# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, as exceptions."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Place:
    """One thing that is wrong: where it stands, what it is, and what is allowed."""

    file: str
    line: int  #: from 1; 0: the source as a whole
    column: int
    message: str
    notes: list[str] = field(default_factory=list)


class Problem(ValueError):
    """The input is wrong. `str(problem)` is what the program prints; `places` lists every problem, `file`, `line` and `column` are of the first."""

    def __init__(self, text: str, places: list[dict] | None = None):
        super().__init__(text.rstrip("\n"))
        self.places = [Place(**p) for p in places or []]

    @property
    def file(self) -> str:
        return self.places[0].file if self.places else ""

    @property
    def line(self) -> int:
        return self.places[0].line if self.places else 0

    @property
    def column(self) -> int:
        return self.places[0].column if self.places else 0


class MachineError(RuntimeError):
    """This machine lacks something: a GPU, a library, a writable disk."""


class PredictionWarning(UserWarning):
    """What a prediction warns of: a job that does not fit, an option without effect, a value that had to be assumed."""
