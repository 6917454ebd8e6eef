"""`make demo`: a chain of two AI filters, a classification and a score over real movie reviews.

Prints the plan, then a live progress bar, the resulting table and the run's report. A number as argument asks about
that many reviews only.
"""

from __future__ import annotations

import sys
from pathlib import Path

import polars as pl

import quail_frames as qf

DATA = Path(__file__).parent / "data"
ABOUT_THE_MODEL = """
The answers come from smollm2-135m-decide, a small model trained for such decisions on short
texts; long reviews like these are its weak side. docs/models.md has its figures, and others."""


def query(reviews: pl.DataFrame) -> qf.LazyFrame:
    """Four questions about each review; a review that fails a filter is asked no more."""
    return (
        qf.lazy(reviews)
        .ai_filter("Would the reviewer recommend this movie?\n\n{review}", selectivity=0.6)
        .ai_filter("Is this movie a comedy?\n\n{review}", selectivity=0.4)
        .with_columns(
            topic=qf.ai_classify("review", ["plot", "acting", "effects", "music"]),
            praise=qf.ai_score("Does the review praise the acting?\n\n{review}").round(2),
        )
    )


def main(rows: int = 30) -> None:
    """Run the demo over the first `rows` reviews."""
    reviews = pl.read_parquet(DATA / "reviews.parquet").select(review="text").head(rows)
    lazy = query(reviews)

    heading("The plan, before anything is asked")
    print(lazy.explain(numbers=False))

    heading("Running")
    qf.default_engine()  # loads the model; fetches it (93 MB) when it is not in the cache yet
    report = qf.RunReport()
    result = lazy.collect(report=report, progress=True)

    heading(f"Result: {result.height} of {reviews.height} reviews passed both filters")
    one_line = pl.col("review").str.replace_all(r"\s+", " ")
    with pl.Config(tbl_rows=12, fmt_str_lengths=46, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
        print(result.with_columns(one_line))

    heading("Run report")
    print(report)
    print(ABOUT_THE_MODEL)


def heading(text: str) -> None:
    """A line that stands out, printed at once (the bar goes to standard error)."""
    print(f"\n{text}\n{'=' * len(text)}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
