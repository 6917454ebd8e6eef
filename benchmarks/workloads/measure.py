"""One query on one engine, through one or both front ends, counted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any, Literal

import polars as pl
from polars.testing import assert_frame_equal

import quail_frames as qf
from benchmarks.workloads.query import Query
from benchmarks.workloads.record import Recorder
from quail_frames.cost.devices import Device
from quail_frames.cost.roofline import roofline
from quail_frames.cost.shapes import ModelShape
from quail_frames.plan.selectivity import SEEN
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.report import RunReport

Front = Literal["python", "sql"]
Frames = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Figures:
    """What a query did.

    rows                of the result
    minimum_tokens      the prefix tree of all prompts asked; see `benchmarks.minimum`
    seconds             from `collect` to the result
    sol_seconds         least seconds of this work, without tokens beyond the minimum, on this machine's CPU
    sol_seconds_h100    the same on an h100-sxm
    sql_equals_python   None where only one front end ran
    """

    id: str
    shape: str
    front: Front
    rows: int
    asks: int
    fresh_tokens: int
    minimum_tokens: int
    regret_tokens: int
    truncated: int
    overflowed: int
    batches: int
    seconds: float
    sol_seconds: float
    sol_seconds_h100: float
    sql_equals_python: bool | None = None

    @property
    def over_minimum(self) -> float:
        """Tokens computed for each that had to be; 1 where none had."""
        return self.fresh_tokens / self.minimum_tokens if self.minimum_tokens else 1.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Run:
    """A run's rows, its figures and what was recorded."""

    frame: pl.DataFrame
    figures: Figures
    record: Recorder


@dataclass(frozen=True)
class Bench:
    """An engine that is watched, and the devices whose speed of light is stated."""

    engine: Engine
    recorder: Recorder
    local: Device
    h100: Device
    local_shape: ModelShape
    """The model in the dtype in which this machine is fast."""

    @property
    def shape(self) -> ModelShape:
        """Of the engine's model."""
        return self.engine.shape


def planned(query: Query, front: Front, frames: Frames) -> qf.LazyFrame:
    """The query over these tables, not run."""
    if front == "sql":
        return qf.sql(query.sql, dialect=query.dialect, **frames)
    return query.python(SimpleNamespace(**{name: qf.lazy(frame) for name, frame in frames.items()}))


def run_query(bench: Bench, query: Query, front: Front, frames: Frames) -> Run:
    """Run it through one front end, with nothing remembered of earlier runs."""
    SEEN.forget()
    bench.recorder.take()
    report = RunReport()
    lazy = planned(query, front, frames)
    started = time.perf_counter()
    found = lazy.collect(engine=bench.engine, report=report)
    seconds = time.perf_counter() - started
    record = bench.recorder.take()
    minimum = record.prompts.minimum()
    work = record.work * min(1.0, minimum / max(report.fresh_tokens, 1))
    figures = Figures(
        id=query.id,
        shape=query.shape,
        front=front,
        rows=found.height,
        asks=report.asks,
        fresh_tokens=report.fresh_tokens,
        minimum_tokens=minimum,
        regret_tokens=report.regret_tokens,
        truncated=report.truncated,
        overflowed=report.overflowed,
        batches=report.batches,
        seconds=seconds,
        sol_seconds=roofline(work, bench.local_shape, bench.local).seconds if report.asks else 0.0,
        sol_seconds_h100=roofline(work, bench.shape, bench.h100).seconds if report.asks else 0.0,
    )
    return Run(found, figures, record)


def compare(bench: Bench, query: Query, frames: Frames) -> tuple[Run, Run]:
    """Both front ends, Python first; both say whether they gave the same rows."""
    first, second = (run_query(bench, query, front, frames) for front in ("python", "sql"))
    same = same_rows(first.frame, second.frame, ordered=query.ordered)
    return tuple(replace(run, figures=replace(run.figures, sql_equals_python=same)) for run in (first, second))  # type: ignore[return-value]


def same_rows(one: pl.DataFrame, other: pl.DataFrame, *, ordered: bool) -> bool:
    """Whether two results are the same, as lists of rows or as sets of them (floats to rounding of a mean)."""
    try:
        assert_frame_equal(one, other, check_row_order=ordered)
    except AssertionError:
        return False
    return True
