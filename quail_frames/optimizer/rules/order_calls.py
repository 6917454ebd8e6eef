"""AI predicate order: the questions of a chain in the order that is expected to cost least.

Up to six predicates are enumerated. Beyond, each is tried as the first, which pays for the
document, and the rest follow by cost / (1 - selectivity) (Hellerstein and Stonebraker, 1993).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.conditions import And, Answer, Condition, LabelTest, Mask, Not, Or
from quail_frames.plan.logical import Ask, CallUse, Expression, Node, rewrite

DEFAULT_SELECTIVITY = 0.2
ENUMERATED = 6
DOCUMENT_TOKENS = 200.0
"""Assumed length of a document that no one has looked at."""
FRAME_TOKENS = 16.0
"""Instruction and cue around a question."""
CHARACTERS_PER_TOKEN = 4.0


@dataclass(frozen=True)
class Priced:
    """A predicate: its calls, the documents they read, their own tokens, and the share of rows that pass."""

    calls: tuple[str, ...]
    documents: frozenset[tuple[str, ...]]
    tokens: float
    passing: float


def order_calls(plan: Node) -> Node:
    """The plan with the `order` of every `Ask` chosen."""
    return rewrite(plan, lambda node: replace(node, order=_order(node)) if isinstance(node, Ask) else node)


def call_tokens(call: AiCall) -> float:
    """Estimated tokens of a question without its document."""
    text = call.template.render(("",) * len(call.columns))
    if isinstance(call, AiClassify):
        text += " ".join([*call.labels, *filter(None, call.descriptions or ()), call.task_description or ""])
    return FRAME_TOKENS + len(text) / CHARACTERS_PER_TOKEN


def passing_share(condition: Condition, calls: Sequence[CallUse]) -> float:
    """Estimated share of rows for which the condition is TRUE, its parts taken as independent."""
    if isinstance(condition, Not):
        return 1 - passing_share(condition.term, calls)
    if isinstance(condition, And | Or):
        shares = [passing_share(term, calls) for term in condition.terms]
        return _product(shares) if isinstance(condition, And) else 1 - _product([1 - share for share in shares])
    if isinstance(condition, Mask):
        return 0.5
    call = calls[condition.call].call
    if call.selectivity is not None:
        return call.selectivity
    if isinstance(condition, LabelTest) and isinstance(call, AiClassify):
        share = len(set(condition.labels) & set(call.labels)) / len(call.labels)
        return 1 - share if condition.negated else share
    return DEFAULT_SELECTIVITY if isinstance(condition, Answer) else 0.5


def _order(ask: Ask) -> tuple[str, ...]:
    priced = [_priced(predicate) for predicate in ask.keep]
    if len(priced) <= ENUMERATED:
        orders = [list(order) for order in permutations(priced)]
    else:
        ranked = sorted(priced, key=lambda p: p.tokens / max(1e-9, 1 - p.passing))
        orders = [[first, *(p for p in ranked if p is not first)] for first in priced]
    best = min(orders, key=_cost)
    calls = [call for predicate in best for call in predicate.calls]
    return tuple(dict.fromkeys([*calls, *ask.answer_columns]))


def _cost(order: Sequence[Priced]) -> float:
    """Expected tokens of a row: a document is paid by the first question that reads it."""
    total, reached = 0.0, 1.0
    read: set[tuple[str, ...]] = set()
    for predicate in order:
        total += reached * (predicate.tokens + DOCUMENT_TOKENS * len(predicate.documents - read))
        read |= predicate.documents
        reached *= predicate.passing
    return total


def _priced(predicate: Expression) -> Priced:
    assert predicate.test is not None, "a predicate of an Ask has a test"
    calls = sorted(predicate.calls, key=lambda use: call_tokens(use.call))
    return Priced(
        tuple(use.column for use in calls),
        frozenset(tuple(text.key for text in use.inputs) for use in calls),
        sum(call_tokens(use.call) for use in calls),
        passing_share(predicate.test.condition, predicate.calls),
    )


def _product(values: Sequence[float]) -> float:
    total = 1.0
    for value in values:
        total *= value
    return total
