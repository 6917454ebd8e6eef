"""Names of the columns that a node gives, whatever was pruned or rides along."""

from __future__ import annotations

from collections.abc import Iterable

from quail_frames.plan.logical.expression import ANSWER, Expression
from quail_frames.plan.logical.nodes import (
    Ask,
    AskPairs,
    Concat,
    Filter,
    Join,
    Node,
    Project,
    Select,
    Source,
    Step,
    WithColumns,
)
from quail_frames.plan.logical.walking import inputs


def expressions(node: Node) -> tuple[Expression, ...]:
    """The expressions that the front end evaluates at this node."""
    if isinstance(node, Filter):
        return node.predicates
    return node.expressions if isinstance(node, WithColumns | Select | Step) else ()


def holds_calls(node: Node) -> bool:
    """Whether a plan as written asks a model at this node or below."""
    if isinstance(node, AskPairs) or any(expression.calls for expression in expressions(node)):
        return True
    return any(map(holds_calls, inputs(node)))


def names_of(found: Iterable[Expression]) -> tuple[str, ...]:
    """Names of the columns that the expressions give."""
    return tuple(name for expression in found for name in expression.names)


def columns(node: Node) -> tuple[str, ...]:
    """Names of the node's columns."""
    if isinstance(node, Source | Project | Concat):
        return node.columns
    if isinstance(node, Select):
        return (*names_of(node.expressions), *node.carry)
    if isinstance(node, Join):
        return _present(node.columns, (*columns(node.left), *columns(node.right)), _side_columns(node))
    if isinstance(node, AskPairs):
        return _pair_columns(node) if node.carry is None else node.carry
    below = columns(node.input)
    if isinstance(node, WithColumns):
        return tuple(dict.fromkeys((*below, *names_of(node.expressions))))
    if isinstance(node, Step):
        return _present(node.columns, below, node.input_columns)
    if isinstance(node, Ask):
        return (*(below if node.carry is None else node.carry), *node.answer_columns)
    return below


def _side_columns(node: Join) -> tuple[str, ...]:
    return tuple(name for name, _ in (*node.left_names, *node.right_names))


def _pair_columns(node: AskPairs) -> tuple[str, ...]:
    """Columns of both sides, and the left side's answer columns that ride along."""
    left, right = columns(node.left), columns(node.right)
    named = [after for name, after in node.left_names if name in left]
    riding = [name for name in left if name.startswith(ANSWER) and name not in named]
    return (*named, *(after for name, after in node.right_names if name in right), *riding)


def _present(recorded: tuple[str, ...], below: tuple[str, ...], recorded_below: tuple[str, ...]) -> tuple[str, ...]:
    """Recorded columns without those pruned below since, and the answer columns that ride along."""
    gone = set(recorded_below) - set(below)
    riding = [name for name in below if name.startswith(ANSWER) and name not in recorded]
    return (*(name for name in recorded if name not in gone), *riding)
