"""Windows, subqueries, VALUES and the outer joins of USING: SQL and Python are one plan, logical and physical."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from benchmarks.workloads.record import Recorder
from quail_frames.runtime.engine import Engine
from tests.sql.test_plans import ASPECTS, GOOD, REVIEWS

Build = Callable[[qf.LazyFrame, qf.LazyFrame], qf.LazyFrame]
WHERE = "WHERE AI_FILTER(PROMPT('Is {0} good?', review))"

QUERIES: dict[str, tuple[str, Build]] = {
    "a number for each row of a group": (
        f"SELECT id, ROW_NUMBER() OVER (PARTITION BY movie) AS n FROM reviews {WHERE}",
        lambda r, a: (
            r.ai_filter(GOOD)
            .with_columns((pl.int_range(pl.len()) + 1).over([pl.col("movie")]).alias("window"))
            .select("id", pl.col("window").alias("n"))
        ),
    ),
    "an aggregate over a group, tested by QUALIFY": (
        f"SELECT id FROM reviews {WHERE} QUALIFY MAX(stars) OVER (PARTITION BY movie) >= 4",
        lambda r, a: (
            r.ai_filter(GOOD)
            .with_columns(pl.col("stars").max().over([pl.col("movie")]).alias("window"))
            .filter(pl.col("window") >= 4)
            .select("id")
        ),
    ),
    "a value among those of a query": (
        f"SELECT id FROM reviews {WHERE} AND movie IN (SELECT movie FROM aspects WHERE weight > 1)",
        lambda r, a: (
            r.ai_filter(GOOD).join(a.filter(pl.col("weight") > 1).select("movie"), on="movie", how="semi").select("id")
        ),
    ),
    "one value of a query": (
        f"SELECT id FROM reviews {WHERE} AND stars > (SELECT MAX(weight) AS most FROM aspects)",
        lambda r, a: (
            r.ai_filter(GOOD)
            .join(
                a.select(pl.col("weight").max().alias("most")).select(pl.col("most").alias("subquery_2")), how="cross"
            )
            .filter(pl.col("stars") > pl.col("subquery_2"))
            .select("id")
        ),
    ),
    "rows of VALUES": (
        "SELECT v.column2 FROM (VALUES ('m1', 'x'), ('m2', 'y')) AS v JOIN reviews r ON v.column1 = r.movie "
        "AND AI_FILTER(PROMPT('Does {0} mention {1}?', r.review, v.column2))",
        lambda r, a: (
            qf.lazy(pl.DataFrame({"column1": ["m1", "m2"], "column2": ["x", "y"]}))
            .ai_join(r, "Does {right.review} mention {left.column2}?", left_on="column1", right_on="movie")
            .select("column2")
        ),
    ),
    "a right join by USING": (
        "SELECT movie, id, aspect FROM reviews RIGHT JOIN aspects USING (movie) "
        "WHERE AI_FILTER(PROMPT('Is {0} about people?', aspect))",
        lambda r, a: (
            a.ai_filter("Is {aspect} about people?")
            .join(r, on="movie", how="left", coalesce=False)
            .select(pl.coalesce("movie_right", "movie").alias("movie"), "id", "aspect")
        ),
    ),
    "a full join by USING": (
        "SELECT movie, id, aspect FROM reviews FULL JOIN aspects USING (movie)",
        lambda r, a: r.join(a, on="movie", how="full", coalesce=False).select(
            pl.coalesce("movie", "movie_right").alias("movie"), "id", "aspect"
        ),
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_sql_and_python_are_the_same_plan(name: str) -> None:
    text, build = QUERIES[name]
    ours = qf.sql(text, reviews=REVIEWS, aspects=ASPECTS)
    theirs = build(qf.lazy(REVIEWS), qf.lazy(ASPECTS))
    assert ours.explain() == theirs.explain()
    assert ours._plan == theirs._plan
    assert ours._optimized() == theirs._optimized()
    with Engine("oracle") as engine:
        recorder = Recorder.on(engine)
        found = [(frame.collect(engine=engine), recorder.take().plans) for frame in (ours, theirs)]
    assert_frame_equal(found[0][0], found[1][0], check_row_order=False)
    assert found[0][1] == found[1][1]
    assert bool(found[0][1]) == ("AI_FILTER" in text)
