"""Every relational method that the plan models, method by method, against Polars itself.

Over a frame with nulls, duplicates, categories, dates and decimals, over the same without rows, and with nulls only;
before a question and behind it, so that the rules that move steps past questions are held to the same rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from tests.support.reference_engine import ReferenceEngine

SCHEMA = {
    "text": pl.String,
    "n": pl.Int32,
    "kind": pl.Categorical(),
    "level": pl.Enum(["low", "high"]),
    "day": pl.Date,
    "at": pl.Datetime("us"),
    "price": pl.Decimal(10, 2),
    "share": pl.Float64,
    "paid": pl.Boolean,
    "tags": pl.List(pl.String),
}
ROWS: list[tuple[Any, ...]] = [
    ("one", 1, "a", "low", dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12), Decimal("1.50"), 0.5, True, ["x", "y"]),
    ("two", 2, "b", "high", dt.date(2023, 1, 1), None, Decimal("-2.25"), -0.0, False, []),
    ("one", 1, "a", "low", dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12), Decimal("1.50"), 0.5, True, ["x", "y"]),
    (None, 3, None, None, None, dt.datetime(1969, 12, 31), None, None, None, None),
    ("", None, "b", "low", dt.date(2025, 12, 31), dt.datetime(2030, 1, 1), Decimal("0.00"), float("nan"), None, ["z"]),
    ("three", 3, "c", "high", dt.date(2023, 1, 1), None, Decimal("99.99"), float("inf"), True, [None]),
    ("four", -4, "a", None, None, None, Decimal("1.50"), 0.25, False, ["x"]),
    ("two", 2, None, "high", dt.date(2023, 1, 2), dt.datetime(2024, 2, 29, 12), None, 0.0, None, ["y", "y"]),
]
FULL = pl.DataFrame(ROWS, schema=SCHEMA, orient="row")
FRAMES = {"rows": FULL, "no rows": FULL.clear(), "nulls": FULL.clear(3), "one row": FULL.head(1)}
OTHER = pl.DataFrame(
    {"n": [1, 1, 3, None, 9], "name": ["p", "q", None, "r", "s"], "price": [Decimal("1.50"), None, *[Decimal(2)] * 3]},
    schema_overrides={"n": pl.Int32, "price": pl.Decimal(10, 2)},
)

Steps = Callable[[Any], Any]


def other(frame: Any) -> Any:
    """The right side, planned where the left one is."""
    return qf.lazy(OTHER) if isinstance(frame, qf.LazyFrame) else OTHER.lazy()


ORDERED = {"how": "left", "maintain_order": "left_right"}
METHODS: dict[str, Steps] = {
    "filter by a number": lambda f: f.filter(pl.col("n") > 1),
    "filter by a date": lambda f: f.filter(pl.col("day") < dt.date(2024, 1, 1)),
    "filter by a decimal": lambda f: f.filter(pl.col("price") >= Decimal("1.50")),
    "filter by a category": lambda f: f.filter(pl.col("kind") == "a"),
    "filter by an enum's order": lambda f: f.filter(pl.col("level") > "low"),
    "filter by null tests": lambda f: f.filter(pl.col("at").is_null() | pl.col("kind").is_null()),
    "filter by several": lambda f: f.filter(pl.col("paid"), pl.col("share") < 1, n=1),
    "filter by a window": lambda f: f.filter(pl.col("n") == pl.col("n").max().over("kind")),
    "filter by an aggregate": lambda f: f.filter(pl.col("n") >= pl.col("n").mean()),
    "filter by nothing": lambda f: f.filter(True),
    "slice": lambda f: f.slice(1, 3),
    "slice to the end": lambda f: f.slice(2),
    "slice from the end": lambda f: f.slice(-3, 2),
    "slice beyond the end": lambda f: f.slice(100, 5),
    "head": lambda f: f.head(3),
    "head of none": lambda f: f.head(0),
    "limit": lambda f: f.limit(2),
    "tail": lambda f: f.tail(2),
    "sort": lambda f: f.sort("day", "n", "text", maintain_order=True),
    "sort down, nulls last": lambda f: f.sort(
        "price", "n", descending=[True, False], nulls_last=True, maintain_order=True
    ),
    "sort by categories": lambda f: f.sort("kind", "level", maintain_order=True),
    "sort by an expression": lambda f: f.sort(pl.col("n") % 3, pl.col("share"), maintain_order=True),
    "unique": lambda f: f.unique(maintain_order=True),
    "unique by some": lambda f: f.unique(["kind", "n"], keep="last", maintain_order=True),
    "unique, only those once": lambda f: f.unique("day", keep="none", maintain_order=True),
    "drop_nulls": lambda f: f.drop_nulls(),
    "drop_nulls of some": lambda f: f.drop_nulls(["kind", "price"]),
    "explode": lambda f: f.explode("tags"),
    "select": lambda f: f.select("text", "price", "kind"),
    "select computed": lambda f: f.select("text", total=pl.col("price") * 2, month=pl.col("day").dt.month()),
    "select by type": lambda f: f.select("text", pl.selectors.temporal(), pl.selectors.decimal()),
    "with_columns": lambda f: f.with_columns(pl.col("kind").cast(pl.String), later=pl.col("day") + pl.duration(days=1)),
    "with_columns replacing": lambda f: f.with_columns(n=pl.col("n") * 2, price=pl.col("price").cast(pl.Float64)),
    "with_columns over groups": lambda f: f.with_columns(rank=pl.col("n").rank("dense").over("kind")),
    "with_columns by case": lambda f: f.with_columns(w=pl.when("paid").then("price").otherwise(pl.lit(None))),
    "drop": lambda f: f.drop("kind", "at"),
    "drop by type": lambda f: f.drop(pl.selectors.float()),
    "rename": lambda f: f.rename({"n": "m", "m": "k"} if "m" in f.collect_schema() else {"n": "m"}),
    "group_by a category": lambda f: f.group_by("kind", maintain_order=True).agg(pl.len(), pl.col("price").sum()),
    "group_by an expression": lambda f: f.group_by(y=pl.col("day").dt.year(), maintain_order=True).agg(
        pl.col("n").mean()
    ),
    "group_by several": lambda f: f.group_by("level", "paid", maintain_order=True).agg(
        pl.col("share").max(), pl.col("text").n_unique(), pl.col("at").min()
    ),
    "group_by into lists": lambda f: f.group_by("n", maintain_order=True).agg("text", pl.col("tags").first()),
    "inner join": lambda f: f.join(other(f), on="n", maintain_order="left_right"),
    "left join": lambda f: f.join(other(f), on="n", **ORDERED),
    "left join by a decimal": lambda f: f.join(other(f), on="price", **ORDERED),
    "full join": lambda f: f.join(other(f), on="n", how="full", coalesce=True, maintain_order="left_right"),
    "right join": lambda f: f.join(other(f), on="n", how="right", maintain_order="right_left"),
    "semi join": lambda f: f.join(other(f), on="n", how="semi", maintain_order="left"),
    "anti join": lambda f: f.join(other(f), on="n", how="anti", maintain_order="left"),
    "join on nulls": lambda f: f.join(other(f), on="n", nulls_equal=True, maintain_order="left_right"),
    "cross join": lambda f: f.join(other(f), how="cross", suffix="_o", maintain_order="left_right"),
    "join by expressions": lambda f: f.join(
        other(f), left_on=pl.col("n") + 2, right_on="n", maintain_order="left_right"
    ),
    "getitem": lambda f: f[1:3],
}


@pytest.fixture(autouse=True)
def _reference(reference: ReferenceEngine) -> None:
    """Answers from the reference engine."""


def equal(planned: qf.LazyFrame, plain: pl.LazyFrame) -> None:
    assert planned.collect_schema() == plain.collect_schema()
    assert_frame_equal(planned.collect(), plain.collect(), check_exact=True, categorical_as_str=True)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_method_alone_is_that_of_polars(method: Steps, frame: pl.DataFrame) -> None:
    equal(method(qf.lazy(frame)), method(frame.lazy()))


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_method_behind_a_question_is_that_of_polars(method: Steps, frame: pl.DataFrame) -> None:
    question = qf.ai_if("Is {text} a number?", selectivity=0.5)
    asked = frame.filter(question).with_columns(score=qf.ai_score("How long is {text}?"))
    planned = qf.lazy(frame).filter(question).with_columns(score=qf.ai_score("How long is {text}?"))
    equal(method(planned), method(asked.lazy()))


@pytest.mark.parametrize("method", [m for name, m in METHODS.items() if "group_by" not in name], ids=str)
def test_a_method_before_a_question_is_that_of_polars(method: Steps) -> None:
    question = qf.ai_if("Is {text} a number?")
    equal(method(qf.lazy(FULL)).filter(question), method(FULL.lazy()).collect().filter(question).lazy())
