"""Frames one after the other: rows and types are those of `pl.concat`, and what is above goes into each."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.errors import PlanError
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.report import RunReport

OLD = pl.DataFrame({"id": range(30), "text": [f"text {n}" for n in range(30)]})
NEW = pl.DataFrame({"id": range(20, 60), "text": [f"text {n}" for n in range(20, 60)]})


@pytest.fixture
def oracle() -> Any:
    with Engine("oracle") as engine:
        yield engine


def test_a_cheap_predicate_above_spares_questions_in_every_frame(oracle: Engine) -> None:
    report = RunReport()
    both = qf.concat([qf.lazy(OLD).ai_filter("Is {text} good?"), qf.lazy(NEW)]).ai_filter("Is {text} new?")
    found = both.filter(pl.col("id") >= 25).collect(engine=oracle, report=report)
    rest = OLD.filter(pl.col("id") >= 25)
    first = qf.lazy(rest).ai_filter("Is {text} good?").ai_filter("Is {text} new?").collect(engine=oracle)
    second = qf.lazy(NEW.filter(pl.col("id") >= 25)).ai_filter("Is {text} new?").collect(engine=oracle)
    assert_frame_equal(found, pl.concat([first, second]))
    assert report.asks <= rest.height + 35


def test_the_same_question_of_the_same_text_is_asked_once_over_all_frames(oracle: Engine) -> None:
    report = RunReport()
    parts = [qf.lazy(frame).ai_filter("Is {text} good?") for frame in (OLD, NEW)]
    qf.concat(parts).collect(engine=oracle, report=report)
    assert report.asks == 60


def test_the_first_rows_ask_no_further_frame(oracle: Engine) -> None:
    report = RunReport()
    parts = [qf.lazy(OLD), qf.lazy(NEW).ai_filter("Is {text} good?")]
    found = qf.concat(parts).head(30).collect(engine=oracle, report=report)
    assert_frame_equal(found, OLD)
    assert report.asks == 0


def test_types_are_widened_and_a_predicate_then_stays_above(oracle: Engine) -> None:
    halves = NEW.with_columns(pl.col("id") / 8)
    whole = qf.lazy(OLD).ai_filter("Is {text} good?")
    found = qf.concat([whole, qf.lazy(halves)], how="vertical_relaxed").filter(pl.col("id") / 2 > 3.2)
    kept = whole.collect(engine=oracle)
    plain = pl.concat([kept, halves], how="vertical_relaxed").filter(pl.col("id") / 2 > 3.2)
    assert_frame_equal(found.collect(engine=oracle), plain)
    assert found.schema == plain.schema


def test_many_frames_are_one_step_with_a_row_count(oracle: Engine) -> None:
    frames = [qf.lazy(OLD.slice(n, 1)) for n in range(30)]
    query = qf.concat(frames).ai_filter("Is {text} good?")
    assert_frame_equal(query.collect(engine=oracle), qf.lazy(OLD).ai_filter("Is {text} good?").collect(engine=oracle))
    assert query.explain().count("then, below these, the rows of") == 2
    assert "about 30 rows in" in query.explain() and len(query.show_graph().svg) > 1000


def test_decisions_inside_a_frame_are_told_by_its_steps() -> None:
    asked = qf.lazy(NEW).ai_filter("Is {text} good?").ai_filter("Is {text} new?")
    assert "step 2, its step 2, order of questions" in qf.concat([qf.lazy(OLD), asked]).explain()


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        ([], {}, "concat of no frame"),
        ([OLD, NEW.rename({"id": "key"})], {}, r"frame 2 of concat has the columns \['key', 'text'\]"),
        ([OLD, NEW.select("text", "id")], {}, "same columns in the same order"),
        ([OLD, NEW.cast({"id": pl.Float64})], {}, "do not go together"),
        ([OLD, NEW.with_columns(id=pl.col("text"))], {"how": "vertical"}, "cast them first"),
        ([OLD], {"how": "diagonal"}, "how='diagonal' of concat: choose 'vertical'"),
    ],
)
def test_frames_that_do_not_fit_are_refused_by_number(frames: Any, options: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        qf.concat(frames, **options)


def test_frames_of_two_engines_are_refused(oracle: Engine) -> None:
    with Engine("oracle") as other, pytest.raises(PlanError, match="different engines"):
        qf.concat([qf.lazy(OLD, engine=oracle), qf.lazy(NEW, engine=other)])


def test_sql_says_union_all_and_reads_it_back(oracle: Engine) -> None:
    frames = {"old": qf.lazy(OLD), "new": qf.lazy(NEW)}
    parts = [frames["old"].ai_filter("Is {text} good?"), frames["new"].sort("id").head(3)]
    query = qf.concat(parts).filter(pl.col("id") > 5)
    text = query.to_sql(**frames)
    assert "UNION ALL" in text
    assert_frame_equal(qf.sql(text, **frames).collect(engine=oracle), query.collect(engine=oracle))
