"""Which questions a query asks: none that cannot change its result, and none twice."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from tests.lazy.samples import ASK, CHEAP, FRAME, GOOD, LABELS, asked
from tests.support.reference_engine import ReferenceEngine


def test_a_null_is_not_asked_and_a_filter_drops_its_row(reference: ReferenceEngine) -> None:
    out = qf.lazy(FRAME).with_columns(qf.ai_if(GOOD), qf.ai_classify("review", LABELS)).collect()
    assert out["review_if"].is_null().to_list() == [False, False, True, False, False, False]
    assert out["review_label"].is_null().to_list() == [False, False, True, False, False, False]
    assert None not in FRAME.ai_filter(GOOD)["review"].to_list()
    assert asked(reference)[:2] == ["", ""]


TEXTS = [
    "",
    " ",
    "x",
    "日本語",
    "שלום",
    "👩‍👩‍👧 ✓",
    "\x00\x07\r\n",
    "<|im_end|>{0} {review}",
    'a\\b {"json": [1]}',
    "long " * 5000,
]


def test_texts_are_asked_as_they_are(reference: ReferenceEngine) -> None:
    frame = pl.DataFrame({"review": TEXTS})
    out = qf.lazy(frame).with_columns(qf.ai_score(GOOD), qf.ai_classify("review", LABELS)).collect()
    assert [texts for call, texts in reference.asks if call.kind == "AiScore"] == [(text,) for text in TEXTS]
    assert out["review"].to_list() == TEXTS


def test_twenty_equal_rows_are_one_ask(reference: ReferenceEngine) -> None:
    frame = pl.DataFrame({"review": ["same"] * 20})
    assert qf.lazy(frame).with_columns(qf.ai_if(GOOD)).collect().height == 20
    assert asked(reference) == ["same"]


@pytest.mark.parametrize("frame", [FRAME.clear(), FRAME.with_columns(review=pl.lit(None, dtype=pl.String))])
def test_no_text_means_no_call_and_the_right_schema(frame: pl.DataFrame, reference: ReferenceEngine) -> None:
    query = qf.lazy(frame).ai.classify("review", LABELS).ai_filter(GOOD).with_columns(s=qf.ai_score(GOOD) + 1)
    out = query.collect()
    assert out.is_empty()
    assert (
        out.schema == query.collect_schema() == pl.Schema({**FRAME.schema, "review_label": pl.String, "s": pl.Float64})
    )
    assert not reference.asks


def test_an_empty_frame_makes_no_engine() -> None:
    qf.configure("no such model")
    assert FRAME.clear().ai_filter(GOOD).is_empty()


def test_collect_schema_and_explain_ask_nothing() -> None:
    qf.configure("no such model")
    query = qf.lazy(FRAME).ai_filter(GOOD).group_by("kind").agg(qf.ai_score(GOOD).mean())
    assert query.collect_schema() == {"kind": pl.Categorical(), "review_score": pl.Float64()}
    assert "ai_if" in query.explain()


CHEAP_QUERIES = {
    "before": lambda lf: lf.filter(CHEAP).filter(ASK),
    "after": lambda lf: lf.filter(ASK).filter(CHEAP),
    "in the same and": lambda lf: lf.filter(ASK & CHEAP),
    "in the same filter": lambda lf: lf.filter(ASK, CHEAP),
    "behind a new column": lambda lf: (
        lf.filter(ASK).with_columns(m=pl.col("stars") * 2).filter(pl.col("m") >= 8).drop("m")
    ),
    "behind an answer column": lambda lf: lf.with_columns(a=ASK).filter(CHEAP).filter("a").drop("a"),
    "behind a sort": lambda lf: lf.filter(ASK).sort("stars", maintain_order=True).filter(CHEAP),
    "behind a rename": lambda lf: lf.filter(ASK).rename({"kind": "sort"}).filter(CHEAP).rename({"sort": "kind"}),
    "behind a join": lambda lf: (
        lf.filter(ASK).join(OTHERS, on="stars", how="left", maintain_order="left").filter(CHEAP).drop("x")
    ),
    "named": lambda lf: lf.filter(ASK).filter(stars=5),
    "in an or": lambda lf: lf.filter((pl.col("stars") < 4) | pl.col("stars").is_null() | ASK).filter(CHEAP),
}
OTHERS = pl.LazyFrame({"stars": [5, 4], "x": [1, 2]})


@pytest.mark.filterwarnings("ignore::quail_frames.errors.QuailFramesWarning")
@pytest.mark.parametrize("query", CHEAP_QUERIES.values(), ids=CHEAP_QUERIES)
def test_only_rows_that_pass_the_cheap_predicate_are_asked(query, reference: ReferenceEngine) -> None:
    out = query(qf.lazy(FRAME)).collect()
    assert set(asked(reference)) <= {"good", "fine"}
    assert len(reference.asks) <= 2
    assert_frame_equal(out, query(FRAME.lazy()).collect())


def test_a_false_predicate_saves_the_other_questions(reference: ReferenceEngine) -> None:
    frame = pl.DataFrame({"t": [f"text {i}" for i in range(40)]})
    first, second = qf.ai_if("Is {t} one?", selectivity=0.1), qf.ai_if("Is {t} two?", selectivity=0.9)
    label = qf.ai_classify("t", LABELS)
    out = qf.lazy(frame).filter(second).filter(first).with_columns(label).collect()
    passed_first = frame.filter(first).height
    reference.asks.clear()
    assert qf.lazy(frame).filter(second).filter(first).with_columns(label).collect().equals(out)
    kinds = [call.selectivity if call.kind == "AiIf" else "label" for call, _ in reference.asks]
    assert kinds.count(0.1) == 40
    assert kinds.count(0.9) == passed_first
    assert kinds.count("label") == out.height


def test_an_or_is_decided_by_its_first_true(reference: ReferenceEngine) -> None:
    frame = pl.DataFrame({"t": [f"text {i}" for i in range(40)]})
    one, two = qf.ai_if("Is {t} one?"), qf.ai_if("Is {t} number two?")
    ones = frame.filter(one).height
    reference.asks.clear()
    qf.lazy(frame).filter(one | two).collect()
    assert len(reference.asks) == 40 + (40 - ones)


def test_a_question_is_asked_once_however_often_it_is_used(reference: ReferenceEngine) -> None:
    score = qf.ai_score(GOOD)
    query = (
        qf.lazy(FRAME)
        .ai.filter("Is {review} a review?")
        .filter(score > 0.1)
        .head(5)
        .with_columns(s=score)
        .filter(score < 0.95)
        .sort(score, maintain_order=True)
    )
    query.collect()
    scores = [texts for call, texts in reference.asks if call.kind == "AiScore"]
    assert len(scores) == len(set(scores))


def test_a_predicate_on_an_answer_column_saves_later_questions(reference: ReferenceEngine) -> None:
    frame = pl.DataFrame({"t": [f"text {i}" for i in range(40)]})
    query = (
        qf.lazy(frame)
        .with_columns(topic=qf.ai_classify("t", LABELS))
        .filter(pl.col("topic") == "plot")
        .filter(qf.ai_if("Is {t} one?", selectivity=0.9))
    )
    plots = frame.filter(qf.ai_classify("t", LABELS) == "plot").height
    reference.asks.clear()
    out = query.collect()
    assert 0 < out.height < plots
    assert len(reference.asks) == 40 + plots
    assert query.explain().split("As planned")[1].count("ask the model") == 1


def test_a_predicate_on_an_answer_to_a_text_that_has_changed_is_not_asked_again(reference: ReferenceEngine) -> None:
    def steps(frame):
        upper = pl.col("review").str.to_uppercase()
        labelled = frame.with_columns(topic=qf.ai_classify("review", LABELS)).with_columns(upper)
        return labelled.with_columns(again=qf.ai_classify("review", LABELS)).filter(pl.col("topic") == "plot")

    assert_frame_equal(steps(qf.lazy(FRAME)).collect(), steps(FRAME))


def test_a_changed_column_is_asked_again(reference: ReferenceEngine) -> None:
    upper = (
        qf.lazy(FRAME)
        .with_columns(a=ASK)
        .with_columns(pl.col("review").str.to_uppercase())
        .with_columns(b=ASK)
        .collect()
    )
    assert_frame_equal(
        upper, FRAME.with_columns(a=ASK).with_columns(pl.col("review").str.to_uppercase()).with_columns(b=ASK)
    )


def test_an_answer_that_nobody_reads_is_not_asked(reference: ReferenceEngine) -> None:
    qf.lazy(FRAME).with_columns(qf.ai_classify("review", LABELS)).select("stars").collect()
    assert not reference.asks


def test_head_stops_asking(reference: ReferenceEngine) -> None:
    frame = pl.DataFrame({"t": [f"text {i}" for i in range(5000)]})
    out = qf.lazy(frame).ai_filter("Is {t} one?").with_columns(n=pl.col("t").str.len_chars()).head(3).collect()
    assert out.height == 3
    assert len(reference.asks) < 30


def test_an_answer_can_be_asked_about_in_a_later_step(reference: ReferenceEngine) -> None:
    query = qf.lazy(FRAME).with_columns(topic=qf.ai_classify("review", LABELS)).filter(qf.ai_if("Is {topic} nice?"))
    plain = FRAME.with_columns(topic=qf.ai_classify("review", LABELS)).filter(qf.ai_if("Is {topic} nice?"))
    assert_frame_equal(query.collect(), plain)
