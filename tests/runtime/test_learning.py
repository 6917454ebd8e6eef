"""The order of questions follows the answers: what it saves, what it reports, and that no answer depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quail_frames as qf
from quail_frames.plan.calls import AiIf, AiScore
from quail_frames.plan.conditions import And, Answer, Condition, Not, Or, ScoreTest
from quail_frames.plan.physical import AnswerOutput, Chain
from quail_frames.plan.selectivity import SEEN, Counts, estimate
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected import expected_answer
from quail_frames.runtime.operators.learning import PILOT_ROWS, WINDOW_ROWS, Share
from quail_frames.runtime.report import RunReport

ROWS = [(f"{number} text about the ending " * 3, f"{number} another text " * 4) for number in range(600)]
FEW, MOST = 0.05, 0.9


def scored(text: str, column: str, selectivity: float | None) -> AiScore:
    return AiScore(Template((f"{text} ", Slot(0))), (column,), selectivity)


def threshold(engine: Engine, call: AiScore, share: float, rows: Sequence[tuple[str, str]] = ROWS) -> ScoreTest:
    """The test on the call's score that this share of the rows passes."""
    planned = engine.resolve(call, (0,))
    scores = [expected_answer(planned, (row["ab".index(call.columns[0])],)) for row in rows]
    return ScoreTest(0, "gt", float(np.quantile(np.array(scores, dtype=np.float64), 1 - share)))


def batches(rows: Sequence[tuple[str, str]], size: int = 100) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        a, b = zip(*rows[start : start + size], strict=True)
        yield pa.record_batch({"a": pa.array(a), "b": pa.array(b)})


def run(engine: Engine, columns: str, stated: Sequence[float | None], **options: object) -> tuple[list[int], RunReport]:
    """Rows kept by two tests that 5% and 90% pass, over these columns; `stated` are the user's numbers for them."""
    calls = [scored(f"How {n}?", columns[n], stated[n]) for n in range(2)]
    tests = [replace(threshold(engine, calls[n], share), call=n) for n, share in enumerate((FEW, MOST))]
    planned = tuple(engine.resolve(call, ("ab".index(call.columns[0]),)) for call in calls)
    order = tuple(np.argsort([0.5 if share is None else share for share in stated], kind="stable").tolist())
    plan = Chain(("a", "b"), (), planned, order, And(tuple(tests)), (), **options)  # type: ignore[arg-type]
    report = RunReport()
    kept = [row for batch in engine.run(plan, batches(ROWS), report) for row in batch["row"].to_pylist()]
    return kept, report


@pytest.mark.parametrize("columns", ["aa", "ab"], ids=["one document", "two documents"])
def test_wrong_numbers_cost_little_more_than_right_ones(columns: str) -> None:
    with Engine("oracle", token_budget=8000) as engine:
        kept, right = run(engine, columns, (FEW, MOST))
        same, wrong = run(engine, columns, (MOST, FEW))
        also, stubborn = run(engine, columns, (MOST, FEW), learn=False)
    assert kept == same == also
    assert not right.order_changes and len(wrong.order_changes) == 1
    assert wrong.fresh_tokens <= 1.15 * right.fresh_tokens
    if columns == "ab":
        assert stubborn.fresh_tokens > 1.5 * right.fresh_tokens


def test_the_report_says_when_and_why_the_order_changed() -> None:
    with Engine("oracle", token_budget=8000) as engine:
        _, report = run(engine, "ab", (MOST, FEW))
    (change,) = report.order_changes
    assert change.after == change.before[::-1] and change.row < len(ROWS) // 10
    dear, rare = change.learned[1], change.learned[0]
    assert dear.was == FEW and dear.now > 0.5 and dear.origin == "stated" and dear.answers > 0
    assert rare.call == 'ai_score("How 0? {a}")'
    assert "changes of the questions' order" in str(report) and str(change) in str(report)


def test_what_one_run_saw_starts_the_next() -> None:
    with Engine("oracle", token_budget=8000) as engine:
        kept, first = run(engine, "ba", (None, None))
        again, second = run(engine, "ba", (None, None))
        call = scored("How 0?", "b", None)
        seen = estimate(call, threshold(engine, call, FEW))
    assert kept == again
    assert (seen.origin, seen.answers > PILOT_ROWS) == ("remembered", True) and seen.share < 0.2
    assert second.fresh_tokens <= first.fresh_tokens


def test_a_pilot_asks_nothing_twice_and_nothing_in_vain() -> None:
    """Calls about which nothing is known take turns; a row is asked on only as far as its fate is open."""
    with Engine("oracle") as engine:
        calls = [AiIf(Template((f"Is it {n}? ", Slot(0))), ("a",)) for n in range(2)]
        planned = tuple(engine.resolve(call, (0,)) for call in calls)
        plan = Chain(("a",), (), planned, (0, 1), And((Answer(0), Answer(1))), ())
        report = RunReport()
        list(engine.run(plan, batches(ROWS), report))
        truth = np.array([[expected_answer(call, (a,)) for call in planned] for a, _ in ROWS])
    fewest, most = len(ROWS) + truth.all(axis=1).sum(), len(ROWS) + truth.any(axis=1).sum()
    assert fewest <= report.asks <= most


def test_a_pilot_of_a_limited_query_takes_the_first_rows() -> None:
    with Engine("oracle", token_budget=1_000_000) as engine:
        calls = [AiIf(Template((f"Is it {n}? ", Slot(0))), ("a",)) for n in range(2)]
        planned = tuple(engine.resolve(call, (0,)) for call in calls)
        plan = Chain(("a",), (), planned, (0, 1), And((Answer(0), Answer(1))), (), limit=2)
        report = RunReport()
        rows = [row for batch in engine.run(plan, batches(ROWS), report) for row in batch["row"].to_pylist()]
        kept = [n for n, (a, _) in enumerate(ROWS) if all(expected_answer(call, (a,)) for call in planned)]
    assert rows == kept[:2] and kept[1] < PILOT_ROWS
    assert report.asks <= 2 * PILOT_ROWS


def test_old_answers_count_less_than_new_ones() -> None:
    share = Share.of(AiIf(Template(("q? ", Slot(0))), ("a",), 0.5), Answer(0))
    share.add(Counts(WINDOW_ROWS, WINDOW_ROWS))
    assert share.value > 0.99
    share.add(Counts(0, WINDOW_ROWS))
    assert share.value == pytest.approx(0.5, abs=0.01)
    share.add(Counts(0, WINDOW_ROWS))
    assert share.value < 0.3 and share.total == Counts(WINDOW_ROWS, 3 * WINDOW_ROWS)


def programs(calls: int) -> st.SearchStrategy[Condition]:
    return st.recursive(
        st.sampled_from([Answer(call) for call in range(calls)]),
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, min_size=2, max_size=3).map(lambda terms: And(tuple(terms))),
            st.lists(inner, min_size=2, max_size=3).map(lambda terms: Or(tuple(terms))),
        ),
        max_leaves=5,
    )


@given(
    keep=programs(3),
    shares=st.lists(st.sampled_from([None, 0.02, 0.98]), min_size=3, max_size=3),
    order=st.permutations(range(3)),
    pages=st.sampled_from([0, 4, 12, 4096]),
    budget=st.sampled_from([1, 300, 100_000]),
    size=st.sampled_from([1, 7, 40]),
    limit=st.none() | st.integers(1, 10),
)
@settings(max_examples=25, deadline=None)
def test_no_order_changes_an_answer(
    keep: Condition,
    shares: list[float | None],
    order: list[int],
    pages: int,
    budget: int,
    size: int,
    limit: int | None,
) -> None:
    """Whatever is learned, with memory for everything, for little and for nothing: as with a fixed order."""
    rows = [(f"{'same' if n % 5 == 0 else n} {'long ' * (n % 4)}", str(n % 9)) for n in range(40)]
    with Engine("oracle", kv_budget=pages * 8 * 16, token_budget=budget) as engine:
        calls = [AiIf(Template((f"q{n}? ", Slot(0))), ("aab"[n],), shares[n]) for n in range(3)]
        planned = tuple(engine.resolve(call, ("ab".index(call.columns[0]),)) for call in calls)
        outputs = tuple(AnswerOutput(str(n), n) for n in range(3))
        plan = Chain(("a", "b"), (), planned, tuple(order), keep, outputs, limit)
        found = [list(_rows(engine, each, rows, size)) for each in (plan, replace(plan, learn=False), plan)]
        assert engine.memory.contexts.pool.free == engine.memory.pages
    assert found[0] == found[1] == found[2]


def _rows(engine: Engine, plan: Chain, rows: list[tuple[str, str]], size: int) -> Iterator[dict[str, object]]:
    return (row for batch in engine.run(plan, batches(rows, size)) for row in batch.to_pylist())


def test_memory_keeps_counts_for_each_call_and_test() -> None:
    call = AiScore(Template(("q? ", Slot(0))), ("a",))
    SEEN.add(call, ScoreTest(3, "gt", 0.5), Counts(2, 10))
    SEEN.add(call, ScoreTest(0, "gt", 0.5), Counts(1, 10))
    assert estimate(call, ScoreTest(1, "gt", 0.5)).share == 0.15
    assert estimate(call, ScoreTest(1, "gt", 0.6)).origin == "assumed"
    assert estimate(replace(call, selectivity=0.7), ScoreTest(1, "gt", 0.5)).share == 0.7
    assert estimate(call, ScoreTest(1, "gt", 0.5), seen=None).origin == "assumed"


def test_profile_says_when_the_order_changed() -> None:
    rows = pl.DataFrame({"a": [a for a, _ in ROWS], "b": [b for _, b in ROWS]})
    rare, often = (qf.ai_score("How 0? {a}", selectivity=MOST), qf.ai_score("How 1? {b}", selectivity=FEW))
    with Engine("oracle", token_budget=8000) as engine:
        few = threshold(engine, scored("How 0?", "a", None), FEW).value
        most = threshold(engine, scored("How 1?", "b", None), MOST).value
        query = qf.lazy(rows, engine=engine).filter((rare > few) & (often > most))
        profile = query.profile()
    (change,) = profile.report.order_changes
    assert f"asked in another order {change}" in repr(profile)
