"""Small plans for the rules' tests: expressions are named, not real."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quail_frames.plan.calls import AiCall, AiIf
from quail_frames.plan.conditions import Answer, Condition
from quail_frames.plan.logical import ANSWER, CallUse, Expression, Node, Source, Step, Test, inputs
from quail_frames.plan.template import Slot, Template

SOURCE = Source(None, "t", ("a", "b", "c"))


def column(name: str) -> Expression:
    return Expression(None, name, (name,), name, frozenset({name}), True, column=name)


def expr(name: str, *reads: str, row_local: bool = True, calls: tuple[CallUse, ...] = ()) -> Expression:
    """An expression that gives column `name`."""
    return Expression(None, f"{name} of {reads}", (name,), name, frozenset(reads), row_local, calls)


def question(
    text: str, on: str = "a", selectivity: float | None = None, kind: type[AiCall] = AiIf, **options: Any
) -> CallUse:
    call = kind(Template((f"{text} ", Slot(0))), (on,), selectivity, **options)
    return CallUse(call, (column(on),), ANSWER + text)


def keeps(use: CallUse, condition: Condition | None = None) -> Expression:
    """The predicate that keeps rows whose answer is TRUE."""
    text = use.column.removeprefix(ANSWER)
    return Expression(None, text, (), text, frozenset(), True, (use,), Test(condition or Answer(0)))


def opaque(use: CallUse, *reads: str, row_local: bool = True) -> Expression:
    """A predicate over an answer that is no condition."""
    return Expression(None, f"opaque {use.column}", (), "opaque", frozenset(reads), row_local, (use,))


def sort(node: Node, by: str, columns: Iterable[str] = SOURCE.columns) -> Step:
    names = tuple(columns)
    return Step(
        node,
        "sort",
        f"sort({by})",
        lambda frame: frame,
        names,
        names,
        reads=frozenset({by}),
        changes=frozenset(),
        carries=True,
        commutes=True,
    )


def aggregate(node: Node, *reads: str) -> Step:
    return Step(node, "agg", "agg", lambda frame: frame, SOURCE.columns, ("total",), reads=frozenset(reads))


def shape(node: Node) -> str:
    """The plan as nested words: `Ask(Filter(Source))`."""
    below = ", ".join(map(shape, inputs(node)))
    return f"{type(node).__name__}({below})" if below else type(node).__name__
