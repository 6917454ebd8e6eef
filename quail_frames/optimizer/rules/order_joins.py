"""Join order: a chain of inner AI joins in the order that costs least, each with the anchor chosen for it.

    ask_pairs(ask_pairs(a, b), c)  ->  sort(ask_pairs(ask_pairs(a, c), b))

The anchors are part of the prompt: they were chosen before, together with the order that they go with
(`optimizer.anchors`). Keys and predicates travel with their join; the rows are sorted back into the order of the
joins as written.
"""

from __future__ import annotations

from quail_frames.optimizer.join_chain import join_chain
from quail_frames.optimizer.join_plans import joins_of, planned_joins
from quail_frames.optimizer.join_rewriting import reordered
from quail_frames.optimizer.prices import Prices
from quail_frames.plan.logical import Node, columns, expressions, inputs, with_inputs


def order_joins(plan: Node, prices: Prices) -> Node:
    """The plan with every chain of inner AI joins in the order that is expected to cost least."""
    return _ordered(plan, prices, pairs_asked=False)


def _ordered(node: Node, prices: Prices, pairs_asked: bool) -> Node:
    """`pairs_asked`: a call above reads several texts, and would be laid out on another anchor in another order."""
    chain = join_chain(node)
    if chain is not None and len(chain.joins) > 1 and chain.movable:
        asked = pairs_asked or any(map(_asks_pairs, (*chain.inside, *chain.above)))
        planned = planned_joins(joins_of(chain, prices), movable=True)
        if planned.moved and not asked:
            relations = (_ordered(each.node, prices, pairs_asked) for each in chain.relations)
            return reordered(chain.over(tuple(relations)), planned.taken.steps, columns(node))
    above = pairs_asked or _asks_pairs(node)
    return with_inputs(node, tuple(_ordered(below, prices, above) for below in inputs(node)))


def _asks_pairs(node: Node) -> bool:
    return any(len(use.inputs) > 1 for expression in expressions(node) for use in expression.calls)
