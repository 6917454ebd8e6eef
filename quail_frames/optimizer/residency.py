"""How much of what an operator leaves in KV memory is still there when another one asks about it again.

Where rows stream from one to the other, all of it: only a few batches are under way. Where something between them
needs all its rows first, everything kept is there at once; what does not fit is evicted and computed again, and since
the documents kept last go first, the share that stays is `min(1, (memory - a batch) / kept pages)`.
"""

from __future__ import annotations

from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.rules.keep_resident import (
    Document,
    anchor_document,
    document_of,
    documents_below,
    documents_of,
)
from quail_frames.optimizer.tables import distinct_among, table_of
from quail_frames.plan.logical import Ask, AskPairs, Filter, Join, Node, Select, Slice, Step, WithColumns, inputs


def resident_share(node: Node, document: Document, prices: Prices, waits: bool = False) -> float:
    """Expected share of these documents, named by the node's columns, that are in memory above the node.

    `waits`: something above needs all rows before the first document is asked about again.
    """
    if isinstance(node, Ask) and (node.retain or node.retain_all) and document in documents_of(node):
        anchors = dict(node.anchors)
        use = next(use for use in node.calls if document_of(use, anchors) == document)
        heading = prices.lay_out(use.call, anchors.get(use.column, ())).document
        return _fitting(node.input if node.retain_all else node, document, heading, prices) if waits else 1.0
    for number, below in enumerate(inputs(node)):
        before = documents_below(node, number, frozenset({document}))
        late = waits or _waits(node, number)
        if isinstance(node, AskPairs) and node.retain and anchor_document(node) in before:
            slots = tuple(n for n, (side, _) in enumerate(node.slots) if side == (node.anchor or "left"))
            heading = prices.lay_out(node.call, slots).document
            return _fitting(below, anchor_document(node), heading, prices) if late else 1.0
        found = max((resident_share(below, each, prices, late) for each in before), default=0.0)
        if found:
            return found
    return 0.0


def _fitting(rows: Node, document: Document, heading: float, prices: Prices) -> float:
    """Share of the documents of all these rows that memory holds at once; `heading` tokens stand around their texts."""
    table, budgets = table_of(rows, prices), prices.target.budgets
    figures = [table.column(name) for _, name in document]
    pages = (sum(each.mean_tokens for each in figures) + heading) / budgets.page_tokens + 0.5
    kept = distinct_among(figures, table.rows) * pages
    room = max(0.0, (budgets.kv_tokens - budgets.tokens) / budgets.page_tokens)
    return min(1.0, room / kept) if kept else 1.0


def _waits(node: Node, number: int) -> bool:
    """Whether a node gives no row before it has read all of its input `number`."""
    if isinstance(node, AskPairs):
        return node.anchor == "right" or number == 1
    if isinstance(node, Join):
        return number == 1 or not node.keeps_left_order
    if isinstance(node, Step):
        return not node.streams
    if isinstance(node, Slice):
        return node.offset < 0
    expressions = node.predicates if isinstance(node, Filter) else ()
    expressions = node.expressions if isinstance(node, WithColumns | Select) else expressions
    return not all(expression.row_local for expression in expressions)
