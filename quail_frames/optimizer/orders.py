"""Orders of a chain's questions with their expected seconds, the cheapest first.

A predicate is one question of the conjunction; the calls of a boolean program (`a | (b & ~c)`) are put into their own
best order first, with the rows that each is asked of after the short circuit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from quail_frames.cost.choices import Target
from quail_frames.cost.ordering import Predicate, PricedOrder, order_predicates
from quail_frames.optimizer.chain import PricedCall, priced_calls
from quail_frames.optimizer.flow import Flow, flow_of
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.tables import Table, predicate_share
from quail_frames.plan.logical import Ask, Expression

INSIDE = 4
"""Calls of one predicate up to which all their orders are tried; beyond, cheaper questions come first."""


@dataclass(frozen=True)
class CallOrder:
    """Answer columns of a chain's calls in the order asked, and the expected seconds of a row."""

    columns: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class _Program:
    """A predicate with its calls in their own best order, as one question of the conjunction."""

    columns: tuple[str, ...]
    predicate: Predicate


def call_orders(ask: Ask, table: Table, prices: Prices) -> tuple[CallOrder, ...]:
    """The orders that were priced, cheapest first; calls wanted as answers only come last, as they stand."""
    calls = {call.use.column: call for call in priced_calls(ask, table, prices)}
    programs = [_program(ask, predicate, calls, prices) for predicate in ask.keep]

    def named(priced: PricedOrder) -> CallOrder:
        asked = [column for number in priced.order for column in programs[number].columns]
        return CallOrder(tuple(dict.fromkeys([*asked, *ask.answer_columns])), priced.seconds)

    return tuple(map(named, order_predicates([program.predicate for program in programs]).orders))


def _program(ask: Ask, predicate: Expression, calls: dict[str, PricedCall], prices: Prices) -> _Program:
    own = [calls[use.column] for use in predicate.calls]
    alone = replace(ask, keep=(predicate,), answers=(), limit=None)
    flows = [(order, flow_of(alone, [call.use.column for call in order], prices)) for order in _inner_orders(own)]
    order, flow = min(flows, key=lambda each: _seconds(own, each[1], prices.target))
    documents = _documents(own, flow, prices.target)
    warm = sum(flow.share(at) * prices.target.marginal(call.ask).seconds for at, call in enumerate(own))
    first = order[0].document
    also = tuple((document, seconds) for document, seconds in documents.items() if document != first)
    cold = warm + (documents[first] if first is not None else 0.0)
    priced = Predicate(predicate.text, cold, warm, predicate_share(predicate, prices), first, also)
    return _Program(tuple(call.use.column for call in order), priced)


def _inner_orders(own: Sequence[PricedCall]) -> Iterator[tuple[PricedCall, ...]]:
    """Orders to try inside a predicate."""
    if len(own) <= INSIDE:
        return permutations(own)
    return iter([tuple(sorted(own, key=lambda call: call.ask.new_tokens))])


def _seconds(own: Sequence[PricedCall], flow: Flow, target: Target) -> float:
    """Expected seconds of a row of which nothing is resident."""
    warm = sum(flow.share(at) * target.marginal(call.ask).seconds for at, call in enumerate(own))
    return warm + sum(_documents(own, flow, target).values())


def _documents(own: Sequence[PricedCall], flow: Flow, target: Target) -> dict[Hashable, float]:
    """Expected seconds of loading each document that the calls read."""
    found: dict[Hashable, float] = {}
    for document in dict.fromkeys(call.document for call in own if call.document is not None):
        readers = [at for at, call in enumerate(own) if call.document == document]
        load = max((own[at] for at in readers), key=lambda call: call.context).load
        found[document] = flow.reached(readers) * target.marginal(load).seconds
    return found
