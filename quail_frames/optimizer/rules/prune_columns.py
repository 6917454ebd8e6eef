"""Projection pushdown: what nothing above reads is not read, kept or asked."""

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
    Slice,
    Source,
    Step,
    WithColumns,
    columns,
    names_of,
    union,
)


def prune_columns(plan: Node) -> Node:
    """The plan with every node giving the columns that the nodes above it need."""
    return _pruned(plan, frozenset(columns(plan)))


def _pruned(node: Node, needed: Names) -> Node:
    """`node` with at least the needed ones of its columns."""
    if isinstance(node, Source | Project):
        return _chosen(node, needed)
    if isinstance(node, Ask):
        return _pruned_ask(node, needed)
    if isinstance(node, Select):
        return _pruned_select(node, needed)
    if isinstance(node, Join):
        return _pruned_join(node, needed)
    if isinstance(node, Concat):
        names = tuple(name for name in node.columns if name in needed) or node.columns[:1]
        return replace(node, inputs=tuple(_pruned(each, frozenset(names)) for each in node.inputs), columns=names)
    if isinstance(node, AskPairs):
        return _pruned_pairs(node, needed)
    if isinstance(node, WithColumns):
        kept = tuple(e for e in node.expressions if needed & set(e.names))
        below = _needs(node.input, kept, needed - set(names_of(kept)))
        return (
            replace(node, input=_pruned(node.input, below), expressions=kept) if kept else _pruned(node.input, needed)
        )
    if isinstance(node, Filter):
        return replace(node, input=_pruned(node.input, _needs(node.input, node.predicates, needed)))
    if isinstance(node, Slice):
        return replace(node, input=_pruned(node.input, needed))
    return replace(node, input=_pruned(node.input, _step_needs(node, needed)))


def _chosen(node: Source | Project, needed: Names) -> Node:
    kept = tuple(name for name in node.columns if name in needed) or node.columns[:1]
    if isinstance(node, Source):
        return node if kept == node.columns else Project(node, kept)
    below = _pruned(node.input, frozenset(kept))
    return below if columns(below) == kept else Project(below, kept)


def _pruned_ask(node: Ask, needed: Names) -> Node:
    answers = tuple(call for call in node.answers if call.column in needed)
    if not answers and not node.keep:
        return _pruned(node.input, needed)
    own = columns(node.input)
    reads = frozenset(own) if node.reads is None else node.reads
    carry = tuple(name for name in own if name in needed) or tuple(name for name in own if name in reads)[:1]
    below = _pruned(node.input, frozenset(carry) | reads)
    return replace(node, input=below, answers=answers, carry=carry)


def _pruned_select(node: Select, needed: Names) -> Node:
    kept = node.expressions
    if all(e.row_local for e in node.expressions):
        kept = tuple(e for e in node.expressions if needed & set(e.names))
        if not any(e.needs for e in kept):  # literals alone would give one row
            kept = (*kept, *[e for e in node.expressions if e.needs and e not in kept][:1])
    carry = tuple(name for name in node.carry if name in needed)
    below = _pruned(node.input, _needs(node.input, kept, frozenset(carry)))
    return replace(node, input=below, expressions=kept, carry=carry)


def _pruned_join(node: Join, needed: Names) -> Node:
    if node.left_reads is None or node.right_reads is None:
        return replace(node, left=_whole(node.left), right=_whole(node.right))
    renamed = {name for name, after in node.right_names if name != after}
    left = {name for name, after in node.left_names if after in needed or name in renamed} | node.left_reads
    right = {name for name, after in node.right_names if after in needed} | node.right_reads
    riding = needed - {after for _, after in (*node.left_names, *node.right_names)}
    return replace(node, left=_pruned(node.left, frozenset(left | riding)), right=_pruned(node.right, frozenset(right)))


def _pruned_pairs(node: AskPairs, needed: Names) -> Node:
    own = columns(node)
    carry = tuple(name for name in own if name in needed) or own[:1]
    riding = set(carry) - {after for _, after in (*node.left_names, *node.right_names)}
    left = {name for name, after in node.left_names if after in carry} | node.reads_of("left") | riding
    right = {name for name, after in node.right_names if after in carry} | node.reads_of("right")
    return replace(
        node, left=_pruned(node.left, frozenset(left)), right=_pruned(node.right, frozenset(right)), carry=carry
    )


def _whole(node: Node) -> Node:
    return _pruned(node, frozenset(columns(node)))


def _step_needs(node: Step, needed: Names) -> Names:
    own = union(e.needs for e in node.expressions)
    if own is None or node.reads is None:
        return frozenset(columns(node.input))
    made = set(node.columns) - set(node.input_columns)
    return node.reads | own | ((needed - made) if node.carries else frozenset())


def _needs(below: Node, kept: tuple[Expression, ...], passed: Names) -> Names:
    own = union(e.needs for e in kept)
    return frozenset(columns(below)) if own is None else own | passed
