"""A predicate on a column that holds an answer becomes a predicate on the answer, asked where the call is.

    filter(topic = "plot") over with_columns(topic = answer) over ask(answers label)
    -> ask(keep label = "plot") over with_columns(topic = answer) over ask(answers label)

`merge_asks` then makes one chain of the two: a row with another topic is asked nothing more.
"""

from __future__ import annotations

from quail_frames.optimizer.rules.share_calls import providing
from quail_frames.plan.logical import (
    Ask,
    CallUse,
    Expression,
    Filter,
    Join,
    Names,
    Node,
    Project,
    Select,
    Slice,
    Step,
    WithColumns,
    names_of,
    rewrite,
)


def decide_by_answers(plan: Node) -> Node:
    """The plan with such predicates in an `Ask`, wherever the call is asked below and its answer gets there."""
    return rewrite(plan, lambda node: _decided(node) if isinstance(node, Filter) else node)


def held_answers(node: Node) -> dict[str, CallUse]:
    """Columns of the node, as the user wrote it, that hold a call's answers about the row as it is."""
    if isinstance(node, Filter | Slice | Project):
        names = node.columns if isinstance(node, Project) else None
        return {name: use for name, use in held_answers(node.input).items() if names is None or name in names}
    if isinstance(node, WithColumns):
        return _unchanged(held_answers(node.input), frozenset(names_of(node.expressions))) | _given(node.expressions)
    if isinstance(node, Select):
        below = held_answers(node.input)
        passed = {e.names[0]: below[e.column] for e in node.expressions if e.column in below}
        kept = {e.column for e in node.expressions if e.names == (e.column,)}
        return {name: use for name, use in passed.items() if (use.reads or frozenset()) <= kept} | _given(
            node.expressions
        )
    if isinstance(node, Step) and node.carries and node.changes is not None:
        return _unchanged(held_answers(node.input), node.changes)
    if isinstance(node, Join) and node.how in ("inner", "left", "semi", "anti", "cross"):
        return held_answers(node.left)
    return {}


def _given(expressions: tuple[Expression, ...]) -> dict[str, CallUse]:
    """Columns that are nothing but a call's answers, about columns that these expressions leave alone."""
    given = {e.names[0]: e.calls[0] for e in expressions if len(e.calls) == 1 and e.column == e.calls[0].column}
    made = frozenset(name for e in expressions for name in e.names if e.names != (e.column,))
    return {name: use for name, use in given.items() if not (use.reads or made) & made}


def _unchanged(held: dict[str, CallUse], changed: Names) -> dict[str, CallUse]:
    return {name: use for name, use in held.items() if not changed & ({name} | (use.reads or changed))}


def _decided(node: Filter) -> Node:
    if not all(predicate.row_local for predicate in node.predicates):
        return node
    over = [predicate.over_answers for predicate in node.predicates if _available(node.input, predicate.over_answers)]
    tests = tuple(predicate for predicate in over if predicate is not None)
    rest = tuple(p for p in node.predicates if p.over_answers is None or p.over_answers not in tests)
    if not tests:
        return node
    return Ask(Filter(node.input, rest) if rest else node.input, keep=tests)


def _available(node: Node, predicate: Expression | None) -> bool:
    """Whether every call of the predicate is asked below, and its answer can be passed up to here."""
    return predicate is not None and all(providing(node, call) is not None for call in predicate.calls)
