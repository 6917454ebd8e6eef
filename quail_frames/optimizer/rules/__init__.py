"""The logical rules, one file each; `RULES` is the pipeline.

A rule is a pure function from plan to plan that leaves alone what it cannot read; those in `PRICED` also take what
plans are priced by.
"""

from __future__ import annotations

from collections.abc import Callable

from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.rules.choose_by_cost import choose_by_cost
from quail_frames.optimizer.rules.decide_by_answers import decide_by_answers
from quail_frames.optimizer.rules.keep_resident import keep_resident
from quail_frames.optimizer.rules.lift_asks import lift_asks
from quail_frames.optimizer.rules.limit_sorted import limit_sorted
from quail_frames.optimizer.rules.merge_asks import merge_asks
from quail_frames.optimizer.rules.order_calls import order_calls
from quail_frames.optimizer.rules.place_calls import place_calls
from quail_frames.optimizer.rules.prune_columns import prune_columns
from quail_frames.optimizer.rules.push_asks import push_asks
from quail_frames.optimizer.rules.push_filters import push_filters
from quail_frames.optimizer.rules.remember_answers import remember_answers
from quail_frames.optimizer.rules.share_anchors import share_anchors
from quail_frames.optimizer.rules.share_calls import share_calls
from quail_frames.optimizer.rules.stop_early import stop_early
from quail_frames.plan.logical import Node

Rule = Callable[..., Node]

RULES: tuple[Rule, ...] = (
    place_calls,
    decide_by_answers,
    push_filters,
    push_asks,
    merge_asks,
    lift_asks,
    merge_asks,
    share_calls,
    limit_sorted,
    stop_early,
    prune_columns,
    choose_by_cost,
    order_calls,
    share_anchors,
    keep_resident,
    remember_answers,
)


PRICED: frozenset[Rule] = frozenset({choose_by_cost, lift_asks, order_calls, push_asks})
"""Rules that decide by prices: they are called with the plan and the `Prices`."""


def optimize(plan: Node, rules: tuple[Rule, ...] = RULES, prices: Prices | None = None) -> Node:
    """The plan after every rule in turn; without `prices`, by those of the default model over unseen rows."""
    known = Prices.assumed() if prices is None else prices
    for rule in rules:
        plan = rule(plan, known) if rule in PRICED else rule(plan)
    return plan
