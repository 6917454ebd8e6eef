"""Layout and label scoring of calls that say `by_cost`: the combination that makes the whole chain cheapest.

    ask(answers label(scoring by_cost))  ->  ask(answers label(scoring trie_decode))

`auto` is not chosen here: it follows from the call and the model alone, so that answers do not depend on the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from quail_frames.errors import CallError
from quail_frames.optimizer.chain import chain_price, with_call
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.tables import Table, table_of
from quail_frames.plan.calls import AiCall, AiClassify, Layout, Scoring
from quail_frames.plan.logical import Ask, Node, rewrite

_LAYOUTS: tuple[Layout, ...] = ("document_first", "question_first")
_SCORINGS: tuple[Scoring, ...] = ("trie_decode", "trie_tree", "letters")


def choose_by_cost(plan: Node, prices: Prices | None = None) -> Node:
    """The plan with every `by_cost` replaced by what costs least."""
    known = Prices.assumed() if prices is None else prices
    return rewrite(plan, lambda node: _chosen(node, known) if isinstance(node, Ask) else node)


def _chosen(ask: Ask, prices: Prices) -> Ask:
    if not any(_is_open(use.call) for use in ask.calls):
        return ask
    table = table_of(ask.input, prices)
    for use in ask.calls:
        if _is_open(use.call):
            ways = [with_call(ask, use, call) for call in _ways(use.call)]
            ask = min(ways, key=lambda way: _seconds(way, table, prices))
    return ask


def _is_open(call: AiCall) -> bool:
    return call.layout == "by_cost" or (isinstance(call, AiClassify) and call.scoring == "by_cost")


def _ways(call: AiCall) -> Iterator[AiCall]:
    """The call with every layout and label scoring that it leaves open."""
    several = len(call.columns) > 1
    layouts = (call.layout,) if call.layout != "by_cost" else _LAYOUTS[:1] if several else _LAYOUTS
    if not isinstance(call, AiClassify):
        yield from (replace(call, layout=layout) for layout in layouts)
        return
    scorings = _SCORINGS if call.scoring == "by_cost" else (call.scoring,)
    for layout, scoring in product(layouts, scorings):
        yield replace(call, layout=layout, scoring=scoring)


def _seconds(ask: Ask, table: Table, prices: Prices) -> float:
    """The chain's seconds in the order as it stands; infinite where the model or the labels rule the way out."""
    try:
        work = chain_price(ask, [use.column for use in ask.calls], table, prices).work
    except CallError:
        return float("inf")
    return prices.target.price(work).seconds
