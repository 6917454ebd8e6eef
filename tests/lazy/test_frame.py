"""The planned frame: its entries, its explanation, and how it goes in and out of Polars."""

from __future__ import annotations

import inspect
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from tests.lazy.samples import CHEAP, FRAME, GOOD, LABELS


def test_the_part_lazy_is_the_function_lazy() -> None:
    import importlib

    part = importlib.import_module("quail_frames.lazy")
    assert part.frame.LazyFrame is qf.LazyFrame
    assert isinstance(qf.lazy(FRAME), qf.LazyFrame)


def test_every_entry_gives_the_same(engine: object) -> None:
    truth = qf.lazy(FRAME).ai_filter(GOOD).collect()
    assert_frame_equal(FRAME.filter(qf.ai_if(GOOD)), truth)
    for frame in (FRAME.lazy(), qf.lazy(FRAME), qf.lazy(FRAME.lazy())):
        assert_frame_equal(frame.ai_filter(GOOD).collect(), truth)
        assert_frame_equal(frame.ai.filter(GOOD).collect(), truth)
        assert_frame_equal(
            frame.ai.filter("Is it good?", "review").collect(), frame.ai_filter("Is it good?", "review").collect()
        )
    for eager in (FRAME.ai_filter(GOOD), FRAME.ai.filter(GOOD)):
        assert isinstance(eager, pl.DataFrame)
        assert_frame_equal(eager, truth)


def test_verbs_name_their_columns(engine: object) -> None:
    frame = FRAME.lazy().ai_classify("review", LABELS).ai_score(GOOD).ai_classify("review", LABELS, name="topic")
    assert frame.collect_schema().names() == ["review", "stars", "kind", "review_label", "review_score", "topic"]
    assert frame.collect().schema == frame.collect_schema()


def test_probabilities_are_a_second_column(engine: object) -> None:
    out = FRAME.ai_classify("review", LABELS, name="topic", probabilities=True)
    assert out.schema["topic"] == pl.String
    assert out.schema["topic_probabilities"] == pl.Struct({label: pl.Float64 for label in LABELS})
    sums = out.filter(pl.col("review").is_not_null()).select(
        pl.sum_horizontal(pl.col("topic_probabilities").struct.field(label) for label in LABELS)
    )
    assert all(abs(total - 1) < 1e-9 for (total,) in sums.iter_rows())
    assert out["topic"].to_list()[2] is None


def options_of(function: Any) -> dict[str, inspect.Parameter]:
    found = inspect.signature(function).parameters.items()
    return {name: option for name, option in found if option.kind is option.KEYWORD_ONLY and name != "name"}


@pytest.mark.parametrize(("expression", "verb", "method"), [
    (qf.ai_if, "filter", "if_"), (qf.ai_score, "score", "score"), (qf.ai_classify, "classify", "classify"),
], ids=["if", "score", "classify"])  # fmt: skip
def test_verbs_and_methods_have_the_options_of_their_expression(expression: Any, verb: str, method: str) -> None:
    wanted = options_of(expression)
    assert {"selectivity", "layout", "overflow"} <= wanted.keys()
    planned, eager = getattr(qf.LazyFrame, f"ai_{verb}"), getattr(FRAME, f"ai_{verb}")
    for other in (planned, eager, getattr(qf.lazy(FRAME).ai, verb), getattr(pl.col("review").ai, method)):
        assert options_of(other) == wanted
    assert eager.__doc__ == planned.__doc__ and expression.__name__ in planned.__doc__


def test_explain_reads_from_the_source_to_the_result() -> None:
    query = (
        qf.lazy(FRAME)
        .ai_filter(GOOD, selectivity=0.25)
        .filter(CHEAP)
        .with_columns(topic=qf.ai_classify("review", LABELS))
    )
    assert query.explain(numbers=False) == EXPLAINED


def test_explain_shows_questions_wherever_they_stand() -> None:
    query = qf.lazy(FRAME).sort(qf.ai_score(GOOD), "stars", descending=True).group_by("kind").agg(qf.ai_if(GOOD).sum())
    text = query.explain()
    assert 'sort(review_score = ai_score("Is {review} good?"), col("stars"), descending=True)' in text
    assert 'ai_if("Is {review} good?").sum()' in text
    assert "quail-frames answer" not in text


EXPLAINED = """\
As written
  1. read frame of 6 rows
  2. keep rows where
       ai_if("Is {review} good?")
  3. keep rows where
       (col("stars") >= 4)
  4. add columns
       topic = ai_classify("{review}", ['plot', 'acting', 'other'])

As planned
  1. read frame of 6 rows
  2. keep rows where
       (col("stars") >= 4)
  3. ask the model about each row, in this order, only as far as a row's fate is open:
       a) ai_if("Is {review} good?")
       b) ai_classify("{review}", ['plot', 'acting', 'other']), answer kept
       keep rows where ai_if("Is {review} good?") (about 25%)
  4. add columns
       topic = ai_classify("{review}", ['plot', 'acting', 'other'])
  5. keep columns review, stars, kind, topic"""
