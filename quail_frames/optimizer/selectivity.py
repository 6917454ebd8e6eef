"""Expected shares of rows that pass, from the users' estimates or what is assumed without them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.conditions import And, Answer, Condition, LabelTest, Mask, Not, Or
from quail_frames.plan.logical import CallUse

DEFAULT_SELECTIVITY = 0.2
"""Of a TRUE/FALSE call about which nothing is known."""


def passing_share(condition: Condition, calls: Sequence[CallUse]) -> float:
    """Estimated share of rows for which the condition is TRUE, its parts taken as independent."""
    if isinstance(condition, Not):
        return 1 - passing_share(condition.term, calls)
    if isinstance(condition, And | Or):
        shares = [passing_share(term, calls) for term in condition.terms]
        return prod(shares) if isinstance(condition, And) else 1 - prod(1 - share for share in shares)
    if isinstance(condition, Mask):
        return 0.5
    call = calls[condition.call].call
    if call.selectivity is not None:
        return call.selectivity
    if isinstance(condition, LabelTest) and isinstance(call, AiClassify):
        share = len(set(condition.labels) & set(call.labels)) / len(call.labels)
        return 1 - share if condition.negated else share
    return DEFAULT_SELECTIVITY if isinstance(condition, Answer) else 0.5


def pair_share(call: AiCall) -> float:
    """Estimated share of pairs answered TRUE."""
    return DEFAULT_SELECTIVITY if call.selectivity is None else call.selectivity


def selectivity_from(call: AiCall) -> str:
    """Where a call's share comes from, in words."""
    if call.selectivity is not None:
        return "as stated by the query"
    return "assumed: labels are taken as equally likely" if isinstance(call, AiClassify) else "assumed"
