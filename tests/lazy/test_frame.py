"""The planned frame's contracts, one by one."""

from __future__ import annotations

import copy
import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.errors import ColumnError, ContextOverflowError, PlanError
from tests.support.reference_engine import ReferenceEngine

LABELS = ["plot", "acting", "other"]
FRAME = pl.DataFrame(
    {
        "review": ["good", "bad", None, "good", "", "fine"],
        "stars": [5, 1, 3, 5, None, 4],
        "kind": pl.Series(["a", "b", "a", None, "b", "a"], dtype=pl.Categorical),
    }
)
GOOD = "Is {review} good?"


def asked(engine: ReferenceEngine) -> list[str]:
    return sorted(text for _, (text, *_) in engine.asks)


def test_the_part_lazy_is_the_function_lazy() -> None:
    import importlib

    part = importlib.import_module("quail_frames.lazy")
    assert part.frame.LazyFrame is qf.LazyFrame
    assert isinstance(qf.lazy(FRAME), qf.LazyFrame)


# Entries --------------------------------------------------------------------------------


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


# Rows and nulls -------------------------------------------------------------------------


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


# Which rows are asked -------------------------------------------------------------------

CHEAP = pl.col("stars") >= 4
ASK = qf.ai_if(GOOD)
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


# Errors ---------------------------------------------------------------------------------


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


# Polars' methods ------------------------------------------------------------------------

METHODS = {
    "describe": lambda lf: lf.select("stars").describe(),
    "fetch one": lambda lf: lf.first(),
    "top_k": lambda lf: lf.top_k(2, by="stars").select("stars"),
    "cast": lambda lf: lf.cast({"stars": pl.Float64}),
    "fill_null": lambda lf: lf.fill_null(0),
    "shift": lambda lf: lf.shift(1),
    "with_row_index": lambda lf: lf.with_row_index("i"),
    "unpivot": lambda lf: lf.unpivot(on=["stars"], index="review"),
    "unnest": lambda lf: lf.with_columns(s=pl.struct(x="stars")).unnest("s"),
    "map_batches": lambda lf: lf.map_batches(lambda frame: frame.head(2)),
    "sql": lambda lf: lf.sql("select stars from self order by stars"),
    "remove": lambda lf: lf.remove(pl.col("stars") > 3),
    "null_count": lambda lf: lf.null_count(),
    "sum": lambda lf: lf.select("stars").sum(),
    "slice negative": lambda lf: lf.slice(-2, 1),
    "getitem": lambda lf: lf[1:3],
    "pipe": lambda lf: lf.pipe(lambda frame, n: frame.head(n), 2),
    "rename function": lambda lf: lf.rename(str.upper),
    "drop selector": lambda lf: lf.drop(pl.selectors.categorical()),
    "selectors": lambda lf: lf.select(pl.selectors.numeric(), pl.selectors.string().str.to_uppercase()),
    "select lists": lambda lf: lf.select(["review", pl.col("stars")], n=pl.len()),
    "filter mask": lambda lf: lf.filter(pl.Series([True, False] * 3)),
    "join_asof": lambda lf: lf.drop_nulls("stars").sort("stars").join_asof(qf_or_plain(lf), on="stars"),
    "rolling": lambda lf: (
        lf.with_row_index("i").cast({"i": pl.Int64}).rolling("i", period="2i").agg(pl.col("stars").sum())
    ),
    "group len": lambda lf: lf.group_by("kind", maintain_order=True).len(),
    "group head": lambda lf: lf.group_by("kind", maintain_order=True).head(1),
    "group all": lambda lf: lf.group_by("kind", maintain_order=True).agg(
        pl.all().first(), pl.selectors.numeric().sum().name.suffix("_sum")
    ),
}


def qf_or_plain(frame):
    other = pl.LazyFrame({"stars": [1, 4], "y": [1, 2]})
    return other if isinstance(frame, pl.LazyFrame) else qf.lazy(other)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_methods_of_polars_give_what_polars_gives(method, reference: ReferenceEngine) -> None:
    kept = FRAME.filter(ASK)
    planned = method(qf.lazy(FRAME).filter(ASK)) if method is not METHODS["filter mask"] else method(qf.lazy(FRAME))
    plain = method((kept if method is not METHODS["filter mask"] else FRAME).lazy())
    if isinstance(planned, qf.LazyFrame):
        assert planned.collect_schema() == plain.collect_schema()
        planned, plain = planned.collect(), plain.collect()
    assert_frame_equal(planned, plain)


def test_a_planned_frame_goes_back_into_polars(engine: object) -> None:
    query = qf.lazy(FRAME).ai_filter(GOOD).with_columns(s=qf.ai_score(GOOD))
    truth = query.collect()
    plain = query.to_polars()
    assert isinstance(plain, pl.LazyFrame)
    assert plain.collect_schema() == truth.schema
    assert_frame_equal(pl.concat([plain, plain]).collect(), pl.concat([truth, truth]))
    assert_frame_equal(plain.join(plain, on="stars", how="semi").collect(), truth.join(truth, on="stars", how="semi"))
    assert_frame_equal(
        plain.filter(pl.col("s") > 0.2).select("s").head(1).collect(),
        truth.filter(pl.col("s") > 0.2).select("s").head(1),
    )
    first, second = pl.collect_all([plain.select("stars"), plain.select(pl.len())])
    assert_frame_equal(first, truth.select("stars"))
    assert second.item() == truth.height


def test_what_polars_pushes_into_a_planned_frame_joins_the_plan(reference: ReferenceEngine) -> None:
    plain = qf.lazy(FRAME).with_columns(s=qf.ai_score(GOOD), t=qf.ai_classify("review", LABELS)).to_polars()
    plain.filter(CHEAP).select("stars", "s").collect()
    assert asked(reference) == ["fine", "good"]


# Many at once ---------------------------------------------------------------------------


def test_copies_and_threads_agree(engine: object) -> None:
    expr = qf.ai_score(GOOD) > 0.4
    query = qf.lazy(FRAME).ai.filter(GOOD).filter(expr)
    truth = query.collect()
    assert_frame_equal(copy.deepcopy(query).collect(), truth)
    assert_frame_equal(qf.lazy(FRAME).ai.filter(GOOD).filter(copy.deepcopy(expr)).collect(), truth)
    found: list[pl.DataFrame] = []
    threads = [threading.Thread(target=lambda: found.append(query.collect())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(frame.equals(truth) for frame in found)


def test_two_engines_never_mix() -> None:
    expr = qf.ai_score(GOOD)
    with ReferenceEngine("one") as one, ReferenceEngine("two") as two:
        by_one = qf.lazy(FRAME, engine=one).select(expr)
        by_two = qf.lazy(FRAME, engine=two).select(expr)
        first, second = by_one.collect(), by_two.collect()
        assert not first.equals(second)
        assert by_one.collect().equals(first)
        assert by_one.collect(engine=two).equals(second)


SCRIPT = """
import polars as pl, quail_frames as qf
qf.configure("oracle")
frame = pl.DataFrame({"t": [f"text {i}" for i in range(30)], "n": range(30)})
query = frame.lazy().ai_filter("Is {t} one?", selectivity=0.5).filter(pl.col("n") > 3, qf.ai_score("Is {t} two?") > 0.3)
query = query.with_columns(qf.ai_classify("t", ["red", "green", "blue"]))
print(query.explain())
print(query.collect().to_dicts())
"""


@pytest.mark.skipif(not pytest.importorskip("quail_frames.runtime.engine"), reason="needs the runtime")
def test_plans_and_answers_do_not_depend_on_the_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1


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
