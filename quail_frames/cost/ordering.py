"""Predicate order: which question to ask of a document first.

The first question that needs a document's KV pays for the document; the following ones find it resident. Orders
never change answers, only seconds.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from itertools import permutations

ENUMERATED = 6
"""Up to so many predicates every order is priced."""


@dataclass(frozen=True)
class Predicate:
    """One question of a conjunction, with its price for each row.

    Parameters
    ----------
    name
        Shown by `explain`.
    cold
        Seconds when the document is not resident: document and question.
    warm
        Seconds when it is: the question alone. Equal to `cold` where nothing can be re-used (question first).
    selectivity
        Share of the rows that pass, 0..1, independent of the others.
    document
        What becomes resident by asking it (predicates over the same columns share it); None where nothing does.
    also
        Further documents that it reads, with the seconds of each where it is not resident.
    """

    name: str
    cold: float
    warm: float
    selectivity: float
    document: Hashable | None = "document"
    also: tuple[tuple[Hashable, float], ...] = ()


@dataclass(frozen=True)
class PricedOrder:
    """Predicate numbers in the order asked, and the expected seconds for each row."""

    order: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class Ordering:
    """The best order first; the others as far as they were priced, cheapest first."""

    orders: tuple[PricedOrder, ...]

    @property
    def order(self) -> tuple[int, ...]:
        return self.orders[0].order

    @property
    def seconds(self) -> float:
        return self.orders[0].seconds


def order_seconds(
    predicates: Sequence[Predicate], order: Sequence[int], resident: frozenset[Hashable] = frozenset()
) -> float:
    """Expected seconds for each row: predicate i is asked of the share that passed those before it."""
    seconds, alive, here = 0.0, 1.0, set(resident)
    for number in order:
        predicate = predicates[number]
        seconds += alive * _cost(predicate, here)
        alive *= predicate.selectivity
        here |= _documents(predicate)
    return seconds


def order_predicates(predicates: Sequence[Predicate], resident: frozenset[Hashable] = frozenset()) -> Ordering:
    """The cheapest order of a conjunction.

    Up to six predicates all orders are priced. Beyond, each predicate is tried as the first, and the rest follow by
    `cost / (1 - selectivity)` (Hellerstein and Stonebraker 1993: optimal for independent predicates of fixed cost),
    at the cost that they have once the first one's document is resident. Equal prices keep the order given.

    Parameters
    ----------
    resident
        Documents whose KV is there already.

    Examples
    --------
    >>> dear, cheap = Predicate("dear", 9.0, 4.0, 0.5), Predicate("cheap", 6.0, 1.0, 0.5)
    >>> order_predicates([dear, cheap]).order
    (1, 0)
    """
    numbers = range(len(predicates))
    if len(predicates) <= ENUMERATED:
        orders = list(permutations(numbers))
    else:
        orders = [_ranked_after(predicates, first, resident) for first in numbers]
    priced = [PricedOrder(order, order_seconds(predicates, order, resident)) for order in orders]
    return Ordering(tuple(sorted(priced, key=lambda each: (each.seconds, each.order))))


def _cost(predicate: Predicate, resident: Set[Hashable]) -> float:
    """Seconds of a row where these documents are resident."""
    there = predicate.document is not None and predicate.document in resident
    missing = sum(seconds for document, seconds in predicate.also if document not in resident)
    return missing + (predicate.warm if there else predicate.cold)


def _documents(predicate: Predicate) -> set[Hashable]:
    own = set() if predicate.document is None else {predicate.document}
    return own | {document for document, _ in predicate.also}


def _ranked_after(predicates: Sequence[Predicate], first: int, resident: frozenset[Hashable]) -> tuple[int, ...]:
    here = resident | _documents(predicates[first])

    def rank(number: int) -> float:
        predicate = predicates[number]
        return _cost(predicate, here) / (1 - predicate.selectivity) if predicate.selectivity < 1 else math.inf

    rest = sorted((number for number in range(len(predicates)) if number != first), key=rank)
    return (first, *rest)
