"""Rows that start alike share pages, survivors stay resident for the next operator, and no answer changes for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quail_frames.plan.calls import AiIf, AiScore
from quail_frames.plan.conditions import Answer
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected import expected_answer
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.ragged import common_start

GOOD = AiIf(Template(("Is it good?\n", Slot(0))), ("text",))
HOW = AiScore(Template(("How good is it?\n", Slot(0))), ("text",))
MATCH = AiIf(Template(("Does ", Slot(0), " mention ", Slot(1), "?")), ("text", "term"))
PAIR_SCORE = AiScore(Template(("How much does ", Slot(0), " say on ", Slot(1), "?")), ("text", "term"))
PAGE_BYTES = 8 * 16


def traces(count: int, step: int) -> list[str]:
    """Each text starts with the one before it, as the snapshots of one agent run do."""
    rng = np.random.default_rng(0)
    letters = "".join(chr(97 + code) for code in rng.integers(0, 26, count * step))
    return [letters[: (number + 1) * step] for number in range(count)]


def batches(texts: list[str], size: int = 1000) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(texts), size):
        yield pa.record_batch([pa.array(texts[start : start + size])], names=["text"])


def shared_starts() -> st.SearchStrategy[list[str]]:
    start = st.sampled_from(["", "a" * 20, "a" * 40, "a" * 40 + "b" * 30])
    return st.lists(st.tuples(start, st.text("abc", max_size=30)).map("".join), max_size=20)


@given(
    texts=shared_starts(),
    kv_budget=st.sampled_from([0, 5 * PAGE_BYTES, 25 * PAGE_BYTES, 1 << 20]),
    token_budget=st.sampled_from([1, 200, 9999]),
    size=st.integers(1, 8),
    retain=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_sharing_changes_no_answer(
    texts: list[str], kv_budget: int, token_budget: int, size: int, retain: bool
) -> None:
    with Engine("oracle", kv_budget=kv_budget, token_budget=token_budget) as engine:
        planned = tuple(engine.resolve(call, (0,)) for call in (GOOD, HOW))
        plan = Chain(("text",), (), planned, (0, 1), Answer(0), (AnswerOutput("how", 1),), retain=retain)
        report = RunReport()
        got = [tuple(row.values()) for out in engine.run(plan, batches(texts, size), report) for row in out.to_pylist()]
        kept = [(row, text) for row, text in enumerate(texts) if expected_answer(planned[0], (text,))]
        assert got == [(row, expected_answer(planned[1], (text,))) for row, text in kept]
        engine.end(report)
        assert engine.memory.contexts.pool.free == engine.memory.pages


@pytest.mark.parametrize("size", [1000, 3])
def test_growing_traces_are_computed_once(size: int) -> None:
    texts = traces(20, 100)
    with Engine("oracle", token_budget=500) as engine:
        plan = Chain(("text",), (), (engine.resolve(GOOD, (0,)),), (0,), None, (AnswerOutput("good", 0),))
        report = RunReport()
        list(engine.run(plan, batches(texts, size), report))
        own = engine.compile(plan.calls[0]).prompt.own_tokens
    fresh = 20 * (100 + 16 + own)
    assert report.fresh_tokens <= (fresh if size == 1000 else 2 * fresh)
    assert report.fresh_tokens < sum(map(len, texts)) / 3


def test_a_limit_shares_prefixes_too() -> None:
    texts = traces(60, 100)
    with Engine("oracle", token_budget=500) as engine:
        plan = Chain(("text",), (), (engine.resolve(GOOD, (0,)),), (0,), Answer(0), (), limit=3)
        report = RunReport()
        rows = [row["row"] for out in engine.run(plan, batches(texts), report) for row in out.to_pylist()]
        assert rows == [row for row, text in enumerate(texts) if expected_answer(plan.calls[0], (text,))][:3]
        assert report.fresh_tokens < 20 * 250


def joined(engine: Engine, texts: list[str], terms: list[str], report: RunReport) -> list[tuple[int, int]]:
    """Texts that pass a filter, joined to terms; the join finds the filter's documents resident."""
    plan = Chain(("text",), (), (engine.resolve(GOOD, (0,)),), (0,), Answer(0), (), retain=True)
    numbers: list[int] = []

    def survivors() -> Iterator[AnchorBatch]:
        for out in engine.run(plan, batches(texts), report):
            rows = out["row"].to_pylist()
            numbers.extend(rows)
            yield AnchorBatch(pa.record_batch([pa.array([texts[row] for row in rows], pa.string())], names=["text"]))

    join = PairJoin(("text",), ("term",), engine.resolve(MATCH, (0, 1), anchors=(0,)))
    partners = pa.record_batch([pa.array(terms)], names=["term"])
    pairs = [tuple(row.values()) for out in engine.join(join, survivors(), partners, report) for row in out.to_pylist()]
    engine.end(report)
    return [(numbers[anchor], partner) for anchor, partner in pairs]


@pytest.mark.parametrize("pages", [4000, 60, 3])
def test_survivors_of_a_filter_enter_the_join_resident(pages: int) -> None:
    rng = np.random.default_rng(1)
    texts = ["".join(chr(97 + code) for code in rng.integers(0, 26, 150)) for _ in range(60)]
    terms = [f"{number} terms" for number in range(5)]
    with Engine("oracle", kv_budget=pages * PAGE_BYTES, token_budget=700) as engine:
        report = RunReport()
        pairs = joined(engine, texts, terms, report)
        assert engine.memory.contexts.pool.free == engine.memory.pages
        good, match = engine.resolve(GOOD, (0,)), engine.resolve(MATCH, (0, 1), anchors=(0,))
        passing = [row for row, text in enumerate(texts) if expected_answer(good, (text,))]
        assert pairs == [
            (row, number)
            for row in passing
            for number, term in enumerate(terms)
            if expected_answer(match, (texts[row], term))
        ]
        filters = sum(len(text) + engine.compile(good).prompt.own_tokens for text in texts)
        pair_tokens = sum(len(engine.tokenizer.encode([term]).values) + len("\nANSWER:") for term in terms)
        frames = [engine.compile(call).prompt.instruction[0] for call in (good, match)]
        frame = len(frames[1]) - common_start(*frames)  # type: ignore[arg-type]
        if pages == 4000:
            assert report.fresh_tokens == filters + len(passing) * (frame + pair_tokens)
            assert report.regret_tokens == 0


def test_a_call_on_joined_pairs_is_asked_on_the_anchors_document() -> None:
    text, terms = "word " * 100, [f"term {number}" for number in range(30)]
    with Engine("oracle", token_budget=500) as engine:
        planned = engine.resolve(PAIR_SCORE, (0, 1), anchors=(0,))
        plan = Chain(("text", "term"), (), (planned,), (0,), None, (AnswerOutput("score", 0),))
        rows = pa.record_batch([pa.array([text] * 30), pa.array(terms)], names=["text", "term"])
        report = RunReport()
        got = pa.Table.from_batches(engine.run(plan, [rows], report))["score"].to_pylist()
        assert got == [expected_answer(planned, (text, term)) for term in terms]
        document = len(engine.tokenizer.encode([text]).values)
        own = engine.compile(planned).prompt.own_tokens
        assert report.fresh_tokens < document + 30 * (own + 16 + 10)
