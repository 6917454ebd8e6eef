"""A pair join finds the pairs that whole prompts find, whatever the memory, the batches, keys and duplicates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quail_frames.plan.calls import AiIf
from quail_frames.plan.physical import PairJoin
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected import expected_answer
from quail_frames.runtime.operators.candidates import AnchorBatch, Candidates
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.ragged import offsets_of

MATCH = AiIf(Template(("Does ", Slot(0), " mention ", Slot(1), "?")), ("text", "term"))
VALUES = st.none() | st.text(alphabet="ab é", max_size=12)


def anchor_batches(texts: list[str | None], pairs: list[list[int]] | None, size: int) -> Iterator[AnchorBatch]:
    for start in range(0, len(texts), size):
        rows = pa.record_batch([pa.array(texts[start : start + size], pa.string())], names=["text"])
        own = None if pairs is None else pairs[start : start + size]
        yield AnchorBatch(rows, None if own is None else candidates(own))


def candidates(rows: list[list[int]]) -> Candidates:
    lengths = np.array([len(own) for own in rows], dtype=np.int64)
    flat = np.array([row for own in rows for row in own], dtype=np.int64)
    return Candidates.of_rows(flat, offsets_of(lengths))


def partner_batch(terms: list[str | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(terms, pa.string())], names=["term"])


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_join_finds_the_pairs_that_whole_prompts_find(data: st.DataObject) -> None:
    texts, terms = data.draw(st.lists(VALUES, max_size=7)), data.draw(st.lists(VALUES, max_size=7))
    some = st.lists(st.integers(0, max(len(terms) - 1, 0)), max_size=len(terms), unique=True).map(sorted)
    pairs = data.draw(st.none() | st.lists(some, min_size=len(texts), max_size=len(texts)))
    stop = data.draw(st.sampled_from(["never", "first_true"]))
    kv_budget, token_budget = (
        data.draw(st.sampled_from([0, 8 * 16 * 12, 1 << 20])),
        data.draw(st.sampled_from([1, 200, 9999])),
    )
    with Engine("oracle", kv_budget=kv_budget, token_budget=token_budget) as engine:
        plan = PairJoin(("text",), ("term",), engine.resolve(MATCH, (0, 1), anchors=(0,)), stop=stop)
        batches = anchor_batches(texts, pairs, data.draw(st.integers(1, 4)))
        got = [
            tuple(row.values()) for out in engine.join(plan, batches, partner_batch(terms)) for row in out.to_pylist()
        ]
        assert engine.memory.contexts.pool.free == engine.memory.pages
    everything = [list(range(len(terms)))] * len(texts)
    true = [
        (anchor, term)
        for anchor, own in enumerate(everything if pairs is None else pairs)
        for term in own
        if expected_answer(plan.call, (texts[anchor], terms[term]))
    ]
    matched = {anchor for anchor, _ in true}
    assert got == (true if stop == "never" else [(anchor, anchor in matched) for anchor in range(len(texts))])


def test_equal_pairs_are_asked_once() -> None:
    with Engine("oracle") as engine:
        plan = PairJoin(("text",), ("term",), engine.resolve(MATCH, (0, 1), anchors=(0,)))
        report = RunReport()
        batches = anchor_batches(["same"] * 6, None, 2)
        found = [
            row for out in engine.join(plan, batches, partner_batch(["x", "y", "x"]), report) for row in out.to_pylist()
        ]
    assert report.asks == 2
    assert len(found) % 6 == 0


def test_an_anchor_is_computed_once_for_all_its_partners() -> None:
    document, terms = "word " * 200, [f"term {number}" for number in range(50)]
    with Engine("oracle", token_budget=300) as engine:
        plan = PairJoin(("text",), ("term",), engine.resolve(MATCH, (0, 1), anchors=(0,)))
        report = RunReport()
        list(engine.join(plan, anchor_batches([document], None, 1), partner_batch(terms), report))
        anchor = len(engine.tokenizer.encode([document]).values)
        partners = sum(len(engine.tokenizer.encode([term]).values) for term in terms)
    assert report.asks == 50 and report.batches > 2
    assert report.fresh_tokens < anchor + partners + 200 + 50 * len("\nANSWER:")


@pytest.mark.parametrize("selectivity", [0.5, 0.01])
def test_an_anchor_stops_at_its_first_true(selectivity: float) -> None:
    terms = [f"term {number}" for number in range(400)]
    call = AiIf(MATCH.template, MATCH.columns, selectivity=selectivity)
    with Engine("oracle") as engine:
        plan = PairJoin(("text",), ("term",), engine.resolve(call, (0, 1), anchors=(0,)), stop="first_true")
        report = RunReport()
        found = pa.Table.from_batches(
            engine.join(plan, anchor_batches(["a", "b"], None, 2), partner_batch(terms), report)
        )
    assert found["matched"].to_pylist() == [True, True]
    assert report.asks <= 2 * max(4, 1 / selectivity)


def test_what_partners_begin_with_is_computed_once_for_an_anchor() -> None:
    terms = [f"a rather long and common start of a term: {number}" for number in range(30)]
    with Engine("oracle", token_budget=900) as engine:
        plan = PairJoin(("text",), ("term",), engine.resolve(MATCH, (0, 1), anchors=(0,)))
        report = RunReport()
        found = [
            tuple(row.values())
            for out in engine.join(plan, anchor_batches(["one", "two"], None, 2), partner_batch(terms), report)
            for row in out.to_pylist()
        ]
        assert engine.memory.contexts.pool.free == engine.memory.pages
        anchors = 2 * engine.compile(plan.call).prompt.own_tokens
    assert found == [
        (a, t) for a in range(2) for t in range(30) if expected_answer(plan.call, (("one", "two")[a], terms[t]))
    ]
    assert report.asks == 60 and report.batches > 1
    assert report.fresh_tokens < anchors + 60 * len("29\nANSWER:") + report.batches * 2 * len(terms[0])


@pytest.mark.parametrize("budget", [60, 200])
def test_an_anchor_that_cannot_stay_is_asked_no_empty_block_while_its_last_pairs_are_under_way(budget: int) -> None:
    texts, terms = [f"{number} " + "word " * 20 for number in range(4)], ["a", "b", "c"]
    with Engine("oracle", kv_budget=0, token_budget=budget) as engine:
        resolved = engine.resolve(MATCH, (0, 1), anchors=(0,))
        plan, report = PairJoin(("text",), ("term",), resolved, remember=True), RunReport()
        found = [
            tuple(row.values())
            for out in engine.join(plan, anchor_batches(texts, None, 4), partner_batch(terms), report)
            for row in out.to_pylist()
        ]
    assert found == [(a, t) for a in range(4) for t in range(3) if expected_answer(resolved, (texts[a], terms[t]))]
    assert report.asks == 12


def test_a_cancelled_join_gives_back_what_its_partners_shared() -> None:
    terms = [f"a rather long and common start of a term: {number}" for number in range(30)]
    with Engine("oracle", token_budget=100) as engine:
        plan = PairJoin(("text",), ("term",), engine.resolve(MATCH, (0, 1), anchors=(0,)))
        running = engine.join(plan, anchor_batches(["one", "two", "three"], None, 1), partner_batch(terms))
        next(running)
        running.close()  # type: ignore[attr-defined]
        assert engine.memory.contexts.pool.free == engine.memory.pages
