"""A call inside plain Polars: the expression itself asks the default engine.

Planned frames never run this: they find the call in the expression and plan it.
"""

from __future__ import annotations

import sys
import threading
import warnings
from dataclasses import dataclass
from types import FrameType

import polars as pl
import pyarrow as pa

from quail_frames.errors import QuailFramesWarning
from quail_frames.lazy.engines import default_engine
from quail_frames.lazy.inputs import as_text, check_dtype, pieces, to_record_batch
from quail_frames.lazy.marker import answer_dtype
from quail_frames.plan.calls import AiCall
from quail_frames.plan.physical import AnswerOutput, Chain

_lock = threading.RLock()
_warned = False


@dataclass(frozen=True)
class AskDefaultEngine:
    """Maps a struct of a call's inputs to its answers."""

    call: AiCall

    def __call__(self, inputs: pl.Series) -> pl.Series:
        _warn_in_lazy_query()
        for name, dtype in zip(self.call.columns, inputs.struct.schema.values(), strict=True):
            check_dtype(self.call, name, dtype)
        values = inputs.struct.unnest()
        values.columns = [str(slot) for slot in range(values.width)]
        with _lock:
            return ask(self.call, values.select(as_text(pl.all()))).alias(inputs.name)


def ask(call: AiCall, texts: pl.DataFrame) -> pl.Series:
    """The call's answer for each row of `texts`, whose column i holds the call's input i."""
    dtype = answer_dtype(call)
    if texts.height == 0:
        return pl.Series("answer", [], dtype=dtype)
    engine = default_engine()
    planned = engine.resolve(call, tuple(range(texts.width)))
    chain = Chain(tuple(texts.columns), (), (planned,), (0,), None, (AnswerOutput("answer", 0),))
    answers = pa.Table.from_batches(engine.run(chain, map(to_record_batch, pieces(texts))))
    return pl.Series("answer", answers["answer"]).cast(dtype)


def _warn_in_lazy_query() -> None:
    global _warned
    if _warned or not any(map(_collects_lazily, sys._current_frames().values())):
        return
    _warned = True
    warnings.warn(
        "an AI call runs inside a plain pl.LazyFrame, where Polars may ask the model about more rows than the "
        "query needs, and explain, estimate, report= and progress= are Polars' own or missing: start the query "
        "with qf.lazy(frame) to have it planned",
        QuailFramesWarning,
        stacklevel=2,
    )


def _collects_lazily(frame: FrameType | None) -> bool:
    """Whether this stack is in a LazyFrame's execution that no eager method started."""
    lazily = False
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(("polars.dataframe", "polars.series")):
            return False
        lazily = lazily or module.startswith("polars.lazyframe")
        frame = frame.f_back
    return lazily
