"""AI operators above joins that remove rows: the model is asked about the rows that find a partner.

    semi_join(ask(keep q) over left, right)  ->  ask(keep q) over semi_join(left, right)

Equal texts are asked once, so asking behind the join never asks more of them; it asks fewer where the join is
expected to remove rows.
"""

from __future__ import annotations

from dataclasses import replace

from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.tables import partnered_share, table_of
from quail_frames.plan.logical import (
    Ask,
    Join,
    Names,
    Node,
    Project,
    Side,
    WithColumns,
    columns,
    names_of,
    rewrite,
    with_inputs,
)

Lifted = Ask | WithColumns | Project
WORTH_IT = 0.95
"""A join that is expected to keep more of a side's rows leaves the plan as it is: shares are estimates."""


def lift_asks(plan: Node, prices: Prices | None = None) -> Node:
    """The plan with the AI operators of a join's side above the join, where it is expected to remove rows."""
    known = Prices.assumed() if prices is None else prices
    return rewrite(plan, lambda node: _lifted(node, known) if isinstance(node, Join) else node)


def surviving_share(join: Join, side: Side, prices: Prices) -> float:
    """Expected share of a side's rows that the join keeps, by the figures of its keys."""
    if join.how not in ("inner", "semi", "anti") or (join.how != "inner" and side == "right"):
        return 1.0
    found = partnered_share(join, side, table_of(join.left, prices), table_of(join.right, prices), prices)
    return 1 - found if join.how == "anti" else found


def _lifted(join: Join, prices: Prices) -> Node:
    names = columns(join)
    above: list[Lifted] = []
    sides: tuple[Side, ...] = ("left", "right")
    for side in sides:
        own = join.left if side == "left" else join.right
        peeled, base = _peeled(own)
        if peeled and surviving_share(join, side, prices) < WORTH_IT and _may_lift(join, side, peeled, base):
            join = replace(join, left=base) if side == "left" else replace(join, right=base)
            above += peeled
    node: Node = join
    for each in reversed(above):
        node = with_inputs(each, (node,))
    return node if columns(node) == names else Project(node, names)


def _peeled(side: Node) -> tuple[list[Lifted], Node]:
    """The AI operator at the top of a side with the columns made of its answers, and what is below."""
    found: list[Lifted] = []
    node = side
    while isinstance(node, Project | WithColumns):
        if isinstance(node, WithColumns):
            if not all(e.row_local for e in node.expressions):
                return [], side
            found.append(node)
        node = node.input
    if not isinstance(node, Ask) or node.limit is not None or node.carry is not None or node.reads is None:
        return [], side
    return [*found, node], node.input


def _may_lift(join: Join, side: str, peeled: list[Lifted], base: Node) -> bool:
    """Whether what is lifted reads and makes the same above the join, and the join the same below it."""
    own = join.left if side == "left" else join.right
    pairs, key_reads = (join.left_names, join.left_reads) if side == "left" else (join.right_names, join.right_reads)
    kept = {name for name, after in pairs if name == after}
    made = frozenset(name for node in peeled if isinstance(node, WithColumns) for name in names_of(node.expressions))
    reads = _reads(peeled)
    other, names = (join.right, join.right_names) if side == "left" else (join.left, join.left_names)
    hidden = set(columns(base)) - set(columns(own))
    clashes = made & {*columns(base), *columns(other), *(after for _, after in names)}
    return (
        key_reads is not None
        and reads is not None
        and not key_reads & made
        and not clashes
        and not hidden
        and reads <= kept
        and made <= kept
    )


def _reads(peeled: list[Lifted]) -> Names | None:
    """Columns of the side that the lifted nodes read, those that they make themselves left out."""
    found: set[str] = set()
    made: set[str] = set()
    for node in reversed(peeled):
        own = [e.reads for e in node.expressions] if isinstance(node, WithColumns) else [getattr(node, "reads", None)]
        for reads in own:
            if reads is None:
                return None
            found |= reads - made
        made |= set(names_of(node.expressions)) if isinstance(node, WithColumns) else set()
    return frozenset(found)
