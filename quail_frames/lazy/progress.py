"""A live bar over a running query, drawn from its report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from quail_frames.runtime.report import RunReport


class RunProgress(Progress):
    """Rows decided of rows read, questions and tokens; redrawn ten times a second from the report."""

    def __init__(self, report: RunReport, rows: int | None, console: Console | None = None) -> None:
        self._report = report  # before the base class: it draws once while it is made
        self._rows = rows or 0
        bar = BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[counts]}"), TimeElapsedColumn()
        super().__init__(TextColumn("asking"), *bar, console=console)
        self._task = self.add_task("asking", total=None, counts="")

    def get_renderables(self) -> Iterable[RenderableType]:
        """The bar as the report stands."""
        report = self._report
        counts = f"{report.decided:,} rows, {report.asks:,} questions, {report.fresh_tokens:,} tokens"
        if self.tasks:
            total = max(report.rows, self._rows)
            self.update(self._task, completed=report.decided, total=total or None, counts=counts)
        return super().get_renderables()


def with_progress(frames: Iterator[pl.DataFrame], report: RunReport, rows: int | None) -> Iterator[pl.DataFrame]:
    """The same frames, under a bar on standard error while they are pulled."""
    with RunProgress(report, rows, Console(stderr=True)):
        yield from frames
