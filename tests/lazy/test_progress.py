"""The bar follows the report."""

from __future__ import annotations

import io

import polars as pl
import pytest
from rich.console import Console

import quail_frames as qf
from quail_frames.lazy.progress import RunProgress
from quail_frames.runtime.report import RunReport


def test_the_bar_shows_rows_questions_and_tokens() -> None:
    out = io.StringIO()
    report = RunReport(rows=10, decided=5, asks=7, fresh_tokens=1234)
    with RunProgress(report, 20, Console(file=out, force_terminal=True, width=100)):
        pass
    assert "5 rows, 7 questions, 1,234 tokens" in out.getvalue() and "25%" in out.getvalue()


def test_collect_draws_on_standard_error_and_gives_the_same_rows(capfd: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame({"text": [f"text {number}" for number in range(50)]})
    with qf.Engine("oracle") as engine:
        lazy = qf.lazy(frame, engine=engine).ai_filter("Is it good? {text}")
        assert lazy.collect(progress=True).equals(lazy.collect())
    captured = capfd.readouterr()
    assert "50 rows, 50 questions" in captured.err and captured.out == ""
