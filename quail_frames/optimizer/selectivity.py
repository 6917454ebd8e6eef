"""Expected shares of rows that pass, from the users' estimates or what is assumed without them.

What earlier runs saw is left out: anchors, layouts and label scoring follow from these shares, and with them answers.
The runtime starts from it (`quail_frames.runtime.operators.learning`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.conditions import And, Answer, Condition, Mask, Not, Or
from quail_frames.plan.logical import CallUse
from quail_frames.plan.selectivity import UNKNOWN_SHARE, estimate


def passing_share(condition: Condition, calls: Sequence[CallUse]) -> float:
    """Estimated share of rows for which the condition is TRUE, its parts taken as independent."""
    if isinstance(condition, Not):
        return 1 - passing_share(condition.term, calls)
    if isinstance(condition, And | Or):
        shares = [passing_share(term, calls) for term in condition.terms]
        return prod(shares) if isinstance(condition, And) else 1 - prod(1 - share for share in shares)
    if isinstance(condition, Mask):
        return UNKNOWN_SHARE
    return estimate(calls[condition.call].call, condition, seen=None).share


def pair_share(call: AiCall) -> float:
    """Estimated share of pairs answered TRUE."""
    return estimate(call, Answer(0), seen=None).share


def selectivity_from(call: AiCall) -> str:
    """Where a call's share comes from, in words."""
    if call.selectivity is not None:
        return "as stated by the query"
    return "assumed: labels are taken as equally likely" if isinstance(call, AiClassify) else "assumed"
