"""What a query is given, checked before anything runs."""

from __future__ import annotations

import operator
import os
from typing import Any

import polars as pl

from quail_frames.errors import CallError, PlanError, QuailFramesError
from quail_frames.lazy.engines import Runner
from quail_frames.runtime.report import RunReport

_ran_in: int | None = None


def refuse_fork() -> None:
    """An error where a process that has run a query was forked: Polars and engines would wait forever in the copy."""
    global _ran_in
    if _ran_in not in (None, os.getpid()):
        raise QuailFramesError(
            "this process was forked from one that had run a query; Polars and the engine do not survive that: start "
            "processes with multiprocessing.get_context('spawn')"
        )
    _ran_in = os.getpid()


def checked_frame(frame: Any) -> pl.DataFrame | pl.LazyFrame:
    """A Polars frame."""
    if not isinstance(frame, pl.DataFrame | pl.LazyFrame):
        raise PlanError(
            f"a query is over a frame (pl.DataFrame, pl.LazyFrame or qf.LazyFrame), not {type(frame).__name__}: "
            "pl.DataFrame(...) makes one"
        )
    return frame


def checked_engine(engine: Any) -> Runner:
    """Something that answers questions."""
    if isinstance(engine, type) or not all(hasattr(engine, part) for part in ("run", "resolve", "end", "closed")):
        raise PlanError(f"engine={engine!r} answers no questions: give an engine, such as qf.Engine()")
    checked: Runner = engine
    return checked


def checked_report(report: Any) -> RunReport:
    """The report to count into; a new one for None."""
    if report is None:
        return RunReport()
    if not isinstance(report, RunReport):
        raise PlanError(f"report={report!r} cannot be counted into: give a qf.RunReport()")
    return report


def checked_rows(option: str, value: Any) -> int:
    """A number of rows, at least one."""
    try:
        rows = operator.index(value)
    except TypeError:
        rows = 0
    if rows < 1 or isinstance(value, bool):
        raise PlanError(f"{option}={value!r} is not a number of rows: give an integer from 1 on, or leave it out")
    return rows


def checked_name(name: Any) -> str:
    """The name of an answer column."""
    if not isinstance(name, str):
        raise CallError(f"name={name!r} names no column: give a str, or leave it out")
    return name
