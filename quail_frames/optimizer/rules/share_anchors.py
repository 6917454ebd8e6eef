"""A call about both sides of an AI join is laid out on the document of the join's anchor, and shares its KV.

Which slots those are follows from the plan alone, never from the rows.
"""

from __future__ import annotations

from dataclasses import replace

from quail_frames.optimizer.provenance import made_of
from quail_frames.plan.logical import Ask, AskPairs, CallUse, Node, Source, inputs, rewrite


def share_anchors(plan: Node) -> Node:
    """The plan with the `anchors` of every `Ask`; the joins' own are chosen before."""
    return rewrite(plan, lambda node: _shared(node) if isinstance(node, Ask) else node)


def _shared(ask: Ask) -> Node:
    found = ((use.column, _anchor_slots(ask.input, use)) for use in ask.calls)
    return replace(ask, anchors=tuple((column, slots) for column, slots in found if slots))


def _anchor_slots(node: Node, use: CallUse) -> tuple[int, ...]:
    """Slots whose columns come from the anchor side of the join below that the call is about; none: of no such join."""
    reads = {slot: expression.reads for slot, expression in enumerate(use.inputs)}
    while not isinstance(node, Source):
        sides: dict[int, int] = {}
        for slot, names in reads.items():
            below = made_of(node, names) if names else None
            if below is None:
                return ()
            sides[slot], reads[slot] = below
        if len(set(sides.values())) > 1:
            if not isinstance(node, AskPairs) or node.anchor is None:
                return ()
            anchor = 0 if node.anchor == "left" else 1
            return tuple(slot for slot, side in sides.items() if side == anchor)
        node = inputs(node)[next(iter(sides.values()))]
    return ()
