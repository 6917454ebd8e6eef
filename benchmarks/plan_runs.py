"""Running a plan of one operator on an engine, for the cases of `benchmarks.plan_cases`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.prompts import token_batch
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin, PlannedCall
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.ragged import Ragged

Run = Callable[[RunReport], object]


def run_chain(engine: Engine, plan: Chain, batch: pa.RecordBatch) -> Run:
    """A chain over one batch."""
    return lambda report: list(engine.run(plan, [batch], report))


def run_answers(engine: Engine, calls: Sequence[PlannedCall], rows: Ragged) -> Run:
    """Every call asked of every row."""
    outputs = tuple(AnswerOutput(str(number), number) for number in range(len(calls)))
    plan = Chain(("t",), (), tuple(calls), tuple(range(len(calls))), None, outputs)
    return run_chain(engine, plan, token_batch("t", rows))


def run_join(engine: Engine, planned: PlannedCall, anchors: Ragged, partners: Ragged) -> Run:
    """Every anchor asked with every partner."""
    plan = PairJoin(("a",), ("p",), planned)
    return lambda report: list(
        engine.join(plan, [AnchorBatch(token_batch("a", anchors))], token_batch("p", partners), report)
    )


def matched_anchors(
    engine: Engine, planned: PlannedCall, anchors: Ragged, partners: Ragged, report: RunReport
) -> npt.NDArray[np.int64]:
    """Anchors with at least one partner for which the answer is TRUE."""
    plan = PairJoin(("a",), ("p",), planned)
    found = engine.join(plan, [AnchorBatch(token_batch("a", anchors))], token_batch("p", partners), report)
    rows = [batch.column(0).to_numpy() for batch in found]
    return np.unique(np.concatenate(rows)).astype(np.int64)


def rows_kept(
    engine: Engine, plan: Chain, batch: pa.RecordBatch, report: RunReport | None = None
) -> npt.NDArray[np.int64]:
    """Rows that the chain keeps."""
    found = [each.column(0).to_numpy() for each in engine.run(plan, [batch], report)]
    return np.concatenate(found).astype(np.int64)
