"""Methods of Polars on a planned frame, and a planned frame within Polars."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from tests.lazy.samples import ASK, CHEAP, FRAME, GOOD, LABELS, asked
from tests.support.reference_engine import ReferenceEngine

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
