"""Top k: with a limit above a sort, the model is asked in sorted order until enough rows are through.

    head(10) over sort(stars) over ask(keep q)  ->  head(10) over ask(keep q) over sort(stars)

`stop_early` then gives the limit to the ask.
"""

from __future__ import annotations

from dataclasses import replace

from quail_frames.plan.logical import Ask, Node, Project, Select, Slice, Step, WithColumns, rewrite


def limit_sorted(plan: Node) -> Node:
    """The plan with every such `Ask` above its sort."""
    return rewrite(plan, lambda node: _limited(node) if isinstance(node, Slice) else node)


def _limited(node: Slice) -> Node:
    if node.length is None or node.offset < 0:
        return node
    below = _exchanged(node.input)
    return node if below is None else replace(node, input=below)


def _exchanged(node: Node) -> Node | None:
    """`node` with the first sort below it exchanged with the ask that it sorts the rows of."""
    if isinstance(node, Project | WithColumns | Select):
        if isinstance(node, WithColumns | Select) and not all(e.row_local for e in node.expressions):
            return None
        below = _exchanged(node.input)
        return None if below is None else replace(node, input=below)
    if not isinstance(node, Step) or not node.commutes or not isinstance(node.input, Ask):
        return None
    ask = node.input
    sorted_by = {call.column for expression in node.expressions for call in expression.calls}
    if not ask.keep or ask.limit is not None or ask.carry is not None or sorted_by & set(ask.answer_columns):
        return None
    return replace(ask, input=replace(node, input=ask.input))
