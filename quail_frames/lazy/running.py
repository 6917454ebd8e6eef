"""Running a query: planned as its engine will run it, its rows collected, handed out piece by piece, or written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from quail_frames.errors import ContextOverflowError
from quail_frames.lazy.checks import checked_engine, checked_report, checked_rows, refuse_fork
from quail_frames.lazy.engines import Runner, default_engine
from quail_frames.lazy.execute import Run, plain_query, rechunked, run_plan
from quail_frames.lazy.looking import Looking
from quail_frames.lazy.progress import with_progress
from quail_frames.lazy.sources import local_file, sink_parquet
from quail_frames.optimizer.anchors import choose_anchors
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.rules import optimize
from quail_frames.optimizer.rules.name_in_joins import name_in_joins
from quail_frames.optimizer.rules.order_joins import order_joins
from quail_frames.plan.logical import Node, Project, asks, columns, holds_calls, source_rows
from quail_frames.runtime.report import RunReport

EngineChoice = Runner | str | None


class Running(Looking):
    """`collect`, `collect_batches` and `sink_parquet` of a planned frame."""

    _schema: pl.Schema

    def collect(
        self, *, engine: EngineChoice = None, report: RunReport | None = None, progress: bool = False, **options: Any
    ) -> pl.DataFrame:
        """The result.

        Parameters
        ----------
        engine
            Who answers, for this run. A str is the name of a Polars engine, accepted so that
            code written for `pl.LazyFrame` runs; it changes nothing.
        report
            A `RunReport` to count into while the query runs.
        progress
            Draw a live bar on standard error.
        **options
            Options of `pl.LazyFrame.collect`; only used where the query asks no model.

        Raises
        ------
        ContextOverflowError
            A prompt is longer than the model's context and its call says `overflow="error"`;
            `error.partial` holds the rows answered so far.
        """
        plan = self._planned(engine)
        if not asks(plan):
            return plain_query(plan).collect(**options)
        found: list[pl.DataFrame] = []
        try:
            found.extend(self._run(plan, engine, report, progress))
        except ContextOverflowError as error:
            error.partial = self._concatenated(found)
            raise
        return self._concatenated(found)

    def collect_batches(
        self,
        *,
        chunk_size: int | None = None,
        engine: EngineChoice = None,
        report: RunReport | None = None,
        **options: Any,
    ) -> Iterator[pl.DataFrame]:
        """The result piece by piece, in order, as answers come; stop iterating to stop asking.

        Parameters
        ----------
        chunk_size
            Rows of a piece (the last may have fewer); None: as they come.
        engine, report, **options
            As in `collect`.
        """
        rows = None if chunk_size is None else checked_rows("chunk_size", chunk_size)
        frames = self._frames(engine, report)
        return frames if rows is None else rechunked(frames, rows)

    def sink_parquet(
        self,
        path: str | Path,
        *,
        engine: EngineChoice = None,
        report: RunReport | None = None,
        progress: bool = False,
        **options: Any,
    ) -> None:
        """Write the result to a Parquet file as answers come; memory stays bounded.

        Rows go to `<path>.partial`, which becomes `path` when all are written.

        Parameters
        ----------
        path
            The file, on this machine.
        engine, report, progress
            As in `collect`.
        **options
            Options of `pl.LazyFrame.sink_parquet`, such as `compression`.

        Raises
        ------
        PlanError
            The path is a folder or not local, or another query is writing there.
        ContextOverflowError
            As in `collect`; `error.partial` scans `<path>.partial`, which keeps the rows written so far.
        """
        place = local_file(path, options)
        sink_parquet(self._frames(engine, report, progress), self._schema, place, options)

    def _frames(self, engine: EngineChoice, report: RunReport | None, progress: bool = False) -> Iterator[pl.DataFrame]:
        return self._run(self._planned(engine), engine, report, progress)

    def _run(
        self, plan: Node, engine: EngineChoice, report: RunReport | None, progress: bool
    ) -> Iterator[pl.DataFrame]:
        refuse_fork()
        chosen = self._runner(engine)
        report = checked_report(report)
        frames = run_plan(plan, Run(default_engine if chosen is None else lambda: chosen, report))
        return with_progress(frames, report, source_rows(self._plan)) if progress else frames

    def _runner(self, engine: EngineChoice) -> Runner | None:
        return self._engine if engine is None or isinstance(engine, str) else checked_engine(engine)

    def _planned(self, engine: EngineChoice) -> Node:
        """The plan as this engine will run it."""
        if not holds_calls(self._plan):
            return self._optimized()
        refuse_fork()  # before the sources are looked at
        return self._optimized(self._prices(self._runner(engine)))

    def _optimized(self, prices: Prices | None = None) -> Node:
        names = tuple(self._schema.names())
        known = Prices.assumed() if prices is None else prices
        anchored = choose_anchors(name_in_joins(self._plan), known)
        plan = optimize(order_joins(anchored, known), prices=known)
        return plan if columns(plan) == names else Project(plan, names)

    def _concatenated(self, found: list[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(found, rechunk=True) if found else pl.DataFrame(schema=self._schema)
