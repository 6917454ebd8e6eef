"""Expressions that do not fit a frame, and texts that do not fit a model."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.errors import ColumnError, ContextOverflowError, PlanError
from tests.lazy.samples import ASK, FRAME, GOOD
from tests.support.reference_engine import ReferenceEngine


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda lf: lf.filter(qf.ai_if("Is {reviews} good?")),
            ColumnError,
            "'reviews', which the frame does not have; did you mean 'review'?",
        ),
        (lambda lf: lf.ai_filter("Good?", "Review"), ColumnError, "did you mean 'review'?"),
        (lambda lf: lf.select("stars").ai_filter(GOOD), ColumnError, "valid names: 'stars'"),
        (
            lambda lf: lf.with_columns(l=pl.col("review").str.split(" ")).ai_filter("Is {l} good?"),
            ColumnError,
            "explode it",
        ),
        (lambda lf: lf.with_columns(s=pl.struct("stars")).ai_filter("Is {s} good?"), ColumnError, "json_encode"),
        (lambda lf: lf.join(lf, left_on=ASK, right_on=ASK), PlanError, "a join key holds an AI call"),
        (lambda lf: lf.nothing(), AttributeError, "nothing"),
    ],
)
def test_an_expression_that_does_not_fit_the_frame_is_refused_when_they_meet(build, error, message: str) -> None:
    with pytest.raises(error) as caught:
        build(qf.lazy(FRAME))
    assert message in str(caught.value)


def test_polars_own_errors_stay_its_own() -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        qf.lazy(FRAME).filter(pl.col("nope") > 1).collect()


LONG = pl.DataFrame({"t": ["a", "b", "far too long", "c"]})


def test_a_text_that_is_too_long_is_an_error_that_keeps_the_rows_before_it(tmp_path: Path) -> None:
    with ReferenceEngine(limit=5) as engine:
        query = qf.lazy(LONG, engine=engine).with_columns(s=qf.ai_score("Is {t} good?"), n=pl.col("t").str.len_chars())
        truth = qf.lazy(LONG.head(2), engine=engine).with_columns(
            s=qf.ai_score("Is {t} good?"), n=pl.col("t").str.len_chars()
        )
        with pytest.raises(ContextOverflowError) as caught:
            query.collect()
        assert caught.value.row == 2
        assert_frame_equal(caught.value.partial, truth.collect().head(caught.value.partial.height))
        assert caught.value.partial.schema == query.collect_schema()
        with pytest.raises(ContextOverflowError) as caught:
            query.sort("t", descending=True).collect()
        assert caught.value.partial.schema == query.collect_schema()
        with pytest.raises(ContextOverflowError) as caught:
            query.sink_parquet(tmp_path / "out.parquet")
        assert not (tmp_path / "out.parquet").exists()
        assert caught.value.partial.collect_schema() == query.collect_schema()


def test_the_runtime_keeps_the_rows_before_a_text_that_is_too_long() -> None:
    frame = pl.DataFrame({"t": ["short", "also short", "word " * 500, "never asked"], "n": [1, 2, 3, 4]})
    with qf.Engine("oracle", max_length=256) as engine:
        query = qf.lazy(frame, engine=engine).ai_score("Is {t} good?")
        with pytest.raises(ContextOverflowError) as caught:
            query.collect()
        assert caught.value.row == 2
        assert_frame_equal(
            caught.value.partial, qf.lazy(frame.head(2), engine=engine).ai_score("Is {t} good?").collect()
        )
        kept = qf.lazy(frame, engine=engine).ai_score("Is {t} good?", overflow="null").collect()
        assert kept["t_score"].is_null().to_list() == [False, False, True, False]


@pytest.mark.parametrize(("overflow", "answered"), [("null", [True, True, False, True]), ("truncate", [True] * 4)])
def test_other_overflow_policies_go_on(overflow: str, answered: list[bool]) -> None:
    with ReferenceEngine(limit=5) as engine:
        out = qf.lazy(LONG, engine=engine).ai_score("Is {t} good?", overflow=overflow).collect()
    assert out["t_score"].is_not_null().to_list() == answered
