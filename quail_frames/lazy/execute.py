"""Running an optimized plan: frames are pulled through the plan piece by piece.

Steps that look at one row at a time are applied to every piece; a step that needs all its
rows ends the pipeline below it. Parts without AI operators are Polars' own, whole.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import chain as chained
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from quail_frames.errors import ContextOverflowError
from quail_frames.lazy.chains import ReadyChain, ready_chain
from quail_frames.lazy.engines import Runner
from quail_frames.lazy.held import HeldRows
from quail_frames.lazy.inputs import BATCH_ROWS, pieces, to_record_batch
from quail_frames.lazy.marker import answer_dtype
from quail_frames.lazy.run_pairs import Below, joined_pairs, paired
from quail_frames.plan.logical import (
    Ask,
    AskPairs,
    Concat,
    Filter,
    Join,
    Node,
    Project,
    Select,
    Slice,
    Source,
    Step,
    WithColumns,
    asks,
    inputs,
)
from quail_frames.runtime.report import RunReport

Frames = Iterator[pl.DataFrame]


@dataclass
class Run:
    """One execution of a plan.

    Where `reports` and `counts` are given, every AI operator counts into a report of its own and every step the rows
    it gives, by the identity (`id`) of the plan's node.

    `engine` is called when the first row needs a model. `overflow` is the error that a
    step needing all its rows held back, to be raised behind the rows answered before it. `asking` are the joins that
    share their questions with others, with their partners, the uppermost first.
    """

    engine: Callable[[], Runner]
    report: Any = field(default_factory=RunReport)
    reports: dict[int, RunReport] | None = None
    counts: dict[int, int] | None = None
    overflow: ContextOverflowError | None = None
    asking: list[tuple[AskPairs, pl.DataFrame]] = field(default_factory=list)
    _asked: Runner | None = None
    _open: list[Iterator[pa.RecordBatch]] = field(default_factory=list)

    def asked(self) -> Runner:
        """The engine, the same one for the whole run."""
        if self._asked is None:
            self._asked = self.engine()
        return self._asked

    def report_of(self, node: Node) -> RunReport:
        """The report that an operator counts into."""
        return self.report if self.reports is None else self.reports.setdefault(id(node), RunReport())

    def counted(self, node: Node, frames: Frames) -> Frames:
        """The frames of a node, their rows counted where somebody wants to know."""
        if self.counts is None:
            return frames
        return _counted(frames, self.counts, id(node))

    def opened(self, answers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Answers of an engine, to be closed with the run."""
        self._open.append(answers)
        return answers

    def end(self) -> None:
        """Cancel what is under way, consumers first, and free the documents that were retained."""
        for answers in reversed(self._open):
            if isinstance(answers, Generator):
                answers.close()
        if self._asked is not None and not self._asked.closed:
            for report in [self.report] if self.reports is None else self.reports.values():
                self._asked.end(report)


def plain_query(plan: Node) -> pl.LazyFrame:
    """A plan that asks no model as one Polars query."""

    def no_engine() -> Runner:
        raise AssertionError("a plan without an Ask needs no engine")

    return _lazy(plan, Run(no_engine))


def run_plan(plan: Node, run: Run) -> Frames:
    """The plan's rows, piece by piece; none where there are no rows.

    Raises
    ------
    ContextOverflowError
        Behind the rows answered before it.
    """
    try:
        yield from _frames(plan, run)
    finally:
        run.end()
    if run.overflow is not None:
        raise run.overflow


def _counted(frames: Frames, counts: dict[int, int], key: int) -> Frames:
    counts[key] = 0
    for frame in frames:
        counts[key] += frame.height
        yield frame


def _frames(node: Node, run: Run) -> Frames:
    return run.counted(node, _uncounted(node, run))


def _uncounted(node: Node, run: Run) -> Frames:
    if not asks(node):
        return iter(_lazy(node, run).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True))
    if isinstance(node, Ask):
        return _asked(node, run)
    if isinstance(node, AskPairs):
        return joined_pairs(node, run, _below(run))
    if isinstance(node, Concat):
        return _appended(node, run)
    if isinstance(node, Slice) and node.offset >= 0:
        return _sliced(_frames(node.input, run), node.offset, node.length)
    if _streams(node):
        return _mapped(node, run)
    return iter([_lazy(node, run).collect()])


def _streams(node: Node) -> bool:
    """Whether the node may be applied to its input piece by piece."""
    if isinstance(node, Project):
        return True
    if isinstance(node, Filter):
        return all(e.row_local for e in node.predicates)
    if isinstance(node, WithColumns):
        return all(e.row_local for e in node.expressions)
    if isinstance(node, Select):
        return all(e.row_local for e in node.expressions) and any(e.needs for e in node.expressions)
    return (isinstance(node, Step) and node.streams) or (isinstance(node, Join) and _probes(node))


def _probes(join: Join) -> bool:
    """Whether the left side may be joined piece by piece with a right side that asks no model."""
    return join.keeps_left_order and not asks(join.right)


def _mapped(node: Node, run: Run) -> Frames:
    """Rows of consecutive streaming nodes, applied to each piece of what is below them."""
    steps: list[Callable[[pl.LazyFrame], pl.LazyFrame]] = []
    while asks(node) and not isinstance(node, Ask | Slice | Source) and _streams(node):
        steps.append(_on_piece(node, run))
        node = inputs(node)[0]
    for frame in _frames(node, run):
        piece = frame.lazy()
        for step in reversed(steps):
            piece = step(piece)
        out = piece.collect()
        if out.height:
            yield out


def _on_piece(node: Node, run: Run) -> Callable[[pl.LazyFrame], pl.LazyFrame]:
    if isinstance(node, Join):
        right = _lazy(node.right, run).collect().lazy()
        return lambda piece: node.apply(piece, right)
    return lambda piece: applied(node, [piece])


def _lazy(node: Node, run: Run) -> pl.LazyFrame:
    """The node as one Polars query; what is asked below is asked now."""
    if isinstance(node, Source):
        frame: pl.LazyFrame = node.frame
        return frame
    if asks(node) and (isinstance(node, Ask | AskPairs | Slice | Concat) or _streams(node)):
        return _gathered(node, run)
    return applied(node, [_lazy(below, run) for below in inputs(node)])


def applied(node: Node, frames: list[pl.LazyFrame]) -> pl.LazyFrame:
    """The node's operation in Polars."""
    frame = frames[0]
    if isinstance(node, Filter):
        return frame.filter(*[e.body for e in node.predicates])
    if isinstance(node, WithColumns):
        return frame.with_columns([e.body for e in node.expressions])
    if isinstance(node, Select):
        return frame.select([*(e.body for e in node.expressions), *node.carry])
    if isinstance(node, Project):
        return frame.select(node.columns)
    if isinstance(node, Slice):
        return frame.slice(node.offset, node.length)
    if isinstance(node, Concat):
        return pl.concat([each.select(node.columns) for each in frames], how="vertical_relaxed")
    assert isinstance(node, Step | Join)
    out: pl.LazyFrame = node.apply(*frames)
    return out


def _gathered(node: Node, run: Run) -> pl.LazyFrame:
    """All rows; those before a prompt that is too long where there is one."""
    found: list[pl.DataFrame] = []
    try:
        found.extend(_frames(node, run))
    except ContextOverflowError as error:
        run.overflow = error
    return pl.concat(found, rechunk=True).lazy() if found else without_rows(node)


def _below(run: Run) -> Below:
    """How an AI join runs its sides."""
    return Below(
        frames=lambda node: _frames(node, run),
        gathered=lambda node: _lazy(node, run).collect(),
        empty=lambda node: without_rows(node).collect(),
    )


def without_rows(node: Node) -> pl.LazyFrame:
    """The node's columns with their types, and no row."""
    if isinstance(node, Source):
        return pl.LazyFrame(schema=node.frame.collect_schema())
    below = [without_rows(each) for each in inputs(node)]
    if isinstance(node, AskPairs):
        left, right = (each.collect() for each in below)
        return paired(node, left, right, np.zeros(0, dtype=np.int64)).lazy()
    if not isinstance(node, Ask):
        return applied(node, below)
    answers = [pl.lit(None, dtype=answer_dtype(use.call)).alias(use.column) for use in node.answers]
    return (below[0] if node.carry is None else below[0].select(node.carry)).with_columns(answers)


def _appended(node: Concat, run: Run) -> Frames:
    """The rows of one input after the other, in the types that all of them have room in."""
    none = without_rows(node).collect()
    for below in node.inputs:
        for frame in _frames(below, run):
            yield pl.concat([none, frame.select(node.columns)], how="vertical_relaxed")


def _sliced(frames: Frames, offset: int, length: int | None) -> Frames:
    """`length` rows from `offset` on; nothing is pulled behind the last of them."""
    for frame in frames:
        out = frame.slice(offset, length)
        offset = max(0, offset - frame.height)
        length = None if length is None else length - out.height
        if out.height:
            yield out
        if length == 0:
            return


def _asked(ask: Ask, run: Run) -> Frames:
    """Rows that an engine keeps, with their answers."""
    source = (frame for frame in _frames(ask.input, run) if frame.height)
    start = next(source, None)
    if start is None:
        return
    engine = run.asked()
    ready = ready_chain(ask, engine.resolve)
    held = HeldRows()
    batches = _record_batches(chained([start], source), ask, ready, held)
    for batch in run.opened(engine.run(ready.chain, batches, run.report_of(ask))):
        if batch.num_rows:
            rows = held.take(batch.column(0).to_numpy())
            yield rows.hstack(_answer_columns(batch, ready.dtypes))
        held.release(int(batch.schema.metadata[b"decided"]))


def _record_batches(frames: Frames, ask: Ask, ready: ReadyChain, held: HeldRows) -> Iterator[pa.RecordBatch]:
    """Texts and masks for the engine; the rows themselves wait in `held`."""
    for frame in frames:
        for piece in pieces(frame):
            held.add(piece if ask.carry is None else piece.select(ask.carry))
            yield to_record_batch(piece.select(ready.columns))


def _answer_columns(batch: pa.RecordBatch, dtypes: dict[str, pl.DataType]) -> list[pl.Series]:
    return [pl.Series(name, batch.column(name)).cast(dtype) for name, dtype in dtypes.items()]


def rechunked(frames: Iterator[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """The same rows in pieces of `rows`."""
    waiting: list[pl.DataFrame] = []
    for frame in frames:
        waiting.append(frame)
        if sum(each.height for each in waiting) >= rows:
            joined = pl.concat(waiting)
            whole = joined.height - joined.height % rows
            yield from joined.head(whole).iter_slices(rows)
            waiting = [joined.slice(whole)]
    rest = [frame for frame in waiting if frame.height]
    if rest:
        yield pl.concat(rest)
