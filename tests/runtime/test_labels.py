"""Classifications answer as their scoring is defined on whole prompts, in every layout, memory and batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quail_frames.cost.shapes import SHAPES
from quail_frames.errors import CallError
from quail_frames.plan.calls import AiCall, AiClassify, AiIf
from quail_frames.plan.conditions import And, Answer, LabelTest, Mask, Or
from quail_frames.plan.physical import AnswerOutput, Chain, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.compiled import DecisionFormat, ModelTraits, make_readout
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected import expected_answer
from quail_frames.runtime.readouts.trie_decode import TrieDecodeReadout
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.resolve import resolve_call

TEXTS = st.text(alphabet="ab c\né", max_size=30).flatmap(lambda text: st.sampled_from([text, "alike " * 4 + text]))
BYTES_PER_PAGE = 8 * 16
"""Of the oracle."""
INTENTS = tuple(f"{verb} {noun}" for verb in ("lost", "stolen", "blocked") for noun in ("card", "phone", "pin", "post"))


def question(text: str, *columns: str) -> Template:
    slots = [Slot(number) for number in range(len(columns))]
    return Template((text, *[piece for slot in slots for piece in (" ", slot)]))


def label_sets() -> st.SearchStrategy[tuple[str, ...]]:
    """Labels of one to three short words from few letters, so that many share starts."""
    words = st.lists(st.text(alphabet="ab", min_size=1, max_size=3), min_size=1, max_size=3).map(" ".join)
    return st.lists(words, min_size=2, max_size=8, unique=True).map(tuple)


@st.composite
def classifications(draw: st.DrawFn) -> AiClassify:
    labels = draw(label_sets())
    starts = any(a != b and f"{b} ".startswith(a) for a in labels for b in labels)
    tries = [] if starts else ["trie_decode", "trie_decode"]
    scoring = draw(st.sampled_from(["letters", "trie_tree", "decision_choice", *tries]))
    columns = draw(st.sampled_from([("a",), ("a",), ("a", "b")]))
    layout = "document_first" if len(columns) > 1 else draw(st.sampled_from(["document_first", "question_first"]))
    probabilities = scoring != "trie_decode" and draw(st.booleans())
    template = question(draw(st.sampled_from(["", "Which?"])), *columns)
    return AiClassify(template, columns, layout=layout, labels=labels, scoring=scoring, probabilities=probabilities)  # type: ignore[arg-type]


def calls() -> st.SearchStrategy[list[AiCall]]:
    filters = st.builds(lambda n: AiIf(question(f"q{n}?", "a"), ("a",), layout="document_first"), st.integers(0, 1))
    either = st.one_of(classifications(), classifications(), classifications(), filters)
    return st.lists(either, min_size=1, max_size=4, unique_by=lambda call: call.identity)


@given(data=st.data())
@settings(max_examples=70, deadline=None)
def test_a_classification_answers_as_its_scoring_is_defined(data: st.DataObject) -> None:
    specs = data.draw(calls())
    rows = data.draw(st.lists(st.tuples(st.none() | TEXTS, st.none() | TEXTS), max_size=12))
    order = tuple(data.draw(st.permutations(range(len(specs)))))
    pages = data.draw(st.sampled_from([0, 3, 9, 20, 4000]))
    token_budget = data.draw(st.sampled_from([1, 150, 100_000]))
    size = data.draw(st.integers(1, 12))
    with Engine("oracle", kv_budget=pages * BYTES_PER_PAGE, token_budget=token_budget) as engine:
        planned = [engine.resolve(call, tuple("ab".index(column) for column in call.columns)) for call in specs]
        got = answers(engine, planned, order, rows, size)
        assert engine.memory.contexts.pool.free == engine.memory.pages, "all pages are free when a query ends"
    for number, call in enumerate(planned):
        for row, values in enumerate(rows):
            assert_same(got[row][number], expected_answer(call, values))


def answers(
    engine: Engine, planned: list[PlannedCall], order: tuple[int, ...], rows: list[tuple[str | None, ...]], size: int
) -> list[list[object]]:
    outputs = tuple(AnswerOutput(str(number), number) for number in range(len(planned)))
    plan = Chain(("a", "b"), (), tuple(planned), order, None, outputs)
    got = engine.run(plan, record_batches(rows, size))
    return [[row[output.name] for output in outputs] for batch in got for row in batch.to_pylist()]


def record_batches(rows: list[tuple[str | None, ...]], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        columns = zip(*rows[start : start + size], strict=True)
        yield pa.record_batch([pa.array(values, pa.string()) for values in columns], names=["a", "b"])


def assert_same(got: object, expected: object) -> None:
    if not isinstance(got, dict) or not isinstance(expected, dict):
        assert got == expected
        return
    assert got["label"] == expected["label"]
    assert got["probabilities"].keys() == expected["probabilities"].keys()
    shares = list(got["probabilities"].values())
    np.testing.assert_allclose(shares, list(expected["probabilities"].values()), atol=1e-12)
    assert sum(shares) == pytest.approx(1, abs=1e-6)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_rows_with_equal_texts_may_wait_for_different_calls(data: st.DataObject) -> None:
    """Masks decide which call a row needs, so that one document is asked by several at once."""
    specs: list[AiCall] = [
        AiClassify(question(f"{number}?", "a"), ("a",), layout="document_first", labels=INTENTS[:10], scoring=scoring)
        for number, scoring in enumerate(
            data.draw(st.tuples(*[st.sampled_from(["trie_decode", "trie_tree", "decision_choice"])] * 2))
        )
    ]
    specs += [AiIf(question(f"{number}?", "a"), ("a",), layout="document_first") for number in range(2)]
    rows = data.draw(st.lists(st.tuples(st.sampled_from(["x", "y" * 20]), st.integers(0, 3)), min_size=1))
    pages, token_budget = data.draw(st.sampled_from([0, 40, 4000])), data.draw(st.sampled_from([1, 700, 100_000]))
    size = data.draw(st.integers(1, 6))
    tests = [LabelTest(0, INTENTS[:5]), LabelTest(1, INTENTS[:5]), Answer(2), Answer(3)]
    with Engine("oracle", kv_budget=pages * BYTES_PER_PAGE, token_budget=token_budget) as engine:
        planned = tuple(engine.resolve(call, (0,)) for call in specs)
        keep = Or(tuple(And((Mask(number), test)) for number, test in enumerate(tests)))
        order = tuple(data.draw(st.permutations(range(4))))
        plan = Chain(("a",), tuple("0123"), planned, order, keep, ())
        batches = [masked_batch(rows[start : start + size]) for start in range(0, len(rows), size)]
        got = [row["row"] for batch in engine.run(plan, batches) for row in batch.to_pylist()]
        assert engine.memory.contexts.pool.free == engine.memory.pages
    passing = (*INTENTS[:5], True)
    assert got == [n for n, (text, chosen) in enumerate(rows) if expected_answer(planned[chosen], (text,)) in passing]


def masked_batch(rows: list[tuple[str, int]]) -> pa.RecordBatch:
    texts, chosen = zip(*rows, strict=True)
    masks = {str(number): pa.array([number == own for own in chosen]) for number in range(4)}
    return pa.record_batch({"a": pa.array(texts), **masks})


def one_call(engine: Engine, call: AiCall) -> Chain:
    return Chain(("a",), (), (engine.resolve(call, (0,)),), (0,), None, (AnswerOutput("answer", 0),))


def classify(scoring: str, labels: tuple[str, ...] = INTENTS, **options: object) -> AiClassify:
    return AiClassify(question("", "a"), ("a",), labels=labels, scoring=scoring, **options)  # type: ignore[arg-type]


def ask(engine: Engine, call: AiCall, texts: list[str]) -> tuple[list[object], RunReport]:
    report, batches = RunReport(), [pa.record_batch([pa.array(texts)], names=["a"])]
    got = engine.run(one_call(engine, call), batches, report)
    return [row["answer"] for batch in got for row in batch.to_pylist()], report


MESSAGES = [f"{number:06d} message " + "x" * (number % 9) for number in range(60)]


@pytest.mark.parametrize("layout", ["document_first", "question_first"])
@pytest.mark.parametrize("token_budget", [500, 100_000])
def test_a_further_round_feeds_only_what_follows(layout: str, token_budget: int) -> None:
    with Engine("oracle", token_budget=token_budget) as engine:
        call = classify("trie_decode", layout=layout)
        got, report = ask(engine, call, MESSAGES)
        planned = engine.resolve(call, (0,))
        compiled = engine.compile(planned)
        values = engine.tokenizer.encode(MESSAGES)
    assert got == [expected_answer(planned, (text,)) for text in MESSAGES]
    own, shared = compiled.prompt.own_tokens, sum(len(piece) for piece in compiled.prompt.instruction)  # type: ignore[arg-type]
    once = shared if layout == "question_first" else 0
    prompts = len(values.values) + len(MESSAGES) * (own - once) + once
    fed = sum(len(f" {answer}") for answer in got if answer)  # type: ignore[arg-type]
    assert prompts < report.fresh_tokens <= prompts + fed
    assert report.asks == len(MESSAGES)


def test_without_memory_a_further_round_computes_the_whole_prompt_again() -> None:
    with Engine("oracle", kv_budget=0) as engine:
        got, report = ask(engine, classify("trie_decode"), MESSAGES)
        planned = engine.resolve(classify("trie_decode"), (0,))
        own = engine.compile(planned).prompt.own_tokens
    assert got == [expected_answer(planned, (text,)) for text in MESSAGES]
    assert report.fresh_tokens > 2 * len(MESSAGES) * own


def test_trie_decode_is_refused_where_it_cannot_answer() -> None:
    with Engine("oracle") as engine:
        with pytest.raises(CallError, match=r"'trie_decode' .* 'a' .* no probabilities; use scoring='trie_tree'"):
            engine.resolve(classify("trie_decode", probabilities=True), (0,))
        with pytest.raises(CallError, match=r"cannot tell label 'pin' from 'pin code', .* use scoring='trie_tree'"):
            engine.resolve(classify("trie_decode", ("card", "pin code", "pin")), (0,))


def test_letters_are_refused_where_the_model_has_too_few() -> None:
    with Engine("oracle") as engine, pytest.raises(CallError, match=r"for 52 labels .*, not for 60; use .*'trie_tree'"):
        engine.resolve(classify("letters", tuple(f"label {number}" for number in range(60))), (0,))


def test_a_model_without_a_decision_head_refuses_to_decide() -> None:
    with Engine("oracle") as engine, pytest.raises(CallError, match=r"'decision_choice' .* 'a' needs a model with a"):
        call = classify("decision_choice")
        resolve_call(call, (0,), (), engine.tokenizer, ModelTraits(), SHAPES["smollm2-135m"])


@pytest.mark.parametrize("scoring", ["auto", "by_cost"])
def test_auto_is_what_the_models_spec_prefers(scoring: str) -> None:
    traits = ModelTraits(decision=DecisionFormat(), default_label_scoring="decision_choice")
    with Engine("oracle") as engine:
        planned = resolve_call(classify(scoring), (0,), (), engine.tokenizer, traits, SHAPES["smollm2-135m"])
    assert planned.scoring == "decision_choice"


@given(labels=st.permutations(INTENTS[:6]))
@settings(max_examples=20, deadline=None)
def test_decisions_do_not_depend_on_the_order_of_the_labels(labels: list[str]) -> None:
    with Engine("oracle") as engine:
        first, again = (
            ask(engine, classify("decision_choice", tuple(order), probabilities=True), MESSAGES[:4])[0]
            for order in (INTENTS[:6], labels)
        )
    assert [row["label"] for row in again] == [row["label"] for row in first]  # type: ignore[index]
    for row, other in zip(first, again, strict=True):
        assert other["probabilities"] == pytest.approx(row["probabilities"], abs=1e-12)  # type: ignore[index]


def test_options_in_sequence_are_fed_as_plain_text() -> None:
    traits = ModelTraits(decision=DecisionFormat(masked=False, blocks="json"))
    with Engine("oracle") as engine:
        call = classify("decision_choice", ("no", "yes"), descriptions=(None, "it is"))
        readout = make_readout(engine.resolve(call, (0,)), engine.tokenizer, traits)
        text = engine.tokenizer.decode(readout.tails[0])
    assert text == '\n{"label": "no"}\n{"label": "yes", "description": "it is"}\nANSWER:'
    assert readout.tree is None and readout.depth == len(readout.tails[0])
    ends = [engine.tokenizer.decode(readout.tails[0][: len(readout.tails[0]) + 1 + read]) for read in readout.reads]
    assert [end[-1] for end in ends] == ["}", "}", ":"]


@pytest.mark.parametrize("token_budget", [400, 100_000])
def test_decisions_about_pairs_read_their_options_behind_the_partner(token_budget: int) -> None:
    rows: list[tuple[str | None, ...]] = [(f"anchor {number // 5}", f"b{number}") for number in range(20)]
    call = AiClassify(question("Which?", "a", "b"), ("a", "b"), labels=INTENTS[:4], scoring="decision_choice")
    with Engine("oracle", token_budget=token_budget) as engine:
        planned = [engine.resolve(call, (0, 1), anchors=(anchor,)) for anchor in (0, 1)]
        got = answers(engine, planned, (0, 1), rows, 7)
        assert engine.memory.contexts.pool.free == engine.memory.pages
    assert got == [[expected_answer(each, values) for each in planned] for values in rows]


@pytest.mark.parametrize("device", ["null", "cpu"])
def test_a_decision_reads_one_row_for_each_option_on_every_device(device: str) -> None:
    with Engine("oracle", device=device, token_budget=300) as engine:
        got, report = ask(engine, classify("decision_choice"), MESSAGES)
    assert set(got) <= set(INTENTS) and len(set(got)) > 3
    assert report.asks == len(MESSAGES)


@pytest.mark.parametrize("scoring", ["auto", "by_cost"])
def test_auto_takes_what_adds_least_to_a_prompt(scoring: str) -> None:
    with Engine("oracle") as engine:
        chosen = [
            engine.resolve(call, (0,)).scoring
            for call in (
                classify(scoring, ("card", "phone", "mail")),
                classify(scoring, ("a", "ab", "c")),
                classify(scoring, tuple(f"label {number}" for number in range(60)), probabilities=True),
                classify(scoring, tuple("a" * 70 + letter for letter in "bcd")),
            )
        ]
    assert chosen == ["trie_decode", "trie_tree", "trie_tree", "letters"]


def test_auto_layout_puts_a_long_list_first_only_for_one_column() -> None:
    long = tuple(f"label number {number}" for number in range(60))
    with Engine("oracle") as engine:
        assert engine.resolve(classify("auto", long), (0,)).layout == "question_first"
        assert engine.resolve(classify("auto", ("a", "b")), (0,)).layout == "document_first"
        two = AiClassify(question("", "a", "b"), ("a", "b"), labels=long)
        assert engine.resolve(two, (0, 1)).layout == "document_first"
        with pytest.raises(CallError, match="one column; AiClassify reads 'a', 'b'"):
            engine.resolve(AiClassify(two.template, two.columns, labels=long, layout="question_first"), (0, 1))


@pytest.mark.parametrize("scoring", ["letters", "trie_decode", "trie_tree", "decision_choice"])
def test_ties_go_to_the_earlier_label(scoring: str) -> None:
    with Engine("oracle") as engine:
        call = engine.compile(engine.resolve(classify(scoring, ("zebra", "ant", "bee")), (0,)))
        rows, ids = len(call.readout.reads), len(call.spec.token_ids) + int(call.spec.normalize)
        shape = (1, call.spec.options) if call.spec.options else (rows, ids)
        flat = np.full(shape, -5, dtype=np.float32)
        if isinstance(call.readout, TrieDecodeReadout):
            label = call.readout.advance(np.zeros(1, dtype=np.int64), flat)[0]
        else:
            label = call.decode(flat).values
    assert label.tolist() == [0]


@pytest.mark.parametrize("overflow", ["null", "truncate"])
def test_a_prompt_leaves_room_for_its_answer(overflow: str) -> None:
    call = classify("trie_decode", overflow=overflow, layout="document_first")
    with Engine("oracle", max_length=300) as engine:
        planned = engine.resolve(call, (0,))
        room = 300 - engine.compile(planned).positions
        texts = ["y" * (room - 1), "y" * room, "y" * (room + 1), "y" * 900]
        got, report = ask(engine, call, texts)
    fitting = [expected_answer(planned, (text[:room],)) for text in texts]
    assert got == (fitting if overflow == "truncate" else [*fitting[:2], None, None])
    assert report.truncated + report.overflowed == 2


def test_a_long_list_asked_first_leaves_the_batch_to_the_rows() -> None:
    labels = tuple(f"label number {number}" for number in range(60))
    with Engine("oracle", token_budget=2000) as engine:
        call = classify("letters", labels[:50], layout="question_first")
        _, report = ask(engine, call, MESSAGES)
    assert report.batches <= report.fresh_tokens / 2000 + 2


def test_calls_that_lay_out_the_same_columns_differently_share_no_document() -> None:
    rows: list[tuple[str | None, ...]] = [(f"a{number}", f"b{number}") for number in range(20)]
    forwards = AiClassify(question("", "a", "b"), ("a", "b"), labels=INTENTS, scoring="trie_decode")
    backwards = AiClassify(Template((Slot(1), Slot(0))), ("b", "a"), labels=INTENTS, scoring="trie_decode")
    with Engine("oracle") as engine:
        planned = [engine.resolve(forwards, (0, 1)), engine.resolve(backwards, (1, 0))]
        planned.append(engine.resolve(forwards, (0, 1), anchors=(0,)))
        got = answers(engine, planned, (0, 1, 2), rows, 20)
    assert got == [[expected_answer(call, values) for call in planned] for values in rows]
