"""AI expressions: names, types, checks, and use in plain Polars."""

from __future__ import annotations

import threading
import warnings
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.errors import CallError, ColumnError, QuailFramesWarning
from quail_frames.lazy import unplanned
from tests.support.reference_engine import ReferenceEngine, expected

LABELS = ["plot", "acting", "other"]
REVIEWS = pl.DataFrame({"review": ["good", "bad", None, "good", ""], "stars": [5, 1, 3, 5, None]})
QUESTION = "Is {review} positive?"


def answers(engine: ReferenceEngine, expr: pl.Expr, texts: list[str | None]) -> list:
    from quail_frames.lazy.discovery import substitute_calls

    (found,) = substitute_calls(expr)[1]
    return [None if text is None else expected(engine.identity, found.call, (text,)) for text in texts]


@pytest.mark.parametrize(
    ("expr", "name", "dtype"),
    [
        (qf.ai_if(QUESTION), "review_if", pl.Boolean),
        (qf.ai_score(QUESTION), "review_score", pl.Float64),
        (qf.ai_classify("review", LABELS), "review_label", pl.String),
        (qf.ai_classify("{stars}: {review}", LABELS), "stars_label", pl.String),
        (pl.col("review").ai.if_("Positive?"), "review_if", pl.Boolean),
        (pl.col("review").ai.score("Positive?"), "review_score", pl.Float64),
        (pl.col("review").ai.classify(LABELS), "review_label", pl.String),
        (pl.col("review").str.to_lowercase().ai.if_("Is {0} in {stars}?"), "review_if", pl.Boolean),
        (qf.ai_if(QUESTION).alias("positive"), "positive", pl.Boolean),
        (
            qf.ai_classify("review", LABELS, probabilities=True),
            "review_label",
            pl.Struct({"label": pl.String, "probabilities": pl.Struct({label: pl.Float64 for label in LABELS})}),
        ),
    ],
)
def test_names_and_types(expr: pl.Expr, name: str, dtype: pl.DataType, engine: object) -> None:
    frame = REVIEWS.with_columns(expr)
    assert frame.schema == REVIEWS.schema | {name: dtype}
    assert REVIEWS.lazy().with_columns(expr).collect_schema() == frame.schema
    assert REVIEWS.clear().with_columns(expr).schema == frame.schema


def test_plain_polars_asks_equal_texts_once_and_nulls_never(reference: ReferenceEngine) -> None:
    expr = qf.ai_if(QUESTION)
    out = REVIEWS.select(expr)["review_if"].to_list()
    assert out == answers(reference, expr, REVIEWS["review"].to_list())
    assert sorted(texts for _, texts in reference.asks) == [("",), ("bad",), ("good",)]


def test_an_answer_does_not_depend_on_the_form_of_the_call(reference: ReferenceEngine) -> None:
    out = REVIEWS.select(
        a=qf.ai_classify("review", LABELS), b=pl.col("review").ai.classify(LABELS), c=qf.ai_classify("{review}", LABELS)
    )
    assert out["a"].equals(out["b"])
    assert out["a"].equals(out["c"])


def test_expressions_compose(reference: ReferenceEngine) -> None:
    good, score = qf.ai_if(QUESTION), qf.ai_score(QUESTION)
    truth = REVIEWS.with_columns(good=good, score=score)
    assert_frame_equal(
        REVIEWS.filter(~good & (score > 0.3) | (pl.col("stars") == 5)),
        truth.filter(~pl.col("good") & (pl.col("score") > 0.3) | (pl.col("stars") == 5)).drop("good", "score"),
    )
    assert_frame_equal(
        REVIEWS.select(pl.when(good).then(score).otherwise(-1.0).alias("x")),
        truth.select(pl.when("good").then("score").otherwise(-1.0).alias("x")),
    )


VALUES = {
    "int": [1, None, -3],
    "float": [1.5, None, 0.1],
    "bool": [True, None, False],
    "date": [date(2024, 2, 29), None, date(1, 1, 1)],
    "datetime": [datetime(2024, 2, 29, 12, 30), None, datetime(1999, 1, 1)],
    "time": [time(1, 2, 3), None, time(0)],
    "decimal": [Decimal("1.50"), None, Decimal("0.00")],
    "categorical": pl.Series(["x", None, "y"], dtype=pl.Categorical),
    "enum": pl.Series(["x", None, "y"], dtype=pl.Enum(["x", "y"])),
    "null": pl.Series([None, None, None]),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_values_are_asked_as_polars_casts_them_to_text(values, reference: ReferenceEngine) -> None:
    frame = pl.DataFrame({"v": values})
    frame.select(qf.ai_if("Is {v} good?"))
    texts = frame["v"].cast(pl.String).drop_nulls().unique(maintain_order=True)
    assert [text for _, (text,) in reference.asks] == texts.to_list()


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        (pl.Series([["a"]]), "explode it"),
        (pl.Series([{"a": 1}]), "json_encode"),
        (pl.Series([b"a"]), "decode it"),
        (pl.Series([timedelta(1)]), r"dt\.to_string"),
        (pl.Series([["a"]], dtype=pl.Array(pl.String, 1)), r"arr\.to_list"),
    ],
)
def test_nested_values_are_refused_with_advice(values, advice: str, reference: ReferenceEngine) -> None:
    with pytest.raises(ColumnError, match=advice):
        pl.DataFrame({"v": values}).select(qf.ai_if("Is {v} good?"))


LONG = " ".join(["word"] * 51)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: qf.ai_classify("a", ["x"]), "2 to 255 labels, not 1"),
        (lambda: qf.ai_classify("a", [str(i) for i in range(256)]), "2 to 255 labels, not 256"),
        (lambda: qf.ai_classify("a", ["x", "Y", "y"]), "labels 'Y' and 'y' are the same, ignoring case"),
        (lambda: qf.ai_classify("a", ["x", "x"]), "labels 'x' and 'x' are the same"),
        (lambda: qf.ai_classify("a", ["x", " "]), "label 1 is empty"),
        (lambda: qf.ai_classify("a", ["x", 3]), "label 1 is 3, a int"),
        (lambda: qf.ai_classify("a", "xy"), "labels must be a list"),
        (lambda: qf.ai_classify("a", ["x", "y"], descriptions={"y": LONG}), "description of label 'y' has 51 words"),
        (lambda: qf.ai_classify("a", ["spam", "y"], descriptions={"Spam": "s"}), "did you mean 'spam'?"),
        (lambda: qf.ai_classify("a", ["x", "y"], descriptions=["s"]), "1 descriptions are given for 2 labels"),
        (lambda: qf.ai_classify("a", ["x", "y"], task_description=LONG), "task_description has 51 words, at most 50"),
        (lambda: qf.ai_classify("a", ["x", "y"], scoring="letter"), "did you mean 'letters'?"),
        (lambda: qf.ai_if("{a}?", selectivity=1.2), "not 1.2"),
        (lambda: qf.ai_if("{a}?", selectivity=float("nan")), "not nan"),
        (lambda: qf.ai_if("{a}?", selectivity=True), "not True"),
        (lambda: qf.ai_if("{a}?", layout="question"), "did you mean 'question_first'?"),
        (lambda: qf.ai_if("{a}?", overflow="ignore"), "overflow='ignore' is unknown"),
        (lambda: qf.ai_if("q", pl.col("a", "b")), "several columns"),
        (lambda: qf.ai_if("q", 3), "a column is a name or an expression"),
    ],
)
def test_a_malformed_call_is_refused_by_name(build, message: str) -> None:
    with pytest.raises(CallError) as caught:
        build()
    assert message in str(caught.value)


def test_limits_of_words_and_labels_are_inclusive() -> None:
    words = " ".join(["word"] * 25)
    labels = [f"label {i}" for i in range(255)]
    qf.ai_classify("a", labels, descriptions={"label 7": words}, task_description=f"{words} {words}")


def test_a_plain_lazy_query_warns_once(reference: ReferenceEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unplanned, "_warned", False)
    query = REVIEWS.lazy().filter(qf.ai_if(QUESTION))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        REVIEWS.filter(qf.ai_if(QUESTION))
        assert not caught
        out = query.collect()
        query.collect()
    assert [warning.category for warning in caught] == [QuailFramesWarning]
    assert "qf.lazy(frame)" in str(caught[0].message)
    assert_frame_equal(out, REVIEWS.filter(qf.ai_if(QUESTION)))


def test_threads_share_the_default_engine(reference: ReferenceEngine) -> None:
    expr = qf.ai_score(QUESTION)
    truth = REVIEWS.select(expr)
    found: list[pl.DataFrame] = []
    threads = [threading.Thread(target=lambda: found.append(REVIEWS.select(expr))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(frame.equals(truth) for frame in found)


def test_one_expression_follows_the_engine_in_use() -> None:
    expr = qf.ai_score(QUESTION)
    results = []
    for name in ("one", "two", "one"):
        with ReferenceEngine(name) as engine:
            qf.use_engine(engine)
            results.append(REVIEWS.select(expr)["review_score"].to_list())
            assert results[-1] == answers(engine, expr, REVIEWS["review"].to_list())
    assert results[0] == results[2] != results[1]
