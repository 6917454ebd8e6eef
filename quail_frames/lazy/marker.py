"""How a call lives inside a Polars expression.

The expression maps a struct of the call's inputs by a function. The name of the struct's
first field spells out the whole call, so that the expression alone says what it asks:
after a copy, a pickle, or in another process.
"""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from quail_frames.plan.calls import CALL_KINDS, AiCall, AiClassify, AiIf
from quail_frames.plan.logical import ANSWER as ANSWER
from quail_frames.plan.template import Slot, Template

MARK = "quail-frames call "


def field_names(call: AiCall) -> list[str]:
    """Names of the fields of the call's struct of inputs."""
    spec = json.dumps(call.spec() | {"selectivity": call.selectivity}, ensure_ascii=True)
    return [MARK + spec, *(f"{MARK}{slot}" for slot in range(1, len(call.columns)))]


def call_of(field_name: str) -> AiCall:
    """The call whose first field has this name."""
    spec: dict[str, Any] = json.loads(field_name.removeprefix(MARK))
    kind = CALL_KINDS[spec.pop("kind")]
    pieces = tuple(piece if isinstance(piece, str) else Slot(piece) for piece in spec.pop("template"))
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in spec.items()}
    return kind(template=Template(pieces), **fields)


def answer_dtype(call: AiCall) -> pl.DataType:
    """Polars type of the call's answers."""
    if isinstance(call, AiIf):
        return pl.Boolean()
    if not isinstance(call, AiClassify):
        return pl.Float64()
    if not call.probabilities:
        return pl.String()
    probabilities = pl.Struct({label: pl.Float64 for label in call.labels})
    return pl.Struct({"label": pl.String, "probabilities": probabilities})
