"""KV retention: documents that an operator above asks about again stay in memory behind the one below.

ask_pairs(anchor review) over ask(keep about review)
-> ask_pairs(anchor review) over ask(keep about review, retained)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from quail_frames.optimizer.provenance import passed_on
from quail_frames.plan.logical import Ask, AskPairs, Node, Source, inputs, with_inputs

Document = tuple[tuple[int, str], ...]
"""What a prompt begins with: (slot, column) pairs in order; a single document has no number (slot 0)."""


def keep_resident(plan: Node) -> Node:
    """The plan with `retain` of every AI operator chosen."""
    return _kept(plan, frozenset())


def _kept(node: Node, wanted: frozenset[Document]) -> Node:
    """`node`, above which these documents are asked about."""
    if isinstance(node, Source):
        return node
    if isinstance(node, Ask):
        own = _documents(node)
        node = replace(node, retain=bool(own & wanted))
        wanted |= own
    below = [_below(node, number, wanted) for number in range(len(inputs(node)))]
    if isinstance(node, AskPairs) and node.anchor is not None:
        anchor = 0 if node.anchor == "left" else 1
        slots = [(slot, name) for slot, (side, name) in enumerate(node.slots) if side == node.anchor]
        document = _document(slots)
        node = replace(node, retain=document in below[anchor])
        below[anchor] |= {document}
    found = tuple(_kept(each, own) for each, own in zip(inputs(node), below, strict=True))
    return with_inputs(node, found)


def _documents(ask: Ask) -> frozenset[Document]:
    """Documents that the chain's prompts begin with, where they are columns as they are."""
    found: set[Document] = set()
    anchors = dict(ask.anchors)
    for use in ask.calls:
        shown = anchors.get(use.column) or use.call.template.inputs or (0,)
        columns = [(slot, use.inputs[slot].column) for slot in sorted(shown)]
        named = [(slot, column) for slot, column in columns if column is not None]
        if use.call.layout != "question_first" and len(named) == len(columns):
            found.add(_document(named))
    return frozenset(found)


def _document(slots: Sequence[tuple[int, str]]) -> Document:
    return ((0, slots[0][1]),) if len(slots) == 1 else tuple(slots)


def _below(node: Node, number: int, wanted: frozenset[Document]) -> frozenset[Document]:
    """The documents by their names in input `number`, as far as they come from it unchanged."""
    found: set[Document] = set()
    for document in wanted:
        before = [(slot, passed_on(node, column)) for slot, column in document]
        own = [(slot, place[1]) for slot, place in before if place is not None and place[0] == number]
        if len(own) == len(document):
            found.add(tuple(own))
    return frozenset(found)
