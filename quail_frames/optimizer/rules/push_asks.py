"""AI predicates below joins, sorts, unique and groups, where another AI operator gains by it.

    ask(keep about left) over ask_pairs(left, right)
    -> ask_pairs(ask(keep) over left, right)

An AI join then pairs fewer rows; an AI operator that lies below reads a document once for all its questions. Where
there is none below, a predicate stays: equal texts are asked once in any case, and a step may remove rows.
"""

from __future__ import annotations

from dataclasses import replace

from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.rules.push_filters import passes, side_of
from quail_frames.optimizer.selectivity import pair_share, passing_share
from quail_frames.optimizer.tables import candidate_pairs, table_of, text_figures
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
    Side,
    Slice,
    Source,
    Step,
    WithColumns,
    inputs,
    union,
    with_inputs,
)


def push_asks(plan: Node, prices: Prices | None = None) -> Node:
    """The plan with every AI predicate as low as another AI operator gains by it."""
    return _pushed(plan, Prices.assumed() if prices is None else prices, limited=False)


def _pushed(node: Node, prices: Prices, limited: bool) -> Node:
    """`node` with its predicates pushed; `limited`: only the first of its rows are wanted."""
    if isinstance(node, Ask) and node.keep and node.limit is None and node.carry is None:
        node = _sunk_ask(node, prices, limited)
    row_local = isinstance(node, Project | WithColumns | Select | Ask)
    below = isinstance(node, Slice) or (limited and (row_local or (isinstance(node, Step) and node.commutes)))
    return with_inputs(node, tuple(_pushed(each, prices, below) for each in inputs(node)))


def _sunk_ask(ask: Ask, prices: Prices, limited: bool) -> Node:
    """The ask without the predicates that went below its input."""
    wanted = set(ask.answer_columns)
    staying: list[Expression] = []
    below = ask.input
    for predicate in ask.keep:
        reads = predicate_reads(predicate)
        shared = reads is None or any(call.column in wanted for call in predicate.calls)
        sunk = None if shared or reads is None else _sunk(below, predicate, reads, prices, limited)
        below, staying = (below, [*staying, predicate]) if sunk is None else (sunk, staying)
    if not staying and not ask.answers:
        return below
    return replace(ask, input=below, keep=tuple(staying))


def predicate_reads(predicate: Expression) -> Names | None:
    """Columns that the calls' texts and the masks of a predicate are made of."""
    masks = predicate.test.masks if predicate.test else ()
    return union([*(call.reads for call in predicate.calls), *(mask.reads for mask in masks)])


def _sunk(node: Node, predicate: Expression, reads: Names, prices: Prices, limited: bool) -> Node | None:
    """`node` with the predicate asked below it; None where it may not be, or nothing is gained."""
    if isinstance(node, Source | Slice) or not passes(node, reads):
        return None
    if isinstance(node, Ask):
        below = _sunk(node.input, predicate, reads, prices, limited)
        return Ask(node, keep=(predicate,)) if below is None else replace(node, input=below)
    if isinstance(node, Join | AskPairs):
        return _sunk_to_side(node, predicate, reads, prices)
    if isinstance(node, Concat):
        sunk = [_sunk(each, predicate, reads, prices, limited) for each in node.inputs]
        pairs = zip(node.inputs, sunk, strict=True)
        asked = [Ask(own, keep=(predicate,)) if below is None else below for own, below in pairs]
        return replace(node, inputs=tuple(asked)) if any(sunk) else None
    if isinstance(node, Step) and limited and node.commutes:
        return None
    assert isinstance(node, Project | WithColumns | Select | Filter | Step)
    below = _sunk(node.input, predicate, reads, prices, limited)
    return None if below is None else replace(node, input=below)


def _sunk_to_side(node: Join | AskPairs, predicate: Expression, reads: Names, prices: Prices) -> Node | None:
    side: Side = "left" if side_of(node, reads) == "left" else "right"
    own = node.left if side == "left" else node.right
    below = _sunk(own, predicate, reads, prices, limited=False)
    gains = _spares_pairs(node, predicate, side, prices) if isinstance(node, AskPairs) else node.how == "cross"
    if below is None and not gains:
        return None
    asked = Ask(own, keep=(predicate,)) if below is None else below
    return replace(node, left=asked) if side == "left" else replace(node, right=asked)


def _spares_pairs(node: AskPairs, predicate: Expression, side: Side, prices: Prices) -> bool:
    """Whether asking every row of a side costs fewer tokens than the pairs that it spares.

    Above the join the predicate would be asked of the side's rows that found a partner; below, of all of them.
    """
    assert predicate.test is not None, "a predicate of an Ask has a test"
    left, right = table_of(node.left, prices), table_of(node.right, prices)
    far: Side = "right" if side == "left" else "left"
    own, other = (left, right) if side == "left" else (right, left)
    partners = candidate_pairs(node, left, right, prices) / max(own.rows, 1.0)
    texts = {text.key: text for use in predicate.calls for text in use.inputs}
    documents = sum(text_figures(text, own, prices).mean_tokens for text in texts.values())
    question = sum(prices.lay_out(use.call, ()).own_tokens for use in predicate.calls) + documents
    anchor = sum(own.column(name).mean_tokens for name in node.inputs_of(side))
    passing_by = sum(other.column(name).mean_tokens for name in node.inputs_of(far))
    pairs = anchor + prices.lay_out(node.call, ()).own_tokens + partners * passing_by
    alone = (1 - min(1.0, partners * pair_share(node.call))) * question
    return alone <= (1 - passing_share(predicate.test.condition, predicate.calls)) * pairs
