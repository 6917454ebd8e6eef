"""What prompts have in common moves between their pieces; no prompt changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.minimum import distinct_prefixes
from quail_frames.cost.devices import ORDINARY_CPU, device
from quail_frames.cost.shapes import SHAPES
from quail_frames.plan.calls import AiClassify, AiIf
from quail_frames.plan.conditions import Answer
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected import expected_answer
from quail_frames.runtime.loading import reads_of_a_token
from quail_frames.runtime.operators.alike_partners import LEAST_SAVED, AlikePartners, sorted_questions
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.operators.starts import share_starts
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.assemble import assemble
from quail_frames.runtime.tokens.ragged import Ragged

CUE = [99]
lists = st.lists(st.lists(st.integers(0, 2), max_size=8).map(lambda tokens: [*tokens, *CUE]), max_size=12)


@given(lists)
def test_a_groups_start_begins_all_its_questions_and_leaves_something_of_each(found: list[list[int]]) -> None:
    questions = Ragged.of(found)
    questions = questions.take(sorted_questions(questions))
    around = np.zeros(len(found), dtype=np.int64)
    for level in AlikePartners.of(questions).levels:
        assert len(level.group) == len(found)
        inside = np.flatnonzero(level.group >= 0)
        for number in inside.tolist():
            start = level.starts[int(level.group[number])]
            assert around[number] < len(start) < len(questions[number])
            assert questions[number][: len(start)].tolist() == start.tolist()
        around[inside] = level.starts.lengths[level.group[inside]]
        assert (np.bincount(level.group[inside], minlength=len(level.starts)) >= 2).all()


@given(lists)
def test_groups_in_groups_miss_no_start_worth_sharing(found: list[list[int]]) -> None:
    questions = Ragged.of(found)
    questions = questions.take(sorted_questions(questions))
    computed, around = len(questions.values), np.zeros(len(found), dtype=np.int64)
    for level in AlikePartners.of(questions).levels:
        for group, start in enumerate(level.starts.lists()):
            inside = np.flatnonzero(level.group == group)
            computed -= (len(inside) - 1) * (len(start) - int(around[inside[0]]))
            around[inside] = len(start)
    least = distinct_prefixes(Ragged.of(each[:-1] for each in questions.lists()), np.zeros(len(found), dtype=np.int64))
    assert computed - len(found) - least <= len(found) * (LEAST_SAVED - 1)


def test_groups_lie_in_groups() -> None:
    found = Ragged.of([[1, 2, 3, 4, 9], [1, 2, 3, 4, 8, 9], [1, 2, 7, 9], [8, 9], [8, 8, 9], [6, 9]])
    questions = found.take(sorted_questions(found))
    levels = AlikePartners.of(questions).levels
    assert [[start.tolist() for start in level.starts.lists()] for level in levels] == [[[1, 2]], [[1, 2, 3, 4]]]
    assert [level.group.tolist() for level in levels] == [[0, 0, 0, -1, -1, -1], [0, 0, -1, -1, -1, -1]]


words = st.lists(st.sampled_from(["Is it", " good", " long", "?"]), min_size=1, max_size=4).map("".join)


@given(st.lists(words, min_size=1, max_size=4, unique=True))
@settings(max_examples=25, deadline=None)
def test_calls_with_shared_starts_ask_the_same_prompts(questions: list[str]) -> None:
    with Engine("oracle") as engine:
        specs = [AiIf(Template((text + "\n\n", Slot(0))), ("text",)) for text in questions]
        calls = [engine.compile(engine.resolve(spec, (0,))) for spec in specs]
        values = {0: engine.tokenizer.encode(["a text"])}
    for before, after in zip(calls, share_starts(calls), strict=True):
        whole = [
            assemble((*p.document, *p.instruction, *p.question), values, 1).values.tolist()
            for p in (before.prompt, after.prompt)
        ]
        assert whole[0] == whole[1]
        assert after.prompt.own_tokens == before.prompt.own_tokens


def rows_of(**columns: list[str]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(column) for column in columns.values()], names=list(columns))


def test_pairs_of_one_anchor_share_its_document_and_frame_to_the_token() -> None:
    template = Template(("How does ", Slot(0), " speak of ", Slot(1), "?"))
    document, terms = "word " * 20, [f"term {number}" for number in range(6)]
    spec = AiClassify(template, ("text", "term"), labels=("well", "ill", "not at all"))
    with Engine("oracle") as engine:
        planned = engine.resolve(spec, (0, 1), (0,))
        plan = Chain(("text", "term"), (), (planned,), (0,), None, (AnswerOutput("label", 0),))
        report = RunReport()
        found = [
            row["label"]
            for out in engine.run(plan, [rows_of(text=[document] * 6, term=terms)], report)
            for row in out.to_pylist()
        ]
        assert engine.memory.contexts.pool.free == engine.memory.pages
        prompt = engine.compile(planned).prompt
        shared = assemble((*prompt.document, *prompt.instruction), {0: engine.tokenizer.encode([document])}, 1)
        own = sum(len(piece) for piece in prompt.question if isinstance(piece, np.ndarray)) + len("term 0")
        tails = int(engine.compile(planned).readout.tails.lengths.sum())
    assert found == [expected_answer(planned, (document, term)) for term in terms]
    assert report.fresh_tokens <= len(shared.values) + 6 * (own + tails)


def test_short_starts_are_shared_where_reading_a_context_is_next_to_nothing() -> None:
    match = AiIf(Template(("Does ", Slot(0), " mention ", Slot(1), "?")), ("text", "term"))
    terms = [f"{first}{second}" for first in "abcdefgh" for second in "xyz"]
    found, tokens = {}, {}
    for reads in (1000, 30):
        with Engine("oracle") as engine:
            engine.memory.reads_of_a_token = reads
            plan = PairJoin(("text",), ("term",), engine.resolve(match, (0, 1), anchors=(0,)))
            report = RunReport()
            anchors = iter([AnchorBatch(rows_of(text=["word " * 60]))])
            found[reads] = list(engine.join(plan, anchors, rows_of(term=terms), report))
        tokens[reads] = report.fresh_tokens
    assert found[1000] == found[30]
    assert tokens[30] - tokens[1000] == 8 * 2  # a first letter is computed once for its three terms


def test_a_token_is_worth_many_reads_on_a_cpu_and_few_on_a_gpu() -> None:
    small = SHAPES["smollm2-135m"]
    assert reads_of_a_token(small, device("h100-sxm")) == pytest.approx(31, abs=2)
    assert reads_of_a_token(small.in_dtype("fp32"), ORDINARY_CPU) > 500


def test_cut_documents_that_begin_alike_are_computed_once() -> None:
    grown = ["word " * count for count in (50, 100, 150, 200)]
    call = AiIf(Template(("Is it good?\n\n", Slot(0))), ("text",), overflow="truncate")
    other = AiIf(Template(("Is it so very long?\n\n", Slot(0))), ("text",), overflow="truncate")
    with Engine("oracle", max_length=400) as engine:
        engine.memory.share_from = 1
        planned = tuple(engine.resolve(each, (0,)) for each in (call, other))
        outputs = (AnswerOutput("a", 0), AnswerOutput("b", 1))
        report = RunReport()
        list(engine.run(Chain(("text",), (), planned, (0, 1), None, outputs), [rows_of(text=grown)], report))
        assert engine.memory.contexts.pool.free == engine.memory.pages
    assert report.truncated == 6
    assert report.fresh_tokens < 400 + 4 * 16 + 8 * 100


def test_texts_that_are_equal_once_cut_are_asked_once() -> None:
    texts = ["word " * 200, "word " * 300, "word " * 200 + "end", "other " * 100, "word " * 20]
    call = AiIf(Template(("Is it good?\n\n", Slot(0))), ("text",), overflow="truncate")
    label = AiClassify(Template((Slot(0),)), ("text",), labels=("good", "gone", "bad"), overflow="truncate")
    with Engine("oracle", max_length=400) as engine:
        planned = (engine.resolve(call, (0,)), engine.resolve(label, (0,)))
        plan = Chain(("text",), (), planned, (0, 1), None, (AnswerOutput("a", 0), AnswerOutput("b", 1)))
        report = RunReport()
        batches = [rows_of(text=texts[:3]), rows_of(text=texts[3:]), rows_of(text=["word " * 400])]
        found = [row for out in engine.run(plan, batches, report) for row in out.to_pylist()]
    assert report.asks == 2 * 3 and report.truncated == 2 * 5
    assert [row["row"] for row in found] == list(range(6))
    assert len({(row["a"], row["b"]) for row in [*found[:3], found[5]]}) == 1


def test_a_filter_of_cut_texts_keeps_all_that_are_equal_once_cut() -> None:
    call = AiIf(Template(("Is it good?\n\n", Slot(0))), ("text",), overflow="truncate")
    with Engine("oracle", max_length=400) as engine:
        planned = engine.resolve(call, (0,))
        for word in ("some ", "other ", "more ", "less "):
            texts = [word * 100, word * 200, "short"]
            plan = Chain(("text",), (), (planned,), (0,), Answer(0), ())
            kept = [row["row"] for out in engine.run(plan, [rows_of(text=texts)]) for row in out.to_pylist()]
            assert (0 in kept) == (1 in kept)
