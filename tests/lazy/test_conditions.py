"""Predicates become conditions exactly where they mean the same."""

from __future__ import annotations

import polars as pl
import pytest

import quail_frames as qf
from quail_frames.errors import CallError
from quail_frames.lazy.record import Recorder
from quail_frames.plan.conditions import And, Answer, LabelTest, Mask, Not, Or, ScoreTest

SCHEMA = pl.Schema({"a": pl.String, "n": pl.Int64, "flag": pl.Boolean})
IF, SCORE, LABEL = qf.ai_if("Is {a} spam?"), qf.ai_score("Is {a} good?"), qf.ai_classify("a", ["x", "y", "z"])
CHEAP = pl.col("n") > 1

EXACT = {
    "if": (IF, Answer(0)),
    "alias": (IF.alias("q"), Answer(0)),
    "not": (~IF, Not(Answer(0))),
    "or": (IF | CHEAP, Or((Answer(0), Mask(0)))),
    "or of alias": ((IF.alias("p") | CHEAP).alias("q"), Or((Answer(0), Mask(0)))),
    "nested": ((IF & CHEAP) | ~(IF | pl.col("flag")), Or((And((Answer(0), Mask(0))), Not(Or((Answer(0), Mask(1))))))),
    "any": (pl.any_horizontal(IF, "flag", SCORE > 0.5), Or((Answer(0), Mask(0), ScoreTest(1, "gt", 0.5)))),
    "score": (SCORE > 0.5, ScoreTest(0, "gt", 0.5)),
    "score alias": (SCORE.alias("s") >= 1, ScoreTest(0, "ge", 1.0)),
    "score flipped": (pl.lit(0.5) <= SCORE, ScoreTest(0, "ge", 0.5)),
    "score between": (SCORE.is_between(0.1, 0.4, "left"), And((ScoreTest(0, "ge", 0.1), ScoreTest(0, "lt", 0.4)))),
    "label": (LABEL == "x", LabelTest(0, ("x",))),
    "label flipped": (pl.lit("x") == LABEL, LabelTest(0, ("x",))),
    "label not": (LABEL != "x", LabelTest(0, ("x",), negated=True)),
    "labels": (LABEL.is_in(["x", "y"]), LabelTest(0, ("x", "y"))),
    "labels series": (~LABEL.is_in(pl.Series(["x"])), Not(LabelTest(0, ("x",)))),
}
OPAQUE = {
    "null test": (SCORE > 0.5).is_null(),
    "missing equal": LABEL.eq_missing("x"),
    "null in list": LABEL.is_in(["x", None]),
    "null equal list": LABEL.is_in(["x"], nulls_equal=True),
    "column": pl.col("n") < SCORE,
    "huge integer": SCORE < 2**60,
    "arithmetic": SCORE * 2 > 0.5,
    "two scores": qf.ai_score("Is {a} bad?") < SCORE,
    "xor": IF ^ CHEAP,
    "when": pl.when(CHEAP).then(IF).otherwise(True),
    "window": IF | (pl.col("n") > pl.col("n").mean()),
    "over": IF.any().over("n"),
    "part of or": (SCORE * 2 > 0.5) | CHEAP,
    "probabilities": qf.ai_classify("a", ["x", "y"], probabilities=True).struct.field("label") == "x",
}


@pytest.mark.parametrize(("expr", "condition"), EXACT.values(), ids=EXACT)
def test_an_exact_predicate_is_a_condition(expr: pl.Expr, condition) -> None:
    (predicate,) = Recorder(SCHEMA).predicates(expr)
    assert predicate.test is not None
    assert predicate.test.condition == condition


@pytest.mark.parametrize("expr", [LABEL == "X", pl.lit("X") != LABEL, LABEL.is_in(["y", "X"])])
def test_a_comparison_with_what_is_no_label_is_refused(expr: pl.Expr) -> None:
    with pytest.raises(CallError, match="'X', which is none of its labels; did you mean 'x'"):
        Recorder(SCHEMA).predicates(expr)


@pytest.mark.parametrize("expr", OPAQUE.values(), ids=OPAQUE)
def test_anything_else_is_left_to_polars(expr: pl.Expr) -> None:
    (predicate,) = Recorder(SCHEMA).predicates(expr)
    assert predicate.test is None
    assert predicate.calls


@pytest.mark.parametrize(
    "expr",
    [
        CHEAP & IF & (SCORE > 0.5),
        CHEAP & (IF & (SCORE > 0.5)).alias("q"),
        pl.all_horizontal(CHEAP, IF, SCORE > 0.5),
        CHEAP.and_(IF, SCORE > 0.5),
    ],
)
def test_a_conjunction_is_taken_apart(expr: pl.Expr) -> None:
    predicates = Recorder(SCHEMA).predicates(expr)
    assert [bool(predicate.calls) for predicate in predicates] == [False, True, True]
    assert [predicate.test and predicate.test.condition for predicate in predicates] == [
        None,
        Answer(0),
        ScoreTest(0, "gt", 0.5),
    ]


def test_masks_keep_the_names_inside_them() -> None:
    mask = pl.struct(pl.col("n").alias("m")).struct.field("m") > 1
    (predicate,) = Recorder(SCHEMA).predicates(IF | mask)
    assert predicate.test is not None
    assert predicate.test.masks[0].body.meta.eq(mask)


def test_selectors_are_spelt_out() -> None:
    import polars.selectors as cs

    (predicate,) = Recorder(SCHEMA).predicates(pl.any_horizontal(cs.boolean(), IF))
    assert predicate.reads == {"flag"}
    assert Recorder(SCHEMA).expression(pl.all()).names == ("a", "n", "flag")
