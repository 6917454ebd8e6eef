"""The error for a prompt that is longer than the model's context."""

from __future__ import annotations

from quail_frames.errors import ContextOverflowError
from quail_frames.runtime.compiled import CompiledCall


def can_cut(compiled: CompiledCall, limit: int) -> bool:
    """Whether the call cuts texts that are too long: it says so, and its own words leave room for some text."""
    return compiled.planned.call.overflow == "truncate" and compiled.positions < limit


def overflow_error(compiled: CompiledCall, row: int, tokens: int, limit: int) -> ContextOverflowError:
    """Names the call, its columns, the row (of the call's input, or of the anchor side), tokens and limit."""
    call = compiled.planned.call
    columns = " and ".join(repr(column) for column in call.columns)
    advice = "pass overflow='truncate' to keep the head of the text or overflow='null' to give no answer for it"
    if compiled.positions >= limit:
        advice = f"its own words have {compiled.positions} and leave no room for a text: shorten the question or labels"
    return ContextOverflowError(
        f"the prompt of {call.kind} on column {columns} has {tokens} tokens, the model takes {limit}; {advice}",
        row=row,
        tokens=tokens,
        limit=limit,
    )
