"""The order of AI joins as a decision: the joins as they were written, and the cheapest order found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quail_frames.cost.choices import Alternative, Choice
from quail_frames.optimizer.join_chain import JoinChain, join_chain
from quail_frames.optimizer.join_order import JoinPlan, best_plan
from quail_frames.optimizer.pairs import choose_anchors
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.rules.order_joins import MOST_JOINS, WORTH_IT, joins_of, written_plan
from quail_frames.plan.calls import describe_call
from quail_frames.plan.logical import AskPairs, Node, inputs, walk

_FORMULA = (
    "pairs of each join x their tokens, among the rows that the joins before it leave; a text that a later join asks "
    "about stays in memory (left-deep plans, Selinger et al. 1979)"
)


def join_decisions(planned: Node, written: Node, prices: Prices) -> tuple[Choice, ...]:
    """One decision for each chain of inner AI joins that has another order."""
    found = []
    for chain in _chains(choose_anchors(written, prices)):
        if len(chain.joins) <= MOST_JOINS:
            joins = joins_of(chain, prices)
            best = best_plan(joins)
            if best is not None:
                found.append(_decision(chain, planned, written_plan(joins), best))
    return tuple(found)


def _chains(node: Node) -> Iterator[JoinChain]:
    """Chains of the plan, the longest ones only."""
    chain = join_chain(node)
    if chain is not None:
        yield chain
        for relation in chain.relations:
            yield from _chains(relation.node)
        return
    for below in inputs(node):
        yield from _chains(below)


def _decision(chain: JoinChain, planned: Node, written: JoinPlan, best: JoinPlan) -> Choice:
    names = [describe_call(join.call) for join in chain.joins]
    asked = [node.call for node in walk(planned) if isinstance(node, AskPairs)]
    places = [asked.index(join.call) if join.call in asked else 0 for join in chain.joins]
    as_written = places == sorted(places, reverse=True)  # the topmost operator comes first, and is asked last
    own = Alternative(f"as written: {_order(names, range(len(names)))}", stated=written.seconds)
    other = Alternative(_order(names, [step.question for step in best.steps]), stated=best.seconds)
    if other.name == _order(names, range(len(names))):
        return Choice("order of joins", (own,), _FORMULA)
    taken = own if as_written else other
    because = f"another order's rows come only when all are known: it has to cost less than {WORTH_IT:.0%}"
    cheaper = (own, other) if written.seconds <= best.seconds else (other, own)
    return Choice("order of joins", cheaper, _FORMULA, taken.name, because if taken is not cheaper[0] else "")


def _order(names: Sequence[str], order: Sequence[int]) -> str:
    return ", then ".join(names[number] for number in order)
