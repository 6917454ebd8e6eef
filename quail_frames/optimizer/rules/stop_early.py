"""Limit early stop: `head(n)` above an AI operator ends the asking once n rows are through."""

from __future__ import annotations

from dataclasses import replace

from quail_frames.plan.logical import Ask, Node, Project, Select, Slice, WithColumns, rewrite


def stop_early(plan: Node) -> Node:
    """The plan with the limit of a `Slice` told to the `Ask` whose rows it cuts."""
    return rewrite(plan, _stop)


def _stop(node: Node) -> Node:
    if not isinstance(node, Slice) or node.length is None or node.offset < 0:
        return node
    below = _limited(node.input, node.offset + node.length)
    return node if below is None else replace(node, input=below)


def _limited(node: Node, rows: int) -> Node | None:
    if isinstance(node, Ask):
        return replace(node, limit=rows if node.limit is None else min(rows, node.limit))
    if isinstance(node, Project) or (
        isinstance(node, WithColumns | Select) and all(e.row_local for e in node.expressions)
    ):
        below = _limited(node.input, rows)
        return None if below is None else replace(node, input=below)
    return None
