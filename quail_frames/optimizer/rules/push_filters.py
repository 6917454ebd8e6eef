"""Relational predicates below AI operators: the model is asked about surviving rows only.

    filter(cheap) over ask(q) over source  ->  ask(q) over filter(cheap) over source

A predicate on a column made in between takes that (row-local, call-free) `with_columns` along.
"""

from __future__ import annotations

from dataclasses import replace

from quail_frames.plan.logical import (
    Ask,
    AskPairs,
    Concat,
    Expression,
    Filter,
    Join,
    Names,
    Node,
    Project,
    Select,
    Step,
    WithColumns,
    asks,
    names_of,
    rewrite,
)

Predicates = tuple[Expression, ...]


def push_filters(plan: Node) -> Node:
    """The plan with call-free, row-local predicates as far below the AI operators as they may go."""
    return rewrite(plan, _pushed)


def _pushed(node: Node) -> Node:
    if isinstance(node, AskPairs):
        return _cut_early(node)
    return _filtered(node.input, node.predicates) if isinstance(node, Filter) else node


def _cut_early(node: AskPairs) -> Node:
    """The join with predicates of its `where` that read one side applied to that side before."""
    own = {name for name, after in node.where_names if name == after}
    right = tuple(p for p in node.where if p.reads and p.reads <= own)
    same = frozenset(name for name, after in node.left_names if name == after)
    left_names = same if node.how in ("inner", "semi") else frozenset()
    left = tuple(p for p in node.where if p.reads and p.reads <= left_names)
    where = tuple(p for p in node.where if p not in left and p not in right)
    return replace(node, left=_filtered(node.left, left), right=_filtered(node.right, right), where=where)


def _filtered(node: Node, predicates: Predicates) -> Node:
    """`node` filtered by the predicates, each as low as it helps."""
    if not predicates:
        return node
    if not asks(node):
        return Filter(node, predicates)
    # A predicate that looks at other rows (a rank, an aggregate) sees all that its siblings have not dropped yet.
    alone = all(p.row_local for p in predicates)
    movable = tuple(p for p in predicates if alone and not p.calls and p.reads is not None)
    if isinstance(node, WithColumns):
        node = _below_ask(node, movable)
    passing = tuple(p for p in movable if passes(node, p.reads or frozenset()))
    staying = tuple(p for p in predicates if p not in passing)
    below = _passed(node, passing)
    return Filter(below, staying) if staying else below


def passes(node: Node, reads: Names) -> bool:
    """Whether a predicate on these columns may be applied to the node's input (all of several) instead."""
    if isinstance(node, Ask):
        return node.limit is None and not reads & set(node.answer_columns)
    if isinstance(node, Project):
        return True
    if isinstance(node, Concat):
        return node.alike
    if isinstance(node, Filter):
        return all(predicate.row_local for predicate in node.predicates)
    if isinstance(node, WithColumns):
        return all(e.row_local for e in node.expressions) and not reads & set(names_of(node.expressions))
    if isinstance(node, Select):
        kept = {e.column for e in node.expressions if e.names == (e.column,)}
        return all(e.row_local for e in node.expressions) and reads <= kept
    if isinstance(node, Step):
        untouched = node.changes is not None and not reads & node.changes
        moves = node.commutes and untouched and reads <= set(node.input_columns)
        return moves or (bool(reads) and reads <= node.keyed)
    return isinstance(node, Join | AskPairs) and side_of(node, reads) is not None


def _passed(node: Node, predicates: Predicates) -> Node:
    if not predicates:
        return node
    if isinstance(node, Join | AskPairs):
        left = tuple(p for p in predicates if side_of(node, p.reads or frozenset()) == "left")
        right = tuple(p for p in predicates if p not in left)
        return replace(node, left=_filtered(node.left, left), right=_filtered(node.right, right))
    if isinstance(node, Concat):
        return replace(node, inputs=tuple(_filtered(each, predicates) for each in node.inputs))
    assert isinstance(node, Ask | Project | Filter | WithColumns | Select | Step)
    return replace(node, input=_filtered(node.input, predicates))


def side_of(join: Join | AskPairs, reads: Names) -> str | None:
    """The side whose rows the predicate may drop before the join."""
    own_left = {name for name, after in join.left_names if name == after}
    own_right = {name for name, after in join.right_names if name == after}
    if join.how in ("inner", "left", "semi", "anti", "cross") and reads <= own_left:
        return "left"
    return "right" if join.how in ("inner", "right", "cross") and reads <= own_right else None


def _below_ask(node: WithColumns, predicates: Predicates) -> Node:
    """`with_columns` that feeds a predicate, exchanged with the `Ask` below it where that changes nothing."""
    ask, made = node.input, set(names_of(node.expressions))
    feeds = any(made & (p.reads or frozenset()) for p in predicates)
    if not feeds or not isinstance(ask, Ask) or ask.limit is not None or ask.carry is not None:
        return node
    alone = all(e.row_local and not e.calls and e.reads is not None for e in node.expressions)
    if not alone or ask.reads is None or made & ask.reads:
        return node
    return replace(ask, input=replace(node, input=ask.input))
