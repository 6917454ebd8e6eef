"""The order of AI joins as a decision: the joins as they were written, and the cheapest order found."""

from __future__ import annotations

from collections.abc import Sequence

from quail_frames.cost.choices import Alternative, Choice
from quail_frames.optimizer.anchors import choose_anchors
from quail_frames.optimizer.join_chain import JoinChain, chains
from quail_frames.optimizer.join_plans import WORTH_IT, joins_of, planned_joins
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.rules.name_in_joins import name_in_joins
from quail_frames.plan.calls import describe_call
from quail_frames.plan.logical import AskPairs, Node, walk

_FORMULA = (
    "pairs of each join x their tokens, among the rows that the joins before it leave; a text that a later join asks "
    "about stays in memory (left-deep plans, Selinger et al. 1979)"
)


def join_decisions(planned: Node, written: Node, prices: Prices) -> tuple[Choice, ...]:
    """One decision for each chain of inner AI joins that could have another order."""
    anchored = choose_anchors(name_in_joins(written), prices)
    return tuple(_decision(chain, planned, prices) for chain in chains(anchored) if chain.movable)


def _decision(chain: JoinChain, planned: Node, prices: Prices) -> Choice:
    found = planned_joins(joins_of(chain, prices), movable=True)
    names = [describe_call(join.node.call) for join in chain.joins]
    own = Alternative(f"as written: {_order(names, range(len(names)))}", stated=found.written.seconds)
    if found.cheapest.order == found.written.order:
        return Choice("order of joins", (own,), _FORMULA)
    other = Alternative(_order(names, found.cheapest.order), stated=found.cheapest.seconds)
    asked = [node.call for node in walk(planned) if isinstance(node, AskPairs)]
    places = [asked.index(join.node.call) if join.node.call in asked else 0 for join in chain.joins]
    as_written = places == sorted(places, reverse=True)  # the topmost operator comes first, and is asked last
    taken = own if as_written else other
    because = f"another order's rows come only when all are known: it has to cost less than {WORTH_IT:.0%}"
    cheaper = (own, other) if found.written.seconds <= found.cheapest.seconds else (other, own)
    return Choice("order of joins", cheaper, _FORMULA, taken.name, because if taken is not cheaper[0] else "")


def _order(names: Sequence[str], order: Sequence[int]) -> str:
    return ", then ".join(names[number] for number in order)
