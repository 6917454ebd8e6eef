"""Chains of AI joins in another order: which are reordered, and that rows and their order stay."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.lazy.execute import Run, run_plan
from quail_frames.optimizer.join_chain import join_chain
from quail_frames.optimizer.join_order import Joins, State, state_after, steps_from
from quail_frames.optimizer.join_order import Step as JoinStep
from quail_frames.optimizer.join_plans import joins_of
from quail_frames.optimizer.join_rewriting import reordered
from quail_frames.optimizer.prices import Prices
from quail_frames.optimizer.rules import optimize
from quail_frames.optimizer.statistics import SourceFigures, Statistics
from quail_frames.plan.logical import AskPairs, Node, Source, columns, walk
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
    assert_frame_equal(rows_of(plan, query, reference), _step_by_step(on))


def rows_of(plan: Node, query: qf.LazyFrame, engine: ReferenceEngine) -> pl.DataFrame:
    """The rows of a plan whose joins have their order."""
    found = list(run_plan(optimize(plan), Run(lambda: engine)))
    return pl.concat([pl.DataFrame(schema=query.collect_schema()), *found])


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
def test_another_kind_of_join_ends_a_chain(how: str) -> None:
    query = qf.lazy(A).ai_join(B, "Does {a} mention {b}?", how=how, anchor="left", suffix="_b")  # type: ignore[arg-type]
    chain = join_chain(query.ai_join(C, "Does {a} fit {c}?", anchor="left")._plan)
    assert chain is not None and len(chain.joins) == 1 and join_chain(query._plan) is None


# Keys and predicates ----------------------------------------------------------------------

TEXTS = st.none() | st.sampled_from(["", "a", "same", "longer"])
NUMBERS = st.none() | st.integers(0, 1)


@st.composite
def written_chains(draw: st.DrawFn) -> list[tuple[pl.DataFrame, str, dict[str, Any]]]:
    """Frames, and for all but the first one the question and the arguments that join it to those before."""
    found: list[tuple[pl.DataFrame, str, dict[str, Any]]] = []
    numbers = ["x0"]  # a key of the right side is gone behind its join
    for number in range(draw(st.integers(3, 4))):
        rows = draw(st.integers(0, 4) if number else st.integers(1, 4))
        schema = {f"t{number}": (pl.String, TEXTS), "k": (pl.Int64, NUMBERS), f"x{number}": (pl.Int64, NUMBERS)}
        data = {name: draw(st.lists(values, min_size=rows, max_size=rows)) for name, (_, values) in schema.items()}
        frame = pl.DataFrame(data, schema={name: dtype for name, (dtype, _) in schema.items()})
        if not number:
            found.append((frame, "", {}))
            continue
        earlier = st.integers(0, number - 1)
        near, far = draw(st.sampled_from(numbers)), draw(st.sampled_from(numbers))
        keys = draw(st.sampled_from([{}, {}, {"on": "k"}, {"left_on": near, "right_on": f"x{number}"}]))
        near, far, own = pl.col(near), pl.col(far), pl.col(f"x{number}")
        if "left_on" in keys:
            own = pl.col("k") if number == 1 else far
        else:
            numbers.append(f"x{number}")
        key = pl.col("k_right" if keys.get("on") else f"k_{number}")
        where = draw(st.sampled_from([None, None, near <= own, near == own, (near + far) >= own, key != near]))
        options = {"anchor": draw(st.sampled_from(["left", "right"])), "where": where, **keys}
        options["suffix"] = "_right" if keys.get("on") else f"_{number}"
        found.append((frame, f"Does {{t{draw(earlier)}}} fit {{t{number}}}?", options))
    return found


def every_order(joins: Joins, state: State, steps: tuple[JoinStep, ...] = ()) -> Iterator[tuple[JoinStep, ...]]:
    """All orders that the dynamic programme may choose from."""
    if len(steps) == len(joins.questions):
        yield steps
    for step in steps_from(joins, state):
        if not step.retain:
            yield from every_order(joins, state_after(joins, state, step), (*steps, step))


@given(frames=written_chains(), filtered=st.booleans())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_order_of_joins_with_keys_and_predicates_gives_the_rows_as_written(
    frames: list[tuple[pl.DataFrame, str, dict[str, Any]]], filtered: bool, reference: ReferenceEngine
) -> None:
    (first, _, _), *rest = frames
    query, expected = qf.lazy(first), first
    for number, (frame, question, options) in enumerate(rest):
        query = query.ai_join(frame, question, **options)
        expected = qf.lazy(expected).ai_join(frame, question, **options).collect()
        if filtered and not number:
            query, expected = query.filter(pl.col("x0") < 1), expected.filter(pl.col("x0") < 1)
    chain = join_chain(query._plan)
    assert chain is not None and len(chain.joins) == len(rest)
    if not chain.movable:
        return
    for steps in every_order(joins_of(chain, Prices.assumed()), State()):
        plan = reordered(chain, steps, columns(query._plan))
        assert_frame_equal(rows_of(plan, query, reference), expected)


def test_keys_and_predicates_travel_with_their_pair(reference: ReferenceEngine) -> None:
    first = qf.lazy(A).ai_join(C, "Does {a} fit {c}?", selectivity=0.9, where=pl.col("a") != pl.col("c"))
    query = first.ai_join(B, "Does {a} mention {b}?", on="n", where=pl.col("n_right") > 0, selectivity=0.1)
    plan = query._optimized(_many_rows(query))
    assert asked_columns(plan) == [("a", "c"), ("a", "b")]
    top, low = (node for node in walk(plan) if isinstance(node, AskPairs))
    assert [key.column for pair in low.keys for key in pair] == ["n", "n"]
    assert len(top.where) == 1 and not top.keys
    assert_frame_equal(rows_of(plan, query, reference), query.collect())


def test_a_computed_key_keeps_the_order(reference: ReferenceEngine) -> None:
    keyed = qf.lazy(A).ai_join(B, "Does {a} mention {b}?", left_on=pl.col("n") % 2, right_on="n", selectivity=0.9)
    chain = join_chain(keyed.ai_join(C, "Does {a} fit {c}?", selectivity=0.01)._plan)
    assert chain is not None and not chain.movable


def _many_rows(query: qf.LazyFrame) -> Prices:
    """The default prices over frames of which nobody knows the rows but that they are many."""
    sources = [node for node in walk(query._plan) if isinstance(node, Source)]
    return Prices.assumed().about(Statistics({id(source.frame): SourceFigures(1000.0) for source in sources}))


# Anchors ----------------------------------------------------------------------------------


def texts(name: str, rows: int, words: int) -> pl.DataFrame:
    return pl.DataFrame({name: [f"{number} " + "word " * words for number in range(rows)]})


def anchors(query: qf.LazyFrame) -> dict[tuple[str, ...], str | None]:
    plan = query._optimized(query._prices())
    return {node.call.columns: node.anchor for node in walk(plan) if isinstance(node, AskPairs)}


def test_the_anchors_of_a_chain_are_chosen_together(engine: object) -> None:
    one = qf.lazy(texts("a", 200, 160)).ai_join(texts("b", 1, 70), "Does {a} mention {b}?", selectivity=0.9)
    assert anchors(one) == {("a", "b"): "right"}
    two = one.ai_join(texts("c", 20, 3), "Does {a} fit {c}?", selectivity=0.1)
    assert anchors(two) == {("a", "c"): "left", ("a", "b"): "left"}, "its documents stay for the second join"
    told = two.explain()
    assert told.count("anchor: row of {a}") == 2 and "row of {c} " in told
    right, left = (found["seconds"] for found in told_anchor(two, "row of {b}"))
    assert 0.8 * left < right, "only a right anchor that saves a fifth makes rows wait"


def told_anchor(query: qf.LazyFrame, name: str) -> list[dict[str, Any]]:
    """The alternatives of the choice between this anchor and another one, this one first."""
    step, choices = query.explain(format="json")["planned"], []
    while step["inputs"]:
        choices += [c["alternatives"] for c in step["decisions"] if c["decision"] == "anchor"]
        step = step["inputs"][0]
    (found,) = (each for each in choices if name in {alternative["name"] for alternative in each})
    return sorted(found, key=lambda each: each["name"] != name)


def test_a_named_anchor_stays_and_the_others_follow_from_it() -> None:
    qf.configure("oracle")
    a, b, c = texts("a", 200, 160), texts("b", 1, 70), texts("c", 20, 3)
    one = qf.lazy(a).ai_join(b, "Does {a} mention {b}?", selectivity=0.9, anchor="right")
    assert anchors(one.ai_join(c, "Does {a} fit {c}?")) == {("a", "c"): "left", ("a", "b"): "right"}
    named = qf.lazy(a).ai_join(b, "Does {a} mention {b}?").ai_join(c, "Does {a} fit {c}?", anchor="right")
    assert anchors(named)["a", "c"] == "right"
    assert "because named by the query" in named.explain()


def test_what_stands_above_a_chain_changes_no_anchor() -> None:
    qf.configure("oracle")
    chain = chained_openly()
    above = [
        chain.filter(pl.col("n") == 1),
        chain.filter(qf.ai_if("Is {a} odd?", selectivity=0.001)),
        chain.with_columns(d=pl.col("a") + "!").ai_join(texts("e", 3, 2), "Is {d} like {e}?"),
    ]
    for query in above:
        found = anchors(query)
        assert {columns: found[columns] for columns in anchors(chain)} == anchors(chain)


def chained_openly() -> qf.LazyFrame:
    first = qf.lazy(A).ai_join(B, "Does {a} mention {b}?", suffix="_b")
    return first.ai_join(C, "Does {b} fit {c}?", suffix="_c")


def test_the_dynamic_programme_and_the_estimate_agree() -> None:
    qf.configure("oracle")
    one = qf.lazy(texts("a", 200, 60)).ai_join(texts("b", 30, 8), "Does {a} mention {b}?", selectivity=0.1)
    query = one.ai_join(texts("c", 20, 3), "Does {a} fit {c}?", selectivity=0.01)
    found = query.explain(format="json")
    (order,) = found["decisions"]
    taken = next(each["seconds"] for each in order["alternatives"] if each["name"] == order["chosen"])
    assert taken == pytest.approx(found["seconds"], rel=0.05)


# As planned -------------------------------------------------------------------------------


@given(
    frames=written_chains(),
    shares=st.lists(st.sampled_from([None, 0.0, 0.01, 0.9, 1.0]), min_size=4, max_size=4),
    named=st.sampled_from([None, 0, 1]),
)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_chain_with_open_anchors_gives_the_rows_of_its_joins_one_after_another(
    frames: list[tuple[pl.DataFrame, str, dict[str, Any]]],
    shares: list[float | None],
    named: int | None,
    reference: ReferenceEngine,
) -> None:
    (first, _, _), *rest = frames
    query, expected = qf.lazy(first), first
    for number, (frame, question, options) in enumerate(rest):
        open_ = {**options, "selectivity": shares[number]}
        query = query.ai_join(frame, question, **(open_ if number == named else {**open_, "anchor": "auto"}))
        expected = qf.lazy(expected).ai_join(frame, question, **open_).collect()
    assert_frame_equal(query.collect(), expected)
    many = query._optimized(_many_rows(query))
    assert_frame_equal(
        pl.concat([pl.DataFrame(schema=query.collect_schema()), *run_plan(many, Run(lambda: reference))]), expected
    )


def test_five_relations_self_joins_and_nothing_at_all(reference: ReferenceEngine) -> None:
    frames = [pl.DataFrame({f"t{n}": [f"{n} {row}" for row in range(4)], "k": [0, 1, None, 1]}) for n in range(5)]
    edges = {1: 0, 2: 1, 3: 0, 4: 3}
    for rows in (0, 4):
        query, expected = qf.lazy(frames[0].head(rows)), frames[0].head(rows)
        for number, near in edges.items():
            options: dict[str, Any] = {"on": "k"} if number == 3 else {}
            asked = f"Does {{t{near}}} fit {{t{number}}}?"
            query = query.ai_join(frames[number], asked, selectivity=0.5**number, suffix=f"_{number}", **options)
            expected = qf.lazy(expected).ai_join(frames[number], asked, suffix=f"_{number}", **options).collect()
        assert_frame_equal(query.collect(), expected)
        assert query.estimate().rows >= 0
    itself = qf.lazy(A).ai_join(B, "Does {a} mention {b}?", suffix="_b")
    twice = itself.ai_join(itself, "Does {left.a} fit {right.b}?", suffix="_2")
    once = itself.collect()
    assert_frame_equal(
        twice.collect(), qf.lazy(once).ai_join(once, "Does {left.a} fit {right.b}?", suffix="_2").collect()
    )


def test_a_question_about_two_relations_below_it_ends_the_chain(reference: ReferenceEngine) -> None:
    both = chained_openly().ai_join(texts("e", 2, 1), "Are {a} and {c} like {e}?")
    chain = join_chain(both.ai_join(texts("f", 2, 1), "Is {e} {f}?")._plan)
    assert join_chain(both._plan) is None and chain is not None and len(chain.joins) == 1
    assert both.collect().height >= 0
