"""AI predicate order: the questions of a chain in the order that is expected to take least time.

Up to six predicates are enumerated. Beyond, each is tried as the first, which pays for the
document, and the rest follow by cost / (1 - selectivity) (Hellerstein and Stonebraker, 1993).
Where the user states no selectivity, what earlier runs of this process saw counts: order changes no answer.
"""

from __future__ import annotations

from dataclasses import replace

from quail_frames.optimizer.orders import call_orders
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.tables import table_of
from quail_frames.plan.logical import Ask, Node, rewrite


def order_calls(plan: Node, prices: Prices | None = None) -> Node:
    """The plan with the `order` of every `Ask` chosen."""
    known = (Prices.assumed() if prices is None else prices).remembering()
    return rewrite(plan, lambda node: _ordered(node, known) if isinstance(node, Ask) else node)


def _ordered(ask: Ask, prices: Prices) -> Ask:
    if len(ask.calls) == 1:
        return replace(ask, order=(ask.calls[0].column,))
    return replace(ask, order=call_orders(ask, table_of(ask.input, prices), prices)[0].columns)
