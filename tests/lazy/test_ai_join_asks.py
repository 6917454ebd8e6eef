"""Which pairs an AI join asks about, and what is carried along."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.errors import ContextOverflowError
from quail_frames.lazy.candidates import Cutter
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.report import RunReport
from tests.lazy.joins import HOWS, LETTERS, MENTIONS, TERMS
from tests.support.reference_engine import ReferenceEngine


def test_keys_and_predicates_cut_the_pairs_before_the_model(reference: ReferenceEngine) -> None:
    LETTERS.ai_join(TERMS, MENTIONS, on="k")
    assert len(reference.asks) == 40
    reference.asks.clear()
    LETTERS.ai_join(TERMS, MENTIONS, where=pl.col("k") < pl.col("k_right"), anchor="right")
    assert len(reference.asks) == 4 * 45


@pytest.mark.parametrize("where", [pl.col("n") == pl.col("m"), pl.col("m").eq(pl.col("n")) & (pl.col("m") >= 0)])
def test_values_that_must_be_equal_are_looked_up_and_not_tried_on_every_pair(where: pl.Expr) -> None:
    rows = 2000  # 4 million pairs: 16 tables of candidates where every pair is tried
    left = pl.DataFrame({"n": range(rows), "text": "a"})
    right = pl.DataFrame({"m": range(rows), "term": "b"})
    joined = qf.lazy(left).ai_join(right, MENTIONS, where=where)
    (batch,) = Cutter(joined._plan, "left", left, right).batches(left)
    assert batch.candidates.rows(5).tolist() == [5]


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_row_is_asked_no_further_than_its_first_true(how: str, reference: ReferenceEngine) -> None:
    kept = LETTERS.ai_join(TERMS, MENTIONS, how=how).height
    assert len(reference.asks) < 40 * 4
    assert kept + LETTERS.ai_join(TERMS, MENTIONS, how="anti" if how == "semi" else "semi").height == 40


def test_equal_pairs_are_asked_once(engine: Any) -> None:
    report = RunReport()
    same = qf.lazy(pl.concat([LETTERS, LETTERS])).ai_join(pl.concat([TERMS, TERMS]), MENTIONS, anchor="left")
    assert same.select(pl.len()).collect(report=report).item() % 4 == 0
    if isinstance(engine, Engine):
        assert report.asks == 400


def test_filters_on_one_side_are_applied_before_the_join(reference: ReferenceEngine) -> None:
    joined = qf.lazy(LETTERS).ai_join(TERMS, MENTIONS, anchor="left")
    out = joined.filter(pl.col("k") < 2, pl.col("term") != "term 3").collect()
    assert len(reference.asks) == 8 * 9
    assert_frame_equal(out, joined.collect().filter(pl.col("k") < 2, pl.col("term") != "term 3"))


@pytest.mark.parametrize("how", HOWS)
def test_filters_above_any_kind_of_join_change_no_row(how: str, reference: ReferenceEngine) -> None:
    joined = qf.lazy(LETTERS).ai_join(TERMS, MENTIONS, how=how, on="k")
    predicates = [pl.col("k") < 5] + ([pl.col("term").is_null() | (pl.col("term") > "term 2")] if how == "left" else [])
    assert_frame_equal(joined.filter(*predicates).collect(), joined.collect().filter(*predicates))


def test_head_stops_the_asking() -> None:
    with Engine("oracle", token_budget=400) as engine:
        report = RunReport()
        many = pl.LazyFrame({"text": [f"text {n}" for n in range(5000)]})
        query = qf.lazy(many, engine=engine).ai_join(TERMS, MENTIONS, anchor="left")
        assert query.head(3).collect(report=report).height == 3
        assert report.asks < 500
        assert engine.memory.contexts.pool.free == engine.memory.pages


def test_only_columns_that_somebody_reads_are_carried(reference: ReferenceEngine) -> None:
    joined = qf.lazy(LETTERS).ai_join(TERMS, MENTIONS)
    out = joined.collect()
    for names in (["term"], ["k_right"], ["k"], ["k_right", "text"]):
        assert_frame_equal(joined.select(names).collect(), out.select(names))
    assert joined.select(pl.len()).collect().item() == out.height
    assert_frame_equal(joined.to_polars().select("term").collect(), out.select("term"))


# Entries, empty sides -------------------------------------------------------------------


def test_every_entry_gives_the_same(engine: object) -> None:
    truth = qf.lazy(LETTERS).ai_join(TERMS, MENTIONS, on="k").collect()
    assert_frame_equal(LETTERS.ai_join(TERMS, MENTIONS, on="k"), truth)
    assert_frame_equal(LETTERS.ai.join(TERMS.lazy(), MENTIONS, on="k"), truth)
    assert_frame_equal(LETTERS.lazy().ai_join(qf.lazy(TERMS), MENTIONS, on="k").collect(), truth)
    assert_frame_equal(LETTERS.lazy().ai.join(TERMS.lazy(), MENTIONS, left_on="k", right_on="k").collect(), truth)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("anchor", ["left", "right", "auto"])
@pytest.mark.parametrize("empty", ["left", "right", "both"])
def test_an_empty_side_needs_no_engine(how: str, anchor: str, empty: str) -> None:
    qf.configure("no such model")
    left = LETTERS.clear() if empty != "right" else LETTERS
    right = TERMS.clear() if empty != "left" else TERMS
    query = qf.lazy(left).ai_join(right, MENTIONS, how=how, anchor=anchor)
    out = query.collect()
    assert out.schema == query.collect_schema() == (LETTERS.schema if how in ("semi", "anti") else out.schema)
    assert out.height == (left.height if how in ("left", "anti") else 0)


# Errors, ends ---------------------------------------------------------------------------


@pytest.mark.parametrize("close", [True, False])
def test_a_query_that_is_cancelled_or_fails_frees_its_memory(close: bool) -> None:
    texts = [f"text {n}" for n in range(400)] + ["x" * 400]
    with Engine("oracle", token_budget=400, max_length=300) as engine:
        left = qf.lazy(pl.DataFrame({"text": texts, "k": range(401)}), engine=engine)
        joined = left.ai_filter("Is {k} even?").ai_filter("Is {text} kind?", overflow="truncate")
        query = joined.ai_join(TERMS, MENTIONS, anchor="left").ai_score("Is {term} in {text}?")
        if close:
            pieces = query.collect_batches()
            next(pieces)
            pieces.close()
        else:
            with pytest.raises(ContextOverflowError) as caught:
                qf.lazy(pl.DataFrame({"text": texts[::-1]}), engine=engine).ai_join(TERMS, MENTIONS).collect()
            assert caught.value.partial.columns == ["text", "k", "term"]
        assert engine.memory.contexts.pool.free == engine.memory.pages
