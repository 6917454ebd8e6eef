"""The error for a prompt that is longer than the model's context."""

from __future__ import annotations

from quail_frames.errors import ContextOverflowError
from quail_frames.plan.calls import AiCall


def overflow_error(call: AiCall, row: int, tokens: int, limit: int) -> ContextOverflowError:
    """Names the call, its columns, the row (of the call's input, or of the anchor side), tokens and limit."""
    columns = " and ".join(repr(column) for column in call.columns)
    return ContextOverflowError(
        f"row {row}: the prompt of {call.kind} on column {columns} has {tokens} tokens, the model takes {limit}; "
        "pass overflow='truncate' to keep the head of the text or overflow='null' to give no answer for it",
        row=row,
        tokens=tokens,
        limit=limit,
    )
