"""A frame's steps as SQL, and back: the same rows."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.errors import PlanError
from quail_frames.plan.logical import AskPairs, walk
from tests.sql.test_plans import ASPECTS, LABELS, PAIR, QUERIES, REVIEWS


@pytest.fixture(autouse=True)
def oracle() -> None:
    """Answers from a hash."""
    qf.configure(model="oracle")


@pytest.mark.parametrize("dialect", ["snowflake", "bigquery"])
@pytest.mark.parametrize("name", QUERIES)
def test_sql_of_a_frame_gives_its_rows(name: str, dialect: str) -> None:
    reviews, aspects = qf.lazy(REVIEWS), qf.lazy(ASPECTS)
    frame = QUERIES[name][2](reviews, aspects)
    text = frame.to_sql(dialect=dialect, reviews=reviews, aspects=aspects)  # type: ignore[arg-type]
    back = qf.sql(text, dialect=dialect, reviews=REVIEWS, aspects=ASPECTS)  # type: ignore[arg-type]
    assert back.collect_schema() == frame.collect_schema(), text
    assert_frame_equal(back.collect(), frame.collect(), check_row_order=False)


def test_sql_of_a_chain_of_joins_is_planned_in_the_same_order() -> None:
    reviews, aspects = qf.lazy(REVIEWS), qf.lazy(ASPECTS)
    frame = QUERIES["a chain of three AI joins"][2](reviews, aspects)
    back = qf.sql(frame.to_sql(reviews=reviews, aspects=aspects), reviews=REVIEWS, aspects=ASPECTS)
    asked = [
        [(node.call.wording, node.anchor) for node in walk(each._optimized()) if isinstance(node, AskPairs)]
        for each in (frame, back)
    ]
    assert len(asked[0]) == 3 and asked[0] == asked[1]


def test_clauses_join_into_one_statement() -> None:
    reviews = qf.lazy(REVIEWS)
    frame = (
        reviews.filter(pl.col("stars") > 1, qf.ai_if("Is {review} good?", selectivity=0.25))
        .group_by("movie")
        .agg(n=pl.len(), best=pl.col("stars").max())
        .sort("n", descending=True)
        .head(3)
    )
    assert frame.to_sql(reviews=reviews) == (
        "SELECT movie, COUNT(*) AS n, MAX(stars) AS best\n"
        "FROM reviews\n"
        "WHERE (stars > 1) AND AI_FILTER(PROMPT('Is {0} good?', review), {'selectivity': 0.25})\n"
        "GROUP BY movie\n"
        "ORDER BY n DESC\n"
        "LIMIT 3"
    )
    assert "WHERE (stars > 1) AND AI.IF(('Is ', review, ' good?'), selectivity => 0.25)" in frame.to_sql(
        dialect="bigquery", reviews=reviews
    )


def test_a_step_behind_another_clause_stands_around_a_subquery() -> None:
    frame = qf.lazy(REVIEWS).select("id", "stars").head(3).filter(pl.col("stars") > 1)
    assert frame.to_sql() == ("SELECT *\nFROM (\n  SELECT id, stars\n  FROM t1\n  LIMIT 3\n) AS q1\nWHERE (stars > 1)")


def test_odd_names_and_texts_survive() -> None:
    frame = pl.DataFrame({'odd "name"': ["it's; --", "\\n", "a\nb"], "select": [1, 2, 3]})
    table = qf.lazy(frame)
    kept = table.filter(
        pl.col('odd "name"').is_in(["it's; --", "a\nb"]), qf.ai_if("Is it 'odd' {{here}}?\n{0}", "select") | True
    )
    for dialect in ("snowflake", "bigquery"):
        text = kept.to_sql(dialect=dialect, table=table)  # type: ignore[arg-type]
        assert_frame_equal(qf.sql(text, dialect=dialect, table=frame).collect(), kept.collect())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "frame",
    [
        qf.lazy(REVIEWS).tail(2),
        qf.lazy(REVIEWS).with_columns(pl.col("stars").cum_sum()),
        qf.lazy(REVIEWS).with_columns(pl.col("stars") // 2),
        qf.lazy(REVIEWS).filter(pl.col("stars") > pl.col("stars").mean()),
        qf.lazy(REVIEWS).with_columns(pl.col("review").map_elements(len, return_dtype=pl.Int64)),
        qf.lazy(REVIEWS).ai_classify("review", LABELS, probabilities=True, name="topic").drop("topic"),
        qf.lazy(REVIEWS).ai_join(qf.lazy(ASPECTS), PAIR, anchor="left"),
        qf.lazy(REVIEWS).unique("movie"),
    ],
)
def test_what_sql_cannot_say_is_an_error_with_advice(frame: qf.LazyFrame) -> None:
    try:
        text = frame.to_sql()
    except PlanError as error:
        assert str(error).startswith("SQL cannot say")
    else:
        assert_frame_equal(qf.sql(text, t1=REVIEWS).collect(), frame.collect())


def test_tables_are_named_by_the_lazy_frame_that_the_query_started_from() -> None:
    with pytest.raises(PlanError, match=r"to_sql\(reviews=...\).*DataFrame: write reviews = qf.lazy\(reviews\) first"):
        qf.sql("SELECT * FROM reviews", reviews=REVIEWS).to_sql(reviews=REVIEWS)
