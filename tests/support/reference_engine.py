"""A row-at-a-time interpreter of chains whose answers are a hash of call and texts.

It shares no code with the runtime (not even the truth tables), so agreement of the two
says something. It counts every ask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

from quail_frames.errors import ContextOverflowError
from quail_frames.plan.calls import AiCall, AiClassify, AiIf, AiScore
from quail_frames.plan.conditions import And, Answer, Condition, LabelTest, Mask, Not, Or, ScoreTest, conjuncts
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin, PlannedCall
from quail_frames.runtime.operators.candidates import AnchorBatch

Answered = bool | float | str | dict[str, Any] | None
PENDING = object()
ARROW = {AiIf: pa.bool_(), AiScore: pa.float64(), AiClassify: pa.string()}


class ReferenceEngine:
    """Answers chains from hashes; `asks` lists every (call identity, texts) asked, in order.

    Parameters
    ----------
    name
        Two engines of different names give different answers.
    limit
        Most characters of a prompt's texts; longer ones overflow.
    """

    def __init__(self, name: str = "reference", limit: int | None = None) -> None:
        self.model_name = self.identity = name
        self.limit = limit
        self.closed = False
        self.asks: list[tuple[AiCall, tuple[str, ...]]] = []

    def __enter__(self) -> ReferenceEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True

    def end(self, report: Any) -> None:
        """Nothing is retained."""

    def resolve(self, call: AiCall, inputs: tuple[int, ...], anchors: tuple[int, ...] = ()) -> PlannedCall:
        scoring = "letters" if isinstance(call, AiClassify) else "true_false"
        selectivity = 0.2 if call.selectivity is None else call.selectivity
        return PlannedCall(call, inputs, "document_first", scoring, selectivity, anchors)

    def run(self, plan: Chain, batches: Iterable[pa.RecordBatch], report: Any = None) -> Iterator[pa.RecordBatch]:
        known: dict[tuple[int, tuple[str, ...]], Answered] = {}
        row = kept = 0
        for batch in batches:
            out: dict[str, list[Any]] = {"row": [], **{output.name: [] for output in plan.outputs}}
            for values in batch.to_pylist():
                answers = RowAnswers(self, plan, values, row, known)
                if (plan.limit is None or kept < plan.limit) and answers.kept():
                    kept += 1
                    out["row"].append(row)
                    for name, value in answers.outputs().items():
                        out[name].append(value)
                row += 1
            schema = output_schema(plan).with_metadata({"decided": str(row)})
            yield pa.RecordBatch.from_pydict(out, schema=schema)
            if plan.limit is not None and kept >= plan.limit:
                return

    def join(
        self,
        plan: PairJoin,
        anchors: Iterable[AnchorBatch],
        partners: pa.RecordBatch,
        report: Any = None,
        later: Sequence[pa.RecordBatch] = (),
    ) -> Iterator[pa.RecordBatch]:
        known: dict[tuple[str, ...], Answered] = {}
        right = [tuple(partner.values()) for partner in partners.to_pylist()]
        row = 0
        for batch in anchors:
            out: list[tuple[int, int | bool]] = []
            for number, left in enumerate(batch.rows.to_pylist()):
                among = range(len(right)) if batch.candidates is None else batch.candidates.rows(number).tolist()
                true = self.true_partners(plan, row, tuple(left.values()), right, among, known)
                out += [(row, bool(true))] if plan.stop == "first_true" else [(row, partner) for partner in true]
                row += 1
            second = pa.array([value for _, value in out], pa.bool_() if plan.stop == "first_true" else pa.uint64())
            first = pa.array([anchor for anchor, _ in out], pa.uint64())
            names = ["anchor", "matched" if plan.stop == "first_true" else "partner"]
            yield pa.record_batch([first, second], names=names, metadata={"decided": str(row)})

    def true_partners(
        self, plan: PairJoin, row: int, left: tuple, right: list[tuple], among: Iterable[int], known: dict
    ) -> list[int]:
        """Partners with answer TRUE, in order; only the first one where the join stops there."""
        true: list[int] = []
        for partner in among:
            texts = tuple((*left, *right[partner])[i] for i in plan.call.inputs)
            if any(text is None for text in texts):
                continue
            if texts not in known:
                known[texts] = self.answer(plan.call.call, texts, row)
            if known[texts]:
                true.append(partner)
                if plan.stop == "first_true":
                    break
        return true

    def answer(self, call: AiCall, texts: tuple[str, ...], row: int) -> Answered:
        if self.limit is not None and sum(map(len, texts)) > self.limit:
            if call.overflow == "error":
                tokens = sum(map(len, texts))
                raise ContextOverflowError(f"row {row} overflows", row=row, tokens=tokens, limit=self.limit)
            if call.overflow == "null":
                return None
        self.asks.append((call, texts))
        return expected(self.identity, call, texts)


class RowAnswers:
    """One row's walk through a chain."""

    def __init__(self, engine: ReferenceEngine, plan: Chain, values: dict[str, Any], row: int, known: dict) -> None:
        self.engine, self.plan, self.values, self.row, self.known = engine, plan, values, row, known
        self.answers: dict[int, Answered] = {}

    def kept(self) -> bool:
        if self.plan.keep is None:
            return True
        terms = conjuncts(self.plan.keep)
        for number in self.plan.order:
            truths = [self.truth(term) for term in terms]
            if False in truths or None in truths:
                return False
            if any(number in pending_calls(term, self) for term in terms):
                self.ask(number)
        return all(self.truth(term) is True for term in terms)

    def outputs(self) -> dict[str, Answered]:
        out: dict[str, Answered] = {}
        for output in self.plan.outputs:
            if isinstance(output, AnswerOutput):
                out[output.name] = self.ask(output.call)
                continue
            for number in self.plan.order:
                if number in pending_calls(output.condition, self):
                    self.ask(number)
            out[output.name] = self.truth(output.condition)
        return out

    def ask(self, number: int) -> Answered:
        if number not in self.answers:
            planned = self.plan.calls[number]
            texts = tuple(self.values[self.plan.inputs[i]] for i in planned.inputs)
            if any(text is None for text in texts):
                self.answers[number] = None
            else:
                if (number, texts) not in self.known:
                    self.known[number, texts] = self.engine.answer(planned.call, texts, self.row)
                self.answers[number] = self.known[number, texts]
        return self.answers[number]

    def truth(self, condition: Condition) -> Any:
        """True, False, None (null) or PENDING."""
        if isinstance(condition, Mask):
            return self.values[self.plan.masks[condition.mask]]
        if isinstance(condition, Not):
            inner = self.truth(condition.term)
            return inner if inner is None or inner is PENDING else not inner
        if isinstance(condition, And | Or):
            decides = isinstance(condition, Or)
            truths = [self.truth(term) for term in condition.terms]
            if decides in truths:
                return decides
            return PENDING if PENDING in truths else None if None in truths else not decides
        if condition.call not in self.answers:
            return PENDING
        answer = self.answers[condition.call]
        return None if answer is None else tested(condition, answer)


def pending_calls(condition: Condition, row: RowAnswers) -> set[int]:
    """Calls that can still change the condition."""
    if row.truth(condition) is not PENDING:
        return set()
    if isinstance(condition, Not):
        return pending_calls(condition.term, row)
    if isinstance(condition, And | Or):
        return set().union(*(pending_calls(term, row) for term in condition.terms))
    return {condition.call}  # type: ignore[union-attr]


def tested(test: Answer | ScoreTest | LabelTest, answer: Any) -> bool:
    if isinstance(test, Answer):
        return bool(answer)
    if isinstance(test, LabelTest):
        return (answer in test.labels) is not test.negated
    left, right = answer, test.value
    return {
        "lt": left < right,
        "le": left <= right,
        "gt": left > right,
        "ge": left >= right,
        "eq": left == right,
        "ne": left != right,
    }[test.comparison]


def expected(identity: str, call: AiCall, texts: tuple[str, ...]) -> Answered:
    """The answer of an engine of this identity, about uniform over the answers."""
    key = "\x1f".join([identity, call.kind, repr(call.template), repr(getattr(call, "labels", ())), *texts])
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    if isinstance(call, AiIf):
        return number % 2 == 0
    if isinstance(call, AiScore):
        return (number % 1001) / 1000
    assert isinstance(call, AiClassify)
    label = call.labels[number % len(call.labels)]
    if not call.probabilities:
        return label
    rest = 0.5 / (len(call.labels) - 1)
    return {"label": label, "probabilities": {name: 0.5 if name == label else rest for name in call.labels}}


def output_schema(plan: Chain) -> pa.Schema:
    fields = [pa.field("row", pa.uint64())]
    for output in plan.outputs:
        dtype = arrow_type(plan.calls[output.call].call) if isinstance(output, AnswerOutput) else pa.bool_()
        fields.append(pa.field(output.name, dtype))
    return pa.schema(fields)


def arrow_type(call: AiCall) -> pa.DataType:
    if isinstance(call, AiClassify) and call.probabilities:
        probabilities = pa.struct([pa.field(label, pa.float64()) for label in call.labels])
        return pa.struct([pa.field("label", pa.string()), pa.field("probabilities", probabilities)])
    return ARROW[type(call)]
