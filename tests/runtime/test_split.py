"""A batch in halves gives the batch's answers: checked with the oracle, which notices every wrong or missing KV."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quail_frames.errors import DeviceMemoryError
from quail_frames.plan.calls import AiIf
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.batch import Batch, Float32
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.oracle import OracleModel
from quail_frames.runtime.report import RunReport

TEXTS = st.lists(st.sampled_from(["a", "b", "long opening of a text, " * 4]), max_size=4).map("".join)
QUESTION = PlannedCall(AiIf(Template(("q ", Slot(0))), ("t",)), (0,), "document_first", "true_false")
ONE_QUESTION = Chain(("t",), (), (QUESTION,), (0,), None, (AnswerOutput("0", 0),))
MATCH = AiIf(Template(("Does ", Slot(0), " mention ", Slot(1), "?")), ("t", "p"))


class SmallDevice(OracleModel):
    """An oracle that has no room for more than `most` tokens in a batch, but for a single ask."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def run(self, batch: Batch) -> list[Float32]:
        asks = sum(len(part.starts) for part in batch.segments)
        if len(batch) > self._most and asks > 1:
            raise DeviceMemoryError("no room")
        return super().run(batch)


def rows(batches: object) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]  # type: ignore[attr-defined]


def texts_of(count: int) -> list[str]:
    return [f"{'word ' * 20}{n}" for n in range(count)]


def run(texts: list[str], terms: list[str], budget: int, model: OracleModel | None) -> tuple[list[object], RunReport]:
    report = RunReport()
    calls = tuple(
        PlannedCall(AiIf(Template((f"q{n} ", Slot(0))), ("t",)), (0,), "document_first", "true_false") for n in range(3)
    )
    plan = Chain(("t",), (), calls, (0, 1, 2), None, tuple(AnswerOutput(str(n), n) for n in range(3)))
    documents, partners = (pa.record_batch([pa.array(x, pa.string())], names=["t"]) for x in (texts, terms))
    with Engine("oracle", kv_budget=1 << 20, token_budget=budget) as engine:
        engine.memory.share_from = 1
        if model is not None:
            model.reserve(engine.memory.pages)
            engine._scheduler._model = model
        found: list[object] = rows(engine.run(plan, [documents], report))
        join = PairJoin(("t",), ("p",), engine.resolve(MATCH, (0, 1), anchors=(0,)))
        found += rows(engine.join(join, [AnchorBatch(documents, None)], partners.rename_columns(["p"]), report))
    return found, report


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=7), st.lists(TEXTS, min_size=1, max_size=4), st.integers(1, 700))
def test_halves_give_the_answers_of_the_whole(texts: list[str], terms: list[str], most: int) -> None:
    wanted, whole = run(texts, terms, 2000, None)
    found, halved = run(texts, terms, 2000, SmallDevice(most))
    assert found == wanted
    assert whole.halved == 0
    assert halved.batches >= whole.batches


def test_halving_is_counted_and_lowers_the_budget_for_good() -> None:
    texts = texts_of(20)
    with Engine("oracle", kv_budget=1 << 20, token_budget=4000) as engine:
        model = SmallDevice(1100)
        model.reserve(engine.memory.pages)
        engine._scheduler._model = model
        reports = [RunReport(), RunReport()]
        for report in reports:
            list(engine.run(ONE_QUESTION, [pa.record_batch([pa.array(texts)], names=["t"])], report))
    assert reports[0].halved >= 1
    assert reports[1].halved == 0


class FailsFirst(OracleModel):
    """Fails its first batch while the second one waits its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = self.begun = 0

    def run(self, batch: Batch) -> list[Float32]:
        self.under_way, self.begun = self.under_way + 1, self.begun + 1
        time.sleep(0.1)
        self.under_way -= 1
        if self.begun == 1:
            raise ZeroDivisionError("the first batch")
        return super().run(batch)


def test_a_run_that_fails_waits_for_the_batch_behind_the_one_that_failed() -> None:
    """Else its pages would be given to others while it still writes there."""
    model = FailsFirst()
    with Engine("oracle", kv_budget=1 << 20, token_budget=300) as engine:
        model.reserve(engine.memory.pages)
        engine._scheduler._model = model
        with pytest.raises(ZeroDivisionError, match="the first batch"):
            list(engine.run(ONE_QUESTION, [pa.record_batch([pa.array(texts_of(20))], names=["t"])]))
        assert (model.begun, model.under_way) == (2, 0)
        assert engine.memory.contexts.pool.free == engine.memory.pages


@pytest.mark.parametrize("most", [0])
def test_a_single_ask_that_does_not_fit_says_what_to_do(most: int) -> None:
    class Full(OracleModel):
        def run(self, batch: Batch) -> list[Float32]:
            raise DeviceMemoryError("no room")

    with pytest.raises(DeviceMemoryError, match="smaller kv_budget or max_length"):
        run(["a"], ["b"], 100, Full())
