"""The anchor of every AI join, chosen from the plan as written before any rule, and the choice as a decision.

The anchor is part of the prompt. It follows from the chain of AI joins that a join stands in and from what is written
below that chain's last join; no other step, and no rewriting of the plan, can change it.
"""

from __future__ import annotations

from dataclasses import replace

from quail_frames.cost.choices import Alternative, Choice
from quail_frames.optimizer.join_chain import ChainJoin, JoinChain, chains, join_chain
from quail_frames.optimizer.join_plans import LEFT, joins_of, planned_joins
from quail_frames.optimizer.pairs import anchor_choice
from quail_frames.optimizer.prices import Prices
from quail_frames.plan.logical import AskPairs, Node, Side, inputs, walk, with_inputs

NAMED = "named by the query"
_FORMULA = (
    "the whole chain of joins at its cheapest with this anchor: its best order, the other anchors, and the texts that "
    "stay in memory for a later join (dynamic programming over left-deep plans, Selinger et al. 1979)"
)


def choose_anchors(plan: Node, prices: Prices) -> Node:
    """The plan as written with the anchor of every AI join chosen, where the user left it open."""
    if not isinstance(plan, AskPairs):
        return with_inputs(plan, tuple(choose_anchors(below, prices) for below in inputs(plan)))
    chain = join_chain(plan)
    if chain is None or len(chain.joins) < 2:
        anchor = plan.anchor or _side(anchor_choice(plan, prices))
        sides = choose_anchors(plan.left, prices), choose_anchors(plan.right, prices)
        return replace(plan, left=sides[0], right=sides[1], anchor=anchor)
    planned = planned_joins(joins_of(chain, prices), chain.movable)
    found = {id(join.node): planned.anchor(number) for number, join in enumerate(chain.joins)}
    return _anchored(plan, found, prices)


def _anchored(node: Node, anchors: dict[int, Side], prices: Prices) -> Node:
    """The joins of a chain with their anchors; what stands beside and below them is looked at by itself."""
    if id(node) not in anchors and isinstance(node, AskPairs):
        return choose_anchors(node, prices)
    if not isinstance(node, AskPairs):
        return with_inputs(node, tuple(_anchored(below, anchors, prices) for below in inputs(node)))
    left, right = _anchored(node.left, anchors, prices), choose_anchors(node.right, prices)
    return replace(node, left=left, right=right, anchor=anchors[id(node)])


def _side(choice: Choice) -> Side:
    return "left" if choice.chosen == "left row" else "right"


# Explaining it ---------------------------------------------------------------------------


def anchor_decision(node: AskPairs, written: Node, prices: Prices) -> Choice:
    """The anchor of a planned join, by the join as it was written."""
    for chain in chains(written):
        for number, join in enumerate(chain.joins):
            if _same(join.node, node):
                return _in_chain(chain, number, prices)
    own = [each for each in walk(written) if isinstance(each, AskPairs) and _same(each, node)]
    return anchor_choice(own[0] if own else node, prices)


def _same(written: AskPairs, planned: AskPairs) -> bool:
    return (written.call, written.how) == (planned.call, planned.how)


def _in_chain(chain: JoinChain, number: int, prices: Prices) -> Choice:
    """Both texts of a join as its anchor, each with what the whole chain then costs."""
    joins, join = joins_of(chain, prices), chain.joins[number]
    taken = LEFT if planned_joins(joins, chain.movable).anchor(number) == "left" else 1 - LEFT
    fixed = [question.anchor for question in joins.questions]
    priced = []
    for side in (LEFT, 1 - LEFT):
        anchored = joins.anchored([*fixed[:number], side, *fixed[number + 1 :]])
        name = f"row of {', '.join(_shown(join, join.sides[side]))}"
        priced.append(Alternative(name, stated=planned_joins(anchored, chain.movable).taken.seconds))
    because = NAMED if join.anchor is not None else ""
    if not because and taken == LEFT and priced[1 - LEFT].seconds < priced[LEFT].seconds:
        because = "a right anchor holds rows up until the last pair is known: it has to save a fifth"
    return Choice("anchor", tuple(sorted(priced, key=_seconds)), _FORMULA, priced[taken].name, because)


def _shown(join: ChainJoin, relation: int) -> list[str]:
    """The columns of a side as the question writes them."""
    return [f"{{{name}}}" for name, (own, _) in zip(join.node.call.columns, join.slots, strict=True) if own == relation]


def _seconds(alternative: Alternative) -> float:
    return alternative.seconds
