"""A chain's answers are those of each row's whole prompt, whatever the batches, memory, order and duplicates."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quail_frames.errors import ContextOverflowError
from quail_frames.plan.calls import AiCall, AiClassify, AiIf, AiScore
from quail_frames.plan.conditions import And, Answer, Condition, LabelTest, Mask, Not, Or, ScoreTest
from quail_frames.plan.physical import AnswerOutput, Chain, ConditionOutput, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected import expected_answer
from quail_frames.runtime.report import RunReport

LABELS = ("billing", "refund request", "other")
TEXTS = st.text(alphabet="ab c\n{<é🙂", max_size=40)


def question(text: str, *columns: str) -> Template:
    slots = [Slot(number) for number in range(len(columns))]
    return Template((text, *[piece for slot in slots for piece in (" ", slot)]))


def calls() -> st.SearchStrategy[list[AiCall]]:
    layout = st.sampled_from(["document_first", "question_first"])
    share = st.sampled_from([None, 0.01, 0.5, 0.99])
    ifs = st.builds(
        lambda n, lay, share: AiIf(question(f"q{n}?", "a"), ("a",), share, layout=lay), st.integers(0, 3), layout, share
    )
    both = st.integers(0, 2)
    pairs = st.builds(lambda n, share: AiIf(question(f"both{n}?", "a", "b"), ("a", "b"), share), both, share)
    scores = st.builds(lambda lay, share: AiScore(question("how?", "a"), ("a",), share, layout=lay), layout, share)
    labels = st.builds(
        lambda lay: AiClassify(question("", "a"), ("a",), labels=LABELS, layout=lay, scoring="letters"), layout
    )
    return st.lists(st.one_of(ifs, pairs, scores, labels), min_size=1, max_size=4, unique_by=lambda call: call.identity)


def leaf(number: int, call: AiCall) -> Condition:
    if isinstance(call, AiScore):
        return ScoreTest(number, "gt", 0.5)
    return LabelTest(number, LABELS[:2]) if isinstance(call, AiClassify) else Answer(number)


def conditions(specs: list[AiCall]) -> st.SearchStrategy[Condition]:
    leaves = st.sampled_from([Mask(0), *[leaf(number, call) for number, call in enumerate(specs)]])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, min_size=2, max_size=3).map(lambda terms: And(tuple(terms))),
            st.lists(inner, min_size=2, max_size=3).map(lambda terms: Or(tuple(terms))),
        ),
        max_leaves=5,
    )


def truth(condition: Condition, answers: list[object], mask: bool | None) -> bool | None:
    """Three-valued logic, one row at a time."""
    if isinstance(condition, Mask):
        return mask
    if isinstance(condition, Not):
        inner = truth(condition.term, answers, mask)
        return None if inner is None else not inner
    if isinstance(condition, And | Or):
        deciding = isinstance(condition, Or)
        terms = [truth(term, answers, mask) for term in condition.terms]
        return deciding if deciding in terms else None if None in terms else not deciding
    answer = answers[condition.call]
    if answer is None or isinstance(condition, Answer):
        return answer  # type: ignore[return-value]
    return answer in condition.labels if isinstance(condition, LabelTest) else answer > condition.value  # type: ignore[operator]


def plan_inputs(call: AiCall) -> tuple[int, ...]:
    return tuple("ab".index(column) for column in call.columns)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_chain_answers_like_whole_prompts(data: st.DataObject) -> None:
    specs = data.draw(calls())
    keep = data.draw(st.none() | conditions(specs))
    shown = data.draw(conditions(specs))
    rows = data.draw(
        st.lists(st.tuples(st.none() | TEXTS, st.none() | TEXTS, st.sampled_from([True, False, None])), max_size=25)
    )
    order = tuple(data.draw(st.permutations(range(len(specs)))))
    kv_budget = data.draw(st.sampled_from([0, 8 * 16 * 3, 8 * 16 * 12, 1 << 20]))
    token_budget = data.draw(st.sampled_from([1, 150, 100_000]))
    cut = data.draw(st.integers(1, 10))
    with Engine("oracle", kv_budget=kv_budget, token_budget=token_budget) as engine:
        planned = [engine.resolve(call, plan_inputs(call)) for call in specs]
        answers = [AnswerOutput(f"c{number}", number) for number in range(len(specs))]
        outputs = (*answers, ConditionOutput("shown", shown))
        plan = Chain(("a", "b"), ("m",), tuple(planned), order, keep, outputs, learn=data.draw(st.booleans()))
        got = [row for batch in engine.run(plan, record_batches(rows, cut)) for row in batch.to_pylist()]
        assert engine.memory.contexts.pool.free == engine.memory.pages, "all pages are free when a query ends"
    assert got == list(expected_rows(planned, keep, shown, rows))


def expected_rows(
    planned: list[PlannedCall],
    keep: Condition | None,
    shown: Condition,
    rows: list[tuple[str | None, str | None, bool | None]],
) -> Iterator[dict[str, object]]:
    for number, (a, b, mask) in enumerate(rows):
        answers: list[object] = [expected_answer(call, (a, b)) for call in planned]
        if keep is None or truth(keep, answers, mask):
            named = {f"c{n}": answer for n, answer in enumerate(answers)}
            yield {"row": number, **named, "shown": truth(shown, answers, mask)}


def record_batches(rows: list[tuple[str | None, str | None, bool | None]], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        a, b, m = zip(*rows[start : start + size], strict=True)
        yield pa.record_batch(
            {"a": pa.array(a, pa.string()), "b": pa.array(b, pa.string()), "m": pa.array(m, pa.bool_())}
        )


def texts_batch(*texts: str) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"a": pa.array(texts, pa.string())})


def one_call(engine: Engine, call: AiCall, **options: object) -> Chain:
    planned = engine.resolve(call, (0,))
    return Chain(("a",), (), (planned,), (0,), None, (AnswerOutput("answer", 0),), **options)  # type: ignore[arg-type]


SPAM = AiIf(question("Spam?", "a"), ("a",))


def test_equal_texts_are_asked_once_across_batches() -> None:
    with Engine("oracle") as engine:
        report = RunReport()
        batches = [*texts_batch(*["same"] * 10), *texts_batch(*["same"] * 10)]
        answers = pa.Table.from_batches(engine.run(one_call(engine, SPAM), batches, report))["answer"]
    assert len(answers.unique()) == 1 and len(answers) == 20
    assert (report.asks, report.answers, report.rows) == (1, 20, 20)


def test_a_short_circuit_asks_only_what_can_change_the_filter() -> None:
    texts = [f"text {number}" for number in range(200)]
    second = AiIf(question("Urgent?", "a"), ("a",))
    with Engine("oracle") as engine:
        planned = tuple(engine.resolve(call, (0,)) for call in (SPAM, second))
        plan = Chain(("a",), (), planned, (0, 1), And((Answer(0), Answer(1))), (), learn=False)
        report = RunReport()
        list(engine.run(plan, texts_batch(*texts), report))
    passing = sum(expected_answer(planned[0], (text,)) is True for text in texts)
    assert report.asks == len(texts) + passing


def test_a_document_is_computed_once_for_a_chain_of_questions() -> None:
    document = "word " * 100
    specs = [AiIf(question(f"Question number {n}?", "a"), ("a",)) for n in range(3)]
    with Engine("oracle") as engine:
        planned = tuple(engine.resolve(call, (0,)) for call in specs)
        outputs = tuple(AnswerOutput(str(n), n) for n in range(3))
        report = RunReport()
        list(engine.run(Chain(("a",), (), planned, (0, 1, 2), None, outputs), texts_batch(document), report))
        prompts = [engine.compile(call).prompt for call in planned]
        values = len(engine.tokenizer.encode([document]).values)
        common = len(engine.tokenizer.encode(["Question number"]).values)
    suffixes = [sum(len(piece) for piece in prompt.question) for prompt in prompts]  # type: ignore[arg-type]
    assert report.fresh_tokens == prompts[0].own_tokens + values + suffixes[1] + suffixes[2] - 2 * common


@pytest.mark.parametrize("overflow", ["error", "null", "truncate"])
def test_a_prompt_longer_than_the_context_follows_the_overflow_policy(overflow: str) -> None:
    call = AiIf(question("Spam?", "a"), ("a",), overflow=overflow)  # type: ignore[arg-type]
    with Engine("oracle", max_length=200) as engine:
        plan = one_call(engine, call)
        report = RunReport()
        run = engine.run(plan, texts_batch("short", "x" * 1000, "tail"), report)
        if overflow == "error":
            assert [row["row"] for row in next(run).to_pylist()] == [0]
            with pytest.raises(
                ContextOverflowError, match=r"row 1: the prompt of AiIf on column 'a' has 10\d\d tokens"
            ) as info:
                list(run)
            assert (info.value.row, info.value.limit) == (1, 200)
            return
        answers = [row["answer"] for batch in run for row in batch.to_pylist()]
        room = 200 - engine.compile(plan.calls[0]).prompt.own_tokens
        middle = None if overflow == "null" else expected_answer(plan.calls[0], ("x" * room,))
        assert answers == [
            expected_answer(plan.calls[0], ("short",)),
            middle,
            expected_answer(plan.calls[0], ("tail",)),
        ]
        assert (report.truncated, report.overflowed) == ((0, 1) if overflow == "null" else (1, 0))


def test_a_limit_gives_the_first_kept_rows_and_asks_little_more() -> None:
    texts = [f"text {number}" for number in range(3000)]
    with Engine("oracle", token_budget=2000) as engine:
        planned = engine.resolve(SPAM, (0,))
        plan = Chain(("a",), (), (planned,), (0,), Answer(0), (), limit=5)
        report = RunReport()
        rows = [row["row"] for batch in engine.run(plan, texts_batch(*texts), report) for row in batch.to_pylist()]
    assert rows == [n for n, text in enumerate(texts) if expected_answer(planned, (text,))][:5]
    assert report.asks < 100


def test_a_cancelled_run_frees_its_memory() -> None:
    with Engine("oracle", token_budget=500) as engine:
        specs = [AiIf(question(f"{n}?", "a"), ("a",)) for n in range(2)]
        planned = tuple(engine.resolve(call, (0,)) for call in specs)
        outputs = tuple(AnswerOutput(str(n), n) for n in range(2))
        run = engine.run(
            Chain(("a",), (), planned, (0, 1), None, outputs), texts_batch(*[f"t {n}" for n in range(5000)])
        )
        next(run)
        run.close()
        assert engine.memory.contexts.pool.free == engine.memory.pages


def test_forgetting_equal_texts_costs_asks_but_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quail_frames.runtime.operators.lane.REMEMBERED", 3)
    texts = [f"text {number % 7}" for number in range(60)]
    with Engine("oracle", token_budget=300) as engine:
        plan = one_call(engine, SPAM)
        report = RunReport()
        batches = [batch for start in range(0, 60, 5) for batch in texts_batch(*texts[start : start + 5])]
        answers = [row["answer"] for batch in engine.run(plan, batches, report) for row in batch.to_pylist()]
        assert answers == [expected_answer(plan.calls[0], (text,)) for text in texts]
    assert 7 < report.asks <= 60
