"""Chains of AI joins in another order: which are reordered, and that rows and their order stay."""

from __future__ import annotations

from itertools import permutations

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.optimizer.join_chain import join_chain, reordered
from quail_frames.optimizer.join_order import Step as JoinStep
from quail_frames.plan.logical import AskPairs, Node, columns, walk
from tests.support.reference_engine import ReferenceEngine

A = pl.DataFrame({"a": [f"text {n} of some length" for n in range(8)], "n": [n % 3 for n in range(8)]})
B = pl.DataFrame({"b": [f"b {n}" for n in range(6)], "n": range(6)})
C = pl.DataFrame({"c": ["c 0", "c 1", None, "c 0"]})


def chained(shares: tuple[float | None, float | None] = (None, None), on: str = "a") -> qf.LazyFrame:
    """Two joins; the second asks about a column of A or of B."""
    first = qf.lazy(A).ai_join(B, "Does {a} mention {b}?", selectivity=shares[0], anchor="left", suffix="_b")
    return first.ai_join(C, f"Does {{{on}}} fit {{c}}?", selectivity=shares[1], anchor="left", suffix="_c")


def asked_columns(node: Node) -> list[tuple[str, ...]]:
    """Columns of the questions of the joins, the topmost first."""
    return [each.call.columns for each in walk(node) if isinstance(each, AskPairs)]


def test_the_selective_join_comes_first(reference: ReferenceEngine) -> None:
    query = chained((0.9, 0.01))
    assert asked_columns(query._plan) == [("a", "c"), ("a", "b")]
    assert asked_columns(query._optimized()) == [("a", "b"), ("a", "c")]
    assert asked_columns(chained((0.01, 0.9))._optimized()) == [("a", "c"), ("a", "b")]


@pytest.mark.parametrize("on", ["a", "b"])
@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_any_order_gives_the_rows_of_the_joins_as_written(
    on: str, order: tuple[int, ...], reference: ReferenceEngine
) -> None:
    query = chained(on=on).filter(pl.col("n") < 2)
    chain = join_chain(query._plan)
    assert chain is not None
    plan = reordered(chain, [JoinStep(number, 0, False) for number in order], columns(query._plan))
    found = type(query)(plan, query.collect_schema()).collect()
    assert_frame_equal(found, _step_by_step(on))


def _step_by_step(on: str) -> pl.DataFrame:
    first = A.ai_join(B, "Does {a} mention {b}?", anchor="left", suffix="_b")
    return first.ai_join(C, f"Does {{{on}}} fit {{c}}?", anchor="left", suffix="_c").filter(pl.col("n") < 2)


@given(
    shares=st.tuples(*[st.sampled_from([0.01, 0.5, 0.99])] * 2),
    on=st.sampled_from(["a", "b"]),
    cheap=st.booleans(),
    asks=st.booleans(),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_stands_above_a_chain_sees_the_same_rows(
    shares: tuple[float, float], on: str, cheap: bool, asks: bool, reference: ReferenceEngine
) -> None:
    def above(frame):  # type: ignore[no-untyped-def]
        frame = frame.filter(pl.col("n_b") > 1) if cheap else frame
        return frame.filter(qf.ai_if("Is {b} short?")) if asks else frame

    assert_frame_equal(above(chained(shares, on)).collect(), above(chained(on=on).collect()))


def test_a_question_about_both_joined_rows_keeps_the_order(reference: ReferenceEngine) -> None:
    query = chained((0.9, 0.01)).with_columns(both=qf.ai_if("Are {b} and {c} alike?"))
    assert asked_columns(query._optimized()) == [("a", "c"), ("a", "b")]


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
def test_other_kinds_of_join_are_no_chain(how: str) -> None:
    query = qf.lazy(A).ai_join(B, "Does {a} mention {b}?", how=how, anchor="left", suffix="_b")  # type: ignore[arg-type]
    assert join_chain(query.ai_join(C, "Does {a} fit {c}?", anchor="left")._plan) is None


def test_joins_with_keys_are_no_chain() -> None:
    keyed = qf.lazy(A).ai_join(B, "Does {a} mention {b}?", on="n", anchor="left")
    assert join_chain(keyed.ai_join(C, "Does {a} fit {c}?", anchor="left")._plan) is None
