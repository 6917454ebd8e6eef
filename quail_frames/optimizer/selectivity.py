"""Expected shares of rows that pass: stated by the user, seen by earlier runs, or assumed.

What earlier runs saw (`seen`) is for the order of questions and for what `explain` says: anchors, layouts and label
scoring follow from the other shares alone, and with them answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.conditions import And, Answer, CallTest, Condition, Mask, Not, Or
from quail_frames.plan.logical import CallUse
from quail_frames.plan.selectivity import UNKNOWN_SHARE, Memory, estimate


def passing_share(condition: Condition, calls: Sequence[CallUse], seen: Memory | None = None) -> float:
    """Estimated share of rows for which the condition is TRUE, its parts taken as independent."""
    if isinstance(condition, Not):
        return 1 - passing_share(condition.term, calls, seen)
    if isinstance(condition, And | Or):
        shares = [passing_share(term, calls, seen) for term in condition.terms]
        return prod(shares) if isinstance(condition, And) else 1 - prod(1 - share for share in shares)
    if isinstance(condition, Mask):
        return UNKNOWN_SHARE
    return estimate(calls[condition.call].call, condition, seen).share


def pair_share(call: AiCall) -> float:
    """Estimated share of pairs answered TRUE."""
    return estimate(call, Answer(0), seen=None).share


def selectivity_from(call: AiCall, test: CallTest, seen: Memory | None = None) -> str:
    """Where a call's share comes from, in words."""
    found = estimate(call, test, seen)
    if found.origin == "stated":
        return "as stated by the query"
    if found.origin == "remembered":
        return f"remembered {found.share:.2f} of {found.answers:,.0f} rows"
    return "assumed: labels are taken as equally likely" if isinstance(call, AiClassify) else "assumed"
