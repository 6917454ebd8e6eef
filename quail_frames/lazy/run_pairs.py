"""Running an AI join: one side streams through the engine as anchors, the other passes by as partners.

With the left side as anchors, pairs leave as they are found; with the right side, the
pairs are put into the order of the left side when all are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain as chained
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from quail_frames.lazy.candidates import Cutter, text_columns, text_names
from quail_frames.lazy.held import HeldRows
from quail_frames.lazy.inputs import BATCH_ROWS, pieces, to_record_batch
from quail_frames.plan.logical import AskPairs, Node, Side, columns
from quail_frames.plan.physical import PairJoin
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.tokens.ragged import Int64

if TYPE_CHECKING:
    from quail_frames.lazy.engines import Runner
    from quail_frames.lazy.execute import Run

Frames = Iterator[pl.DataFrame]
NOBODY = -1
"""Partner of a left row that has none."""


@dataclass(frozen=True)
class Below:
    """How to run what is below the join: piece by piece, all at once, or just its columns and their types."""

    frames: Callable[[Node], Frames]
    gathered: Callable[[Node], pl.DataFrame]
    empty: Callable[[Node], pl.DataFrame]


def joined_pairs(node: AskPairs, run: Run, below: Below) -> Frames:
    """The join's rows, piece by piece; the partner side is read as a whole before the first pair is asked."""
    if node.anchor == "right":
        yield from _right_anchored(node, run, below)
        return
    right = below.gathered(node.right)
    if not right.height and node.how in ("inner", "semi"):
        return
    if node.remember and right.height:
        run.asking.append((node, right))
    source = _with_rows(below.frames(node.left))
    if not right.height:
        yield from (paired(node, left, right, _nobody(left.height)) for left in source)
        return
    start = next(source, None)
    if start is not None:
        yield from _left_anchored(node, run, right, start, source)


def physical_join(node: AskPairs, engine: Runner) -> PairJoin:
    """What the engine is told to do."""
    anchor = node.anchor or "left"
    partner: Side = "right" if anchor == "left" else "left"
    order = [(side, name) for side in (anchor, partner) for name in node.inputs_of(side)]
    numbers = tuple(order.index(slot) for slot in node.slots)
    anchors = tuple(number for number, (side, _) in enumerate(node.slots) if side == anchor)
    early = anchor == "left" and node.how in ("semi", "anti")
    return PairJoin(
        anchor_inputs=text_names(node, anchor),
        partner_inputs=text_names(node, partner),
        call=engine.resolve(node.call, numbers, anchors),
        stop="first_true" if early else "never",
        retain=node.retain,
        remember=node.remember,
    )


def paired(node: AskPairs, left: pl.DataFrame, right: pl.DataFrame, right_rows: Int64) -> pl.DataFrame:
    """The join's columns: rows of `left` as they are, beside rows `right_rows` of `right` (nulls for nobody)."""
    rows = pl.Series(right_rows).cast(pl.UInt32, strict=False)
    names = columns(node)
    found = [left[name].alias(after) for name, after in _own(node.left_names, left, names)]
    own = [pl.col(name).gather(rows).alias(after) for name, after in _own(node.right_names, right, names)]
    found += right.select(own).get_columns() if own else []
    known = {series.name for series in found}
    riding = [left[name] for name in names if name not in known]
    return pl.DataFrame([*found, *riding]).select(names)


def _left_anchored(node: AskPairs, run: Run, right: pl.DataFrame, start: pl.DataFrame, source: Frames) -> Frames:
    held, begun = HeldRows(), 0
    engine = run.asked()
    anchors = _anchor_batches(chained([start], source), Cutter(node, "left", start, right), held.add)
    partners = to_record_batch(right.select(text_columns(node, "right")))
    plan, report = physical_join(node, engine), run.report_of(node)
    for batch in run.opened(engine.join(plan, anchors, partners, report, _later(node, run))):
        decided = int(batch.schema.metadata[b"decided"])
        left_rows, right_rows = _rows_of(node, batch, begun, decided)
        if len(left_rows):
            yield paired(node, held.take(left_rows), right, right_rows)
        held.release(decided)
        begun = decided


def _later(node: AskPairs, run: Run) -> list[pa.RecordBatch]:
    """Partners of the joins above that ask the same, and wait for this one's rows."""
    waiting = takewhile(lambda each: each[0] is not node, run.asking)
    alike = [(above, right) for above, right in waiting if above.call.wording == node.call.wording]
    return [to_record_batch(right.select(text_columns(above, "right"))) for above, right in alike if node.retain]


def _anchor_batches(source: Frames, cutter: Cutter, hold: Callable[[pl.DataFrame], None]) -> Iterator[AnchorBatch]:
    """Texts and candidates for the engine; the rows themselves are held."""
    for frame in source:
        for piece in pieces(frame):
            hold(piece)
            yield from cutter.batches(piece)


def _rows_of(node: AskPairs, batch: pa.RecordBatch, begun: int, decided: int) -> tuple[Int64, Int64]:
    """Left rows and their partners of the output that this batch decides, in output order."""
    anchors = batch.column(0).to_numpy().astype(np.int64)
    if node.how in ("semi", "anti"):
        matched = batch.column(1).to_numpy(zero_copy_only=False)
        rows = anchors[matched == (node.how == "semi")]
        return rows, _nobody(len(rows))
    return _in_order(node, anchors, batch.column(1).to_numpy().astype(np.int64), begun, decided)


def _in_order(node: AskPairs, left: Int64, right: Int64, begun: int, decided: int) -> tuple[Int64, Int64]:
    """The pairs by left row, with the left rows from `begun` to `decided` that have none where the join keeps them."""
    if node.how == "left":
        alone = np.setdiff1d(np.arange(begun, decided), left)
        left, right = np.concatenate([left, alone]), np.concatenate([right, _nobody(len(alone))])
    order = np.lexsort((right, left))
    return left[order], right[order]


def _right_anchored(node: AskPairs, run: Run, below: Below) -> Frames:
    left = below.gathered(node.left)
    if not left.height:
        return
    source = _with_rows(below.frames(node.right))
    rights: list[pl.DataFrame] = []
    start = next(source, None)
    found = (_nobody(0), _nobody(0))
    if start is not None:
        found = _all_pairs(node, run, left, start, source, rights)
    elif node.how in ("inner", "semi"):
        return
    right = pl.concat(rights) if rights else below.empty(node.right)
    left_rows, right_rows = _for_kind(node, *found, left.height)
    for start_row in range(0, len(left_rows), BATCH_ROWS):
        rows = slice(start_row, start_row + BATCH_ROWS)
        yield paired(node, left[left_rows[rows]], right, right_rows[rows])


def _all_pairs(
    node: AskPairs, run: Run, left: pl.DataFrame, start: pl.DataFrame, source: Frames, rights: list[pl.DataFrame]
) -> tuple[Int64, Int64]:
    """Every pair that the model says TRUE to, as left and right rows; the right rows read are added to `rights`."""
    engine = run.asked()
    anchors = _anchor_batches(chained([start], source), Cutter(node, "right", start, left), rights.append)
    partners = to_record_batch(left.select(text_columns(node, "left")))
    answers = list(run.opened(engine.join(physical_join(node, engine), anchors, partners, run.report_of(node))))
    left_rows = [batch.column(1).to_numpy().astype(np.int64) for batch in answers]
    right_rows = [batch.column(0).to_numpy().astype(np.int64) for batch in answers]
    return np.concatenate([_nobody(0), *left_rows]), np.concatenate([_nobody(0), *right_rows])


def _for_kind(node: AskPairs, left: Int64, right: Int64, rows: int) -> tuple[Int64, Int64]:
    """Left and right rows of the output, in order, from all pairs of `rows` left rows."""
    if node.how in ("semi", "anti"):
        kept = np.unique(left) if node.how == "semi" else np.setdiff1d(np.arange(rows), left)
        return kept, _nobody(len(kept))
    return _in_order(node, left, right, 0, rows)


def _with_rows(frames: Frames) -> Frames:
    return (frame for frame in frames if frame.height)


def _nobody(rows: int) -> Int64:
    return np.full(rows, NOBODY, dtype=np.int64)


def _own(names: tuple[tuple[str, str], ...], side: pl.DataFrame, wanted: tuple[str, ...]) -> list[tuple[str, str]]:
    """The side's columns that the join passes on."""
    return [(name, after) for name, after in names if after in wanted and name in side.columns]
