"""How many questions a query asks where AI predicates move through joins, sorts and groups; its rows stay the same."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.report import RunReport
from tests.support.reference_engine import ReferenceEngine

LETTERS = pl.DataFrame({"k": [n % 10 for n in range(40)], "text": [f"text {n}" for n in range(40)]})
TERMS = pl.DataFrame({"k": range(10), "term": [f"term {n}" for n in range(10)]})
FEW = pl.DataFrame({"k": [1, 2], "weight": [0.5, 0.25]})
MENTIONS = "Does {text} mention {term}?"
KIND = qf.ai_if("Is {text} kind?")
SHORT = qf.ai_if("Is {term} short?")
TOPIC = qf.ai_classify("text", ["red", "green", "blue"])


def asked(engine: ReferenceEngine, *columns: str) -> int:
    """Questions about just these columns."""
    return sum(call.columns == columns for call, _ in engine.asks)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_rows_that_fail_a_filter_are_not_paired(how: str, reference: ReferenceEngine) -> None:
    joined = qf.lazy(LETTERS).ai_join(TERMS, MENTIONS, how=how, anchor="left")
    found = joined.filter(KIND).collect()
    kind = LETTERS.filter(KIND).height
    assert asked(reference, "text") == 2 * 40, "forty in the query, forty just now"
    assert 0 < kind < 40 and asked(reference, "text", "term") <= kind * 10
    assert_frame_equal(found, joined.collect().filter(KIND))


def test_partners_that_fail_a_filter_are_not_paired(reference: ReferenceEngine) -> None:
    joined = qf.lazy(LETTERS).ai_join(TERMS, MENTIONS, anchor="left")
    found = joined.filter(SHORT, KIND).collect()
    both = LETTERS.filter(KIND).height * TERMS.filter(SHORT).height
    assert asked(reference, "text", "term") == both
    assert_frame_equal(found, joined.collect().filter(SHORT, KIND))


def test_rows_of_another_label_are_not_paired(reference: ReferenceEngine) -> None:
    joined = qf.lazy(LETTERS).with_columns(topic=TOPIC).ai_join(TERMS, MENTIONS, anchor="left")
    found = joined.filter(pl.col("topic").is_in(["red", "blue"])).collect()
    chosen = LETTERS.filter(TOPIC.is_in(["red", "blue"])).height
    assert asked(reference, "text", "term") == chosen * 10 and 0 < chosen < 40
    assert set(found["topic"]) <= {"red", "blue"}


@pytest.mark.parametrize("how", ["semi", "anti", "inner"])
def test_rows_that_a_join_removes_are_not_asked_about(how: str, reference: ReferenceEngine) -> None:
    few = qf.lazy(FEW).filter(pl.col("weight") > 0.3)
    matching = sum(LETTERS["k"] == 1)
    kept = qf.lazy(LETTERS).filter(KIND).join(few, on="k", how=how).collect()  # type: ignore[arg-type]
    expected = 40 - matching if how == "anti" else matching
    assert asked(reference, "text") == expected
    reference.asks.clear()
    labelled = qf.lazy(LETTERS).with_columns(topic=TOPIC).join(few, on="k", how=how).collect()  # type: ignore[arg-type]
    assert len(reference.asks) == expected
    plain = LETTERS.join(FEW.filter(pl.col("weight") > 0.3), on="k", how=how)  # type: ignore[arg-type]
    assert_frame_equal(kept, plain.filter(KIND), check_row_order=False)
    assert labelled.columns == [*LETTERS.columns, "topic", *(["weight"] if how == "inner" else [])]


@pytest.mark.parametrize("by", ["sort", "top_k"])
def test_the_first_rows_of_a_sort_end_the_asking(by: str) -> None:
    rows = pl.DataFrame({"n": range(500), "text": [f"text {n}" for n in range(500)]})
    with Engine("oracle", token_budget=400) as engine:
        query = qf.lazy(rows, engine=engine).filter(KIND)
        query = query.sort("n", descending=True).head(3) if by == "sort" else query.top_k(3, by="n")
        report = RunReport()
        found = query.collect(report=report)
        truth = qf.lazy(rows, engine=engine).filter(KIND).collect().tail(3)
    assert_frame_equal(found, truth.reverse())
    assert report.asks < 100


def test_a_question_about_a_groups_key_joins_the_one_about_its_rows(reference: ReferenceEngine) -> None:
    doubled = pl.concat([LETTERS, LETTERS])
    groups = qf.lazy(doubled).filter(KIND).group_by("text", maintain_order=True).agg(pl.len())
    late = qf.ai_if("Is {text} late?", selectivity=0.5)
    found = groups.filter(late).collect()
    kind = LETTERS.filter(KIND & late)
    assert found["text"].to_list() == kind["text"].to_list() and found["len"].to_list() == [2] * kind.height
    assert "keep rows where" in groups.filter(late).explain()


def test_distinct_inputs_are_asked_once_wherever_rows_are_repeated(reference: ReferenceEngine) -> None:
    many = qf.lazy(LETTERS.select("k")).join(TERMS.lazy(), on="k").filter(SHORT)
    with Engine("oracle") as engine:
        report = RunReport()
        many.collect(engine=engine, report=report)
    assert (report.asks, report.answers) == (10, 40)
