"""Answers shared among operators: where two of them ask the same, of the same texts it is asked once.

ask_pairs(q about report, reaction) over ask_pairs(q about report, symptom)
-> ask_pairs(q, remembered) over ask_pairs(q, remembered)

A call asked again of the same row needs no memory: `share_calls` passes its answer on as a column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from quail_frames.plan.logical import Ask, AskPairs, Node, rewrite, walk

Question = tuple[str, str, tuple[int, ...]]
"""Kind of the operator, wording of the call, and the slots of its anchor side."""


def remember_answers(plan: Node) -> Node:
    """The plan with `remember` of the operators that ask what another one asks as well."""
    counts = Counter(question for node in walk(plan) for question in set(_questions(node).values()))
    repeated = {question for question, count in counts.items() if count > 1}
    return rewrite(plan, lambda node: _remembering(node, repeated)) if repeated else plan


def _questions(node: Node) -> dict[str, Question]:
    """What the node asks, by answer column; a join's has no name."""
    if isinstance(node, Ask):
        anchors = dict(node.anchors)
        return {use.column: ("rows", use.call.wording, anchors.get(use.column, ())) for use in node.calls}
    return {"": ("pairs", node.call.wording, tuple(_anchor_slots(node)))} if isinstance(node, AskPairs) else {}


def _anchor_slots(node: AskPairs) -> Iterator[int]:
    return (slot for slot, (side, _) in enumerate(node.slots) if side == (node.anchor or "left"))


def _remembering(node: Node, repeated: set[Question]) -> Node:
    own = tuple(column for column, question in _questions(node).items() if question in repeated)
    if not own:
        return node
    return replace(node, remember=own if isinstance(node, Ask) else True)  # type: ignore[arg-type]
