"""Malformed calls: whatever is wrong is named when the expression is built, not when the model is asked."""

from __future__ import annotations

import pickle
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.errors import CallError, ContextOverflowError, PlanError, SqlError

HALF = "half \ud800 of a pair"
LABELS = ["a", "b"]


@pytest.mark.parametrize(
    "build",
    [
        lambda: qf.ai_if("{x} " + HALF),
        lambda: qf.ai_classify("x", ["a", HALF]),
        lambda: qf.ai_classify("x", LABELS, descriptions=[None, HALF]),
        lambda: qf.ai_classify("x", LABELS, task_description=HALF),
    ],
)
def test_half_a_surrogate_pair_is_refused_in_everything_the_author_writes(build: Any) -> None:
    with pytest.raises(CallError, match=r"lone surrogate \(U\+D800\)"):
        build()


@pytest.mark.parametrize("descriptions", [5, "ab", b"ab", {"one", "two"}, iter(["one", "two"])], ids=repr)
def test_descriptions_are_a_dict_or_a_list(descriptions: Any) -> None:
    with pytest.raises(CallError, match="descriptions are a dict by label or a list"):
        qf.ai_classify("x", LABELS, descriptions=descriptions)


def test_a_description_of_something_that_is_no_text_is_named() -> None:
    with pytest.raises(CallError, match=r"given for 1, which is not a label; valid names: 'a', 'b'"):
        qf.ai_classify("x", LABELS, descriptions={1: "one"})  # type: ignore[dict-item]


@pytest.mark.parametrize("labels", [["caf\u00e9", "cafe\u0301"], ["CAFE\u0301", "caf\u00e9"], [" a", "A "]], ids=ascii)
def test_labels_that_read_the_same_are_the_same(labels: list[str]) -> None:
    with pytest.raises(CallError, match="are the same, ignoring case"):
        qf.ai_classify("x", labels)


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), np.int64(1), 1, 0])
def test_a_selectivity_may_be_any_real_number(value: Any) -> None:
    assert qf.ai_if("{x}?", selectivity=value).meta.output_name() == "x_if"


@pytest.mark.parametrize("value", [np.float32("nan"), float("inf"), True, np.True_, "0.5", 0.5j])
def test_other_selectivities_are_refused(value: Any) -> None:
    with pytest.raises(CallError, match="selectivity is the share"):
        qf.ai_if("{x}?", selectivity=value)


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_probabilities_are_wanted_or_not(value: Any) -> None:
    with pytest.raises(CallError, match="neither True nor False"):
        qf.ai_classify("x", LABELS, probabilities=value)


@pytest.mark.skipif('"Column"' in pl.element().meta.serialize(format="json"), reason="the name stands for an element")
def test_a_column_without_a_name_is_a_column(engine: object) -> None:
    frame = pl.DataFrame({"": ["a", "b", None]})
    expr = qf.ai_score('Is {""} good?')
    assert_frame_equal(qf.lazy(frame).select(expr).collect(), frame.select(expr))


def test_a_deeply_nested_expression_says_that_it_is_too_deep() -> None:
    label = qf.ai_classify("x", LABELS)
    long = reduce(or_, [label == f"label {number}" for number in range(100)])
    with pytest.raises(PlanError, match="nested too deeply"):
        qf.lazy(pl.DataFrame({"x": ["a"]})).filter(long)


@pytest.mark.parametrize(
    "error",
    [CallError("x"), SqlError([(1, 2, "a"), (3, 4, "b")]), ContextOverflowError("m", row=1, tokens=2, limit=3)],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_processes(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
