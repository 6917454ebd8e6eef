"""KV retention: documents that an operator above asks about again stay in memory behind the one below.

ask_pairs(anchor review) over ask(keep about review)
-> ask_pairs(anchor review) over ask(keep about review, retained)

So do those that another branch, which runs later, reads from the same column of the same source: a self join's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from quail_frames.optimizer.provenance import passed_on
from quail_frames.plan.logical import Ask, AskPairs, CallUse, Node, Source, inputs, with_inputs

Document = tuple[tuple[int, str], ...]
"""What a prompt begins with: (slot, column) pairs in order; a single document has no number (slot 0)."""
Path = tuple[int, ...]
"""Which input to take at each node from the top on."""


def keep_resident(plan: Node) -> Node:
    """The plan with `retain` of every AI operator chosen."""
    return _across(_kept(plan, frozenset()))


def _kept(node: Node, wanted: frozenset[Document]) -> Node:
    """`node`, above which these documents are asked about."""
    if isinstance(node, Source):
        return node
    if isinstance(node, Ask):
        own = documents_of(node)
        node = replace(node, retain=bool(own & wanted))
        wanted |= own
    below = [documents_below(node, number, wanted) for number in range(len(inputs(node)))]
    if isinstance(node, AskPairs) and node.anchor is not None:
        anchor = 0 if node.anchor == "left" else 1
        document = anchor_document(node)
        node = replace(node, retain=document in below[anchor])
        below[anchor] |= {document}
    found = tuple(_kept(each, own) for each, own in zip(inputs(node), below, strict=True))
    return with_inputs(node, found)


def document_of(use: CallUse, anchors: Mapping[str, tuple[int, ...]]) -> Document | None:
    """The document that a call's prompt begins with, where it is columns as they are; `anchors` are its chain's."""
    shown = anchors.get(use.column) or use.call.template.inputs or (0,)
    columns = [(slot, use.inputs[slot].column) for slot in sorted(shown)]
    named = [(slot, column) for slot, column in columns if column is not None]
    return _document(named) if use.call.layout != "question_first" and len(named) == len(columns) else None


def anchor_document(node: AskPairs) -> Document:
    """The document of a join's anchors, by its columns on the anchor side."""
    anchor = node.anchor or "left"
    return _document([(slot, name) for slot, (side, name) in enumerate(node.slots) if side == anchor])


def documents_of(ask: Ask) -> frozenset[Document]:
    """Documents that the chain's prompts begin with, where they are columns as they are."""
    anchors = dict(ask.anchors)
    found = (document_of(use, anchors) for use in ask.calls)
    return frozenset(document for document in found if document is not None)


def _document(slots: Sequence[tuple[int, str]]) -> Document:
    return ((0, slots[0][1]),) if len(slots) == 1 else tuple(slots)


def documents_below(node: Node, number: int, wanted: frozenset[Document]) -> frozenset[Document]:
    """The documents by their names in input `number`, as far as they come from it unchanged."""
    found: set[Document] = set()
    for document in wanted:
        before = [(slot, passed_on(node, column)) for slot, column in document]
        own = [(slot, place[1]) for slot, place in before if place is not None and place[0] == number]
        if len(own) == len(document):
            found.add(tuple(own))
    return frozenset(found)


# Across branches ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """An AI operator: the source columns that its documents are, and the nodes on the way to each."""

    path: Path
    columns: dict[tuple[int, str], frozenset[Path]]


def _across(plan: Node) -> Node:
    """`retain_all` where a later operator of another branch asks about the same column of the same source."""
    running = list(_running(plan, ()))
    wanted: set[Path] = set()
    for number, asked in enumerate(running):
        for later in running[number + 1 :]:
            shared = asked.columns.keys() & later.columns.keys()
            if any(asked.path not in later.columns[column] for column in shared):
                wanted.add(asked.path)
    return _retaining(plan, (), wanted) if wanted else plan


def _running(node: Node, path: Path) -> Iterator[Asked]:
    """The AI operators below and at a node, in the order in which they begin."""
    order = list(range(len(inputs(node))))
    if isinstance(node, AskPairs) and node.anchor != "right":
        order.reverse()  # the partner side is read as a whole before the first anchor
    for number in order:
        yield from _running(inputs(node)[number], (*path, number))
    found: list[tuple[int, Document]] = []
    if isinstance(node, Ask):
        found = [(0, document) for document in documents_of(node)]
    elif isinstance(node, AskPairs) and node.anchor is not None:
        found = [(0 if node.anchor == "left" else 1, anchor_document(node))]
    traced = [
        _source(inputs(node)[number], (*path, number), document[0][1])
        for number, document in found
        if len(document) == 1
    ]
    if found:
        yield Asked(path, dict(each for each in traced if each is not None))


def _source(node: Node, path: Path, name: str) -> tuple[tuple[int, str], frozenset[Path]] | None:
    """(source and column there, nodes passed) of a column that comes unchanged from a source."""
    passed: set[Path] = set()
    while not isinstance(node, Source):
        passed.add(path)
        found = passed_on(node, name)
        if found is None:
            return None
        number, name = found
        node, path = inputs(node)[number], (*path, number)
    return (id(node.frame), name), frozenset(passed)


def _retaining(node: Node, path: Path, wanted: set[Path]) -> Node:
    below = tuple(_retaining(each, (*path, number), wanted) for number, each in enumerate(inputs(node)))
    node = with_inputs(node, below)
    if path in wanted and isinstance(node, Ask):
        return replace(node, retain_all=True)
    return replace(node, retain=True) if path in wanted and isinstance(node, AskPairs) else node
