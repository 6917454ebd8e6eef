"""Every error that quail-frames raises on purpose. Imports nothing.

Each message says what was wrong, where (column, row or call), and what to do.
"""

from __future__ import annotations

from typing import Any


class QuailFramesError(Exception):
    """Base of all errors raised by quail-frames."""


class CallError(QuailFramesError, ValueError):
    """An AI call is malformed: template, labels, descriptions, selectivity or options."""


class ColumnError(QuailFramesError, ValueError):
    """An AI call meets a frame that lacks its column, or whose column has an unusable type."""


class PlanError(QuailFramesError, ValueError):
    """A query cannot be planned as written."""


class SqlError(QuailFramesError, ValueError):
    """SQL text that cannot be planned as written; nothing of it has run.

    Attributes
    ----------
    problems
        Every problem found, as (line, column, what is wrong and what to write instead); both count from 1.
    """

    def __init__(self, problems: list[tuple[int, int, str]]) -> None:
        self.problems = tuple(sorted(set(problems)))
        lines = [f"line {line}, column {column}: {message}" for line, column, message in self.problems]
        several = f"this query has {len(lines)} problems\n  "
        super().__init__(lines[0] if len(lines) == 1 else several + "\n  ".join(lines))

    def __reduce__(self) -> tuple[type[SqlError], tuple[list[tuple[int, int, str]]]]:
        return type(self), (list(self.problems),)


class ModelError(QuailFramesError, RuntimeError):
    """A model cannot be found, fetched, read or run."""


class DeviceMemoryError(ModelError):
    """A batch does not fit the device's memory beside the model and its KV."""


class ContextOverflowError(QuailFramesError, ValueError):
    """A prompt is longer than the model's context.

    Attributes
    ----------
    partial
        The rows answered before the error, as a frame of the query's schema; None
        where the failing run had no frame (a bare engine run).
    row
        Zero-based number of the row, in the input of the failing call.
    tokens, limit
        Length of the prompt and the most the model takes, in tokens.
    """

    def __init__(
        self, message: str, *, row: int | None = None, tokens: int | None = None, limit: int | None = None
    ) -> None:
        super().__init__(message)
        self.row = row
        self.tokens = tokens
        self.limit = limit
        self.partial: Any = None

    def __str__(self) -> str:
        return super().__str__() if self.row is None else f"row {self.row}: {super().__str__()}"


class QuailFramesWarning(UserWarning):
    """Something works, but not as well as the form the message names."""
