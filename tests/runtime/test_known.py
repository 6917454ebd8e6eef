"""What one operator of a query was told, another that asks the same does not ask again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quail_frames as qf
from benchmarks.minimum import minimum_tokens
from quail_frames.plan.calls import AiClassify, AiIf
from quail_frames.plan.conditions import Answer
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.compiled import compile_call
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.operators.candidates import AnchorBatch, Candidates
from quail_frames.runtime.operators.known import KnownAnswers, KnownPairs, KnownRows
from quail_frames.runtime.operators.lane import CallState
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.assemble import assemble, concatenate
from quail_frames.runtime.tokens.ragged import offsets_of

MATCH = AiIf(Template(("Does ", Slot(0), " mention ", Slot(1), "?")), ("text", "term"))
ALIAS = AiIf(MATCH.template, ("text_right", "word"))
GOOD = AiIf(Template(("Is ", Slot(0), " good?")), ("text",))
TOPIC = AiClassify(Template((Slot(0),)), ("text",), labels=("plot", "acting"), probabilities=True)
TEXTS = st.lists(st.none() | st.text(alphabet="ab é", max_size=6), max_size=8)


@contextmanager
def query_on(engine: Engine) -> Iterator[RunReport]:
    """The report of one query, which ends."""
    report = RunReport()
    try:
        yield report
    finally:
        engine.end(report)
        assert not len(engine._known)
        assert engine.memory.contexts.pool.free == engine.memory.pages


@pytest.fixture(scope="module")
def engines() -> Iterator[list[Engine]]:
    """Engines whose batches are of one ask, of some, and of all."""
    with Engine("oracle", token_budget=1) as one, Engine("oracle", token_budget=200) as some, Engine("oracle") as all_:
        yield [one, some, all_]


def batch(name: str, values: list[str | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.string())], names=[name])


def pairs_of(
    engine: Engine, plan: PairJoin, texts: Any, terms: Any, some: Any, report: RunReport, later: Any = ()
) -> list[Any]:
    candidates = None
    if some is not None:
        lengths = np.array([len(own) for own in some], dtype=np.int64)
        candidates = Candidates.of_rows(np.array([row for own in some for row in own]), offsets_of(lengths))
    anchors = iter([AnchorBatch(batch("text", texts), candidates)] if texts else [])
    found = engine.join(plan, anchors, batch("term", terms), report, [batch("term", each) for each in later])
    return [tuple(row.values()) for out in found for row in out.to_pylist()]


@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_joins_that_ask_the_same_find_what_they_would_alone(data: st.DataObject, engines: list[Engine]) -> None:
    engine = data.draw(st.sampled_from(engines))
    asked = set[tuple[str, str]]()
    partners = [data.draw(TEXTS), data.draw(TEXTS)]
    with query_on(engine) as together:
        for number, call in enumerate((MATCH, ALIAS)):
            texts, terms = data.draw(TEXTS), partners[number]
            some = st.lists(st.integers(0, max(len(terms) - 1, 0)), max_size=len(terms), unique=True).map(sorted)
            pairs = data.draw(st.none() | st.lists(some, min_size=len(texts), max_size=len(texts)))
            stop = data.draw(st.sampled_from(["never", "first_true"]))
            planned, retain = engine.resolve(call, (0, 1), anchors=(0,)), number == 0
            plan = PairJoin(("text",), ("term",), planned, stop, retain, remember=True)
            before = together.asks
            found = pairs_of(engine, plan, texts, terms, pairs, together, partners[number + 1 :])
            assert found == pairs_of(
                engine, replace(plan, retain=False, remember=False), texts, terms, pairs, RunReport()
            )
            everything = [list(range(len(terms)))] * len(texts)
            wanted = {
                (texts[row], terms[term])
                for row, own in enumerate(everything if pairs is None else pairs)
                for term in own
                if texts[row] is not None and terms[term] is not None
            }
            if stop == "never":
                assert together.asks - before == len(wanted - asked)
            if stop == "never" or not wanted - asked:
                asked |= wanted
            else:
                break  # which pairs a semi join has asked depends on its waves


@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_chains_that_ask_the_same_answer_as_they_would_alone(data: st.DataObject, engines: list[Engine]) -> None:
    engine = data.draw(st.sampled_from(engines))
    calls = (engine.resolve(GOOD, (0,)), engine.resolve(TOPIC, (0,)))
    outputs = (AnswerOutput("good", 0), AnswerOutput("topic", 1))
    asked = set[str]()
    with query_on(engine) as together:
        for _ in range(2):
            texts = data.draw(TEXTS)
            keep = data.draw(st.sampled_from([None, Answer(0)]))
            plan = Chain(("text",), (), calls, (0, 1), keep, outputs, remember=(0, 1))
            before = together.asked[GOOD.identity]
            found = rows(engine.run(plan, iter([batch("text", texts)]), together))
            assert found == rows(engine.run(replace(plan, remember=()), iter([batch("text", texts)])))
            wanted = {text for text in texts if text is not None}
            assert together.asked[GOOD.identity] - before == len(wanted - asked)
            asked |= wanted


def rows(batches: Iterator[pa.RecordBatch]) -> list[Any]:
    return [row for out in batches for row in out.to_pylist()]


def test_two_joins_with_one_question_ask_a_pair_once_and_say_so() -> None:
    reports = pl.DataFrame({"text": [f"report {number}" for number in range(6)]})
    reactions = pl.DataFrame({"text": [f"reaction {number}" for number in range(5)], "kind": [*"aabbb"]})
    question = "Does {left.text} describe {right.text}?"
    with Engine("oracle") as engine:
        one = qf.lazy(reports, engine=engine).ai_join(reactions.head(3), question)
        both = one.ai_join(reactions.tail(3), question, suffix="_2")
        report, first = RunReport(), RunReport()
        both.collect(report=report)
        passed = one.collect(report=first)["text"].n_unique()
    assert first.asks == 18 and passed > 0
    assert report.asks == 18 + 2 * passed  # the third reaction is in both
    assert report.deduplicated >= passed
    assert "asked elsewhere in this query too" in both.explain()
    assert "asked elsewhere" not in one.explain()


@pytest.mark.parametrize(("reads", "over"), [(1000, 1.0), (1, 1.1)])
def test_what_partners_of_two_joins_begin_with_is_computed_once(reads: int, over: float, engines: list[Engine]) -> None:
    first, second = ["alpha one", "beta one", "gamma"], ["alpha two", "beta two", "alpine", "gamma"]
    texts = ["a text", "another"]
    with Engine("oracle") as engine, query_on(engine) as report:
        engine.memory.reads_of_a_token = reads
        for terms, later, retain in ((first, [second], True), (second, [], False)):
            planned = engine.resolve(MATCH, (0, 1), anchors=(0,))
            plan = PairJoin(("text",), ("term",), planned, retain=retain, remember=True)
            found = pairs_of(engine, plan, texts, terms, None, report, later)
            alone = replace(plan, retain=False, remember=False)
            assert found == pairs_of(engines[-1], alone, texts, terms, None, RunReport())
        prompt, terms = engine.compile(planned).prompt, list(dict.fromkeys(first + second))
        values = {0: engine.tokenizer.encode(texts), 1: engine.tokenizer.encode(terms)}
        prompts = [
            assemble((*prompt.document, *prompt.instruction, *prompt.question), each, 1)
            for text, term in itertools.product(range(len(texts)), range(len(terms)))
            for each in [{0: values[0].take(np.array([text])), 1: values[1].take(np.array([term]))}]
        ]
        least = minimum_tokens(concatenate(prompts), np.repeat(np.arange(len(texts)), len(terms)))
    assert least <= report.fresh_tokens <= over * least


@pytest.mark.parametrize("kind", ["self join", "the same frame twice"])
def test_a_filter_on_both_sides_of_a_self_join_is_asked_once(kind: str) -> None:
    frame = pl.DataFrame({"id": range(20), "text": [f"text {number}" for number in range(20)]})
    with Engine("oracle") as engine:
        query, report = qf.lazy(frame, engine=engine), RunReport()
        good = query.ai_filter("Is {text} good?")
        other = good if kind == "the same frame twice" else qf.lazy(frame).ai_filter("Is {text} good?")
        found = good.join(other, how="cross", suffix="_2").collect(report=report)
    assert report.asks == 20 and found.height > 0


def test_the_same_words_about_other_columns_are_one_question() -> None:
    assert MATCH.identity != ALIAS.identity and MATCH.wording == ALIAS.wording
    known, owner = KnownAnswers(), RunReport()
    one = PlannedCall(MATCH, (0, 1), "document_first", "true_false", anchors=(0,))
    other = PlannedCall(ALIAS, (0, 1), "document_first", "true_false", anchors=(0,))
    turned = PlannedCall(ALIAS, (1, 0), "document_first", "true_false", anchors=(1,))
    assert known.pairs(one, 1, owner) is known.pairs(other, 1, RunReport())
    assert known.pairs(turned, 1, owner) is not known.pairs(one, 1, owner)
    known.end(owner)
    assert len(known) == 1  # another query may still come back


def test_columns_shown_twice_are_not_taken_for_others() -> None:
    triple = AiIf(Template((Slot(0), Slot(1), Slot(2))), ("a", "b", "c"))
    known, owner = KnownAnswers(), RunReport()
    first, last = (PlannedCall(triple, inputs, "document_first", "true_false") for inputs in ((0, 0, 1), (0, 1, 1)))
    assert known.rows(first, owner) is not known.rows(last, owner)


def test_what_is_known_is_bounded() -> None:
    pairs = KnownPairs(most=8)
    numbers = pairs.numbers(["x", "y", "z"])
    for anchor in range(4):
        pairs.add(anchor, numbers, np.array([True, False, True]))
    assert pairs.truths(0, numbers).tolist() == [-1, -1, -1]
    assert pairs.truths(3, numbers).tolist() == [1, 0, 1]
    assert pairs.truths(3, pairs.numbers(["w", "x"])).tolist() == [-1, 1]
    with Engine("oracle") as engine:
        state = CallState(compile_call(engine.resolve(GOOD, (0,)), engine.tokenizer, engine.traits))
    rows = KnownRows(most=2)
    units = np.arange(3)
    rows.add(["a", "b", "c"], state, units)
    assert (rows.slots(["a", "b", "c", "d"]) >= 0).tolist() == [True, True, True, False]
    rows.add(["d"], state, units[:1])
    assert (rows.slots(["a", "d"]) >= 0).tolist() == [False, True]
