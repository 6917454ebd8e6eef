"""Planned queries give what plain Polars gives, whatever the frame and the pipeline."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.lazy.execute import Run, run_plan
from quail_frames.optimizer.rules import RULES, Rule, optimize
from quail_frames.optimizer.rules.place_calls import place_calls
from quail_frames.runtime.engine import Engine
from tests.support.pipelines import Step, frames, pipelines
from tests.support.reference_engine import ReferenceEngine

FIXTURE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def same(planned: pl.DataFrame, plain: pl.DataFrame) -> None:
    assert_frame_equal(planned, plain, check_exact=True, categorical_as_str=True)


@settings(max_examples=60, suppress_health_check=FIXTURE)
@given(frame=frames(), pipeline=pipelines())
def test_rows_order_and_types_are_those_of_plain_polars(
    frame: pl.DataFrame, pipeline: tuple[str, Step], engine: object
) -> None:
    name, steps = pipeline
    note(name)
    query = steps(qf.lazy(frame))
    note(query.explain())
    plain = steps(frame)
    assert query.collect_schema() == plain.schema
    same(query.collect(), plain)


@settings(max_examples=30, suppress_health_check=FIXTURE)
@given(frame=frames(), pipeline=pipelines(), used=st.sets(st.sampled_from(RULES[1:])))
def test_any_choice_of_rules_gives_the_same(
    frame: pl.DataFrame, pipeline: tuple[str, Step], used: set[Rule], reference: ReferenceEngine
) -> None:
    name, steps = pipeline
    note(name)
    query = steps(qf.lazy(frame))
    plan = optimize(query._plan, (place_calls, *(rule for rule in RULES[1:] if rule in used)))
    rows = list(run_plan(plan, Run(lambda: reference)))
    truth = steps(frame)
    same(pl.concat([truth.clear(), *(each.select(truth.columns) for each in rows)]), truth)


@settings(max_examples=20, suppress_health_check=FIXTURE)
@given(frame=frames(), pipeline=pipelines())
def test_all_ways_to_run_a_query_agree(
    frame: pl.DataFrame, pipeline: tuple[str, Step], engine: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name, steps = pipeline
    note(name)
    query = steps(qf.lazy(frame))
    truth = query.collect()
    same(query.to_polars().collect(), truth)
    same(pl.concat([truth.clear(), *query.collect_batches(chunk_size=3)]), truth)
    if truth.width:
        path = tmp_path_factory.mktemp("sink") / "out.parquet"
        query.sink_parquet(path)
        same(pl.read_parquet(path), truth)


def test_a_predicate_that_looks_at_other_rows_sees_those_that_its_siblings_drop() -> None:
    """Found by the property above: the rank was taken of what the date had left."""
    frame = pl.DataFrame({"text": [f"text {n}" for n in range(8)], "n": range(8)})
    with Engine("oracle") as engine:
        query, score = qf.lazy(frame, engine=engine), qf.ai_score("Is {text} good?")
        planned = query.filter((pl.col("n") < 3) & (score.rank() > 2)).collect()
        scores = query.with_columns(score=score).collect()
        plain = scores.filter((pl.col("n") < 3) & (pl.col("score").rank() > 2)).drop("score")
    assert_frame_equal(planned, plain)
