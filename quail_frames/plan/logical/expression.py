"""Expressions of the front end as the rules see them: opaque bodies, with what may be known of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from quail_frames.plan.calls import AiCall
from quail_frames.plan.conditions import Condition

ANSWER = "quail-frames answer "
"""Start of the name of every answer column: a column that holds a call's answers on their way to their use."""

Names = frozenset[str]


@dataclass(frozen=True)
class Expression:
    """One expression of the front end.

    Parameters
    ----------
    body
        The expression itself, over ordinary columns and the answer columns of `calls`.
    key
        Equal for equal expressions.
    names
        Names of the columns it gives.
    text
        How `explain` shows it.
    reads
        Ordinary columns that the body reads; None: not known.
    row_local
        Whether each row's value depends on that row alone.
    calls
        The calls whose answer columns the body reads.
    test
        The same predicate as a condition, where it is exactly one.
    column
        The column that it passes on unchanged, under its own or another name.
    over_answers
        The same predicate over the answers themselves, where it reads columns that hold them.
    """

    body: Any = field(compare=False, repr=False)
    key: str
    names: tuple[str, ...]
    text: str
    reads: Names | None
    row_local: bool
    calls: tuple[CallUse, ...] = ()
    test: Test | None = None
    column: str | None = None
    over_answers: Expression | None = None

    @property
    def needs(self) -> Names | None:
        """Columns that the body needs in its frame, answer columns included; None: not known."""
        return None if self.reads is None else self.reads | {call.column for call in self.calls}


@dataclass(frozen=True)
class CallUse:
    """A call asked of rows: `inputs[i]` gives the text of its input i, `column` is its answer column.

    Equal questions about equal inputs have equal answer columns, wherever they stand.
    """

    call: AiCall
    inputs: tuple[Expression, ...]
    column: str

    @property
    def reads(self) -> Names | None:
        """Columns that the inputs read."""
        return union(expression.reads for expression in self.inputs)


@dataclass(frozen=True)
class Test:
    """A predicate as a condition: its calls and masks are numbered as in the expression's `calls` and in `masks`."""

    __test__ = False  # pytest: not a test class

    condition: Condition
    masks: tuple[Expression, ...] = ()


def union(found: Iterable[Names | None]) -> Names | None:
    """All names; None where one of the sets is not known."""
    total: Names = frozenset()
    for names in found:
        if names is None:
            return None
        total |= names
    return total
