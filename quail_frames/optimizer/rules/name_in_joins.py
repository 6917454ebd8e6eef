"""Names given right above an AI join are given by the join itself, so that joins stand directly above each other.

    select(a, x as x_2) over ask_pairs(a; x)  ->  ask_pairs(a; x as x_2)

Joins in any order are looked for among such joins; SQL renames columns between them, a suffix in Python does not.
"""

from __future__ import annotations

from dataclasses import replace

from quail_frames.plan.logical import AskPairs, Node, Select, columns, names_of, rewrite


def name_in_joins(plan: Node) -> Node:
    """The plan without selections that only rename the right columns of an AI join."""
    return rewrite(plan, _named)


def _named(node: Node) -> Node:
    if (
        not (isinstance(node, Select) and isinstance(node.input, AskPairs))
        or node.carry
        or node.input.carry is not None
    ):
        return node
    join, names = node.input, names_of(node.expressions)
    before = columns(join)
    if tuple(each.column for each in node.expressions) != before or len(names) != len(before):
        return node
    new = dict(zip(before, names, strict=True))
    if any(new[after] != after for _, after in join.left_names):  # its predicates know left columns by these names
        return node
    return replace(join, right_names=tuple((name, new[after]) for name, after in join.right_names))
