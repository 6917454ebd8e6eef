"""What the optimizer may know of a join: where its columns come from and what its keys read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quail_frames.errors import PlanError
from quail_frames.lazy.arguments import flat, parsed, shown
from quail_frames.lazy.discovery import has_calls
from quail_frames.lazy.record import Recorder
from quail_frames.plan.logical import Expression, Names, union


def key_text(on: Any, left_on: Any, right_on: Any) -> str:
    """The keys as `explain` shows them."""
    if on is not None:
        return " on " + ", ".join(map(shown, flat([on])))
    if left_on is None:
        return ""
    pairs = zip(flat([left_on]), flat([right_on]), strict=False)
    return " on " + ", ".join(f"{shown(left)} = {shown(right)}" for left, right in pairs)


def key_reads(recorder: Recorder, keys: Any) -> Names | None:
    """Columns that a side's join keys read."""
    exprs = parsed(flat([] if keys is None else [keys]))
    if any(map(has_calls, exprs)):
        raise PlanError("a join key holds an AI call: give its answer a name before (.with_columns) and join on that")
    return union(recorder.expression(expr, named=False).reads for expr in exprs)


def key_pairs(
    left: Recorder, right: Recorder, on: Any, left_on: Any, right_on: Any, options: Mapping[str, Any]
) -> tuple[tuple[Expression, Expression], ...] | None:
    """The keys as pairs of expressions; None where an option says more than that they are equal."""
    if options.keys() - {"suffix", "coalesce", "maintain_order"}:
        return None
    given = (on, on) if on is not None else (left_on, right_on)
    sides = [parsed(flat([] if keys is None else [keys])) for keys in given]
    if len(sides[0]) != len(sides[1]):
        return None
    pairs = zip(*sides, strict=True)
    return tuple((left.expression(a, named=False), right.expression(b, named=False)) for a, b in pairs)


def right_names(
    left: list[str], right: list[str], joined: list[str], options: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """Names of the right side's columns before and after the join; keys that were coalesced have none."""
    after = set(joined[len(left) :])
    suffix = options.get("suffix", "_right")
    pairs = [(name, name + suffix if name in left else name) for name in right]
    return tuple((name, renamed) for name, renamed in pairs if renamed in after)


def keeps_left_order(how: str, options: Mapping[str, Any]) -> bool:
    """Whether the rows come in the order of the left side, each left row's partners together, and no others."""
    if how in ("right", "full") or options.get("validate", "m:m") != "m:m":
        return False
    order = options.get("maintain_order")
    return how in ("left", "semi", "anti") if order in (None, "none") else order in ("left", "left_right")
