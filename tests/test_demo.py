"""`make demo` shows plan, progress, result and report, and its answers come from the model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl

import quail_frames as qf
from examples.demo import DATA, query

ROOT = Path(__file__).parents[1]


def test_the_demo_prints_plan_progress_result_and_report() -> None:
    command = [sys.executable, "examples/demo.py", "2"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode == 0, run.stderr
    order = ["As written", "As planned", "Result: ", "Run report", "tokens saved by KV rewind"]
    assert "asking" in run.stderr and "100%" in run.stderr
    places = [run.stdout.find(part) for part in order]
    assert -1 not in places and places == sorted(places), run.stdout


def test_the_demo_asks_only_what_its_filters_leave_open() -> None:
    reviews = pl.read_parquet(DATA / "reviews.parquet").select(review="text")
    report = qf.RunReport()
    with qf.Engine("oracle") as engine:
        result = query(reviews).collect(engine=engine, report=report)
    assert report.rows == report.decided == reviews.height
    assert report.asks < 4 * reviews.height and 0 < result.height < reviews.height


def test_another_text_gets_another_answer() -> None:
    review = pl.read_parquet(DATA / "reviews.parquet")["text"].sort()[0][:200]
    texts = pl.DataFrame({"review": [review, "The acting is wonderful. " + review]})
    scores = texts.select(qf.ai_score("Does the review praise the acting?\n\n{review}")).to_series()
    assert scores[0] != scores[1]
