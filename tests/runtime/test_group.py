"""Two processes answer as one engine does: same rows, same order, same errors, whatever reaches which process."""

from __future__ import annotations

import gc
import os
import pickle
import re
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import quail_frames as qf
from quail_frames.errors import ContextOverflowError, ModelError, QuailFramesError
from quail_frames.plan.calls import AiClassify, AiIf
from quail_frames.plan.conditions import Answer
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime import torch_model
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.group import EngineGroup, pieces
from quail_frames.runtime.group import group as group_module
from quail_frames.runtime.group.owners import nobody
from quail_frames.runtime.group.worker import portable
from quail_frames.runtime.operators.candidates import AnchorBatch, Candidates
from quail_frames.runtime.report import RunReport
from tests.support.endpoint import Endpoint, number_in

TEXTS = [None if number % 17 == 3 else f"text {number % 50} {'x' * (number % 40)}" for number in range(200)]
TERMS = ["one", "two", None, "two", "three"]
IF = AiIf(Template(("q ", Slot(0))), ("t",))
MATCH = AiIf(Template(("Does ", Slot(0), " mention ", Slot(1), "?")), ("t", "p"))


@pytest.fixture(scope="module")
def group() -> Iterator[EngineGroup]:
    with EngineGroup("oracle", devices=["cpu", "cpu"], token_budget=600, kv_budget=1 << 20) as opened:
        yield opened


@pytest.fixture
def single() -> Iterator[Engine]:
    with Engine("oracle", token_budget=600, kv_budget=1 << 20) as engine:
        yield engine


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 300)


def batches(texts: list[str | None] = TEXTS, size: int = 60) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(texts), size):
        yield pa.record_batch([pa.array(texts[start : start + size], pa.string())], names=["t"])


def rows(found: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in found for row in batch.to_pylist()]


def chain(call: Any = IF, scoring: Any = "true_false", **options: Any) -> Chain:
    planned = PlannedCall(call, (0,), "document_first", scoring)
    return Chain(("t",), (), (planned,), (0,), options.pop("keep", None), (AnswerOutput("a", 0),), **options)


@pytest.mark.parametrize("plan", [
    chain(), chain(keep=Answer(0)), chain(keep=Answer(0), limit=9),
    chain(AiClassify(Template((Slot(0),)), ("t",), labels=("a b", "a c", "d"), scoring="trie_decode"), "trie_decode"),
], ids=["all", "filter", "limit", "labels"])  # fmt: skip
def test_chains_answer_alike_and_in_order(group: EngineGroup, single: Engine, plan: Chain) -> None:
    reports = [RunReport(), RunReport()]
    assert rows(group.run(plan, batches(), reports[0])) == rows(single.run(plan, batches(), reports[1]))
    if plan.limit is None:
        assert reports[0].rows == reports[0].decided == len(TEXTS)
    assert reports[0].seconds > 0


def test_what_is_decided_counts_up_to_all_rows(group: EngineGroup) -> None:
    decided = [int(batch.schema.metadata[b"decided"]) for batch in group.run(chain(keep=Answer(0)), batches())]
    assert decided == sorted(decided) and decided[-1] == len(TEXTS)


@pytest.mark.parametrize("stop", ["never", "first_true"])
@pytest.mark.parametrize("keyed", [False, True])
def test_joins_answer_alike_and_in_order(group: EngineGroup, single: Engine, stop: Any, keyed: bool) -> None:
    def sides() -> Iterator[AnchorBatch]:
        for batch in batches(TEXTS[:80], 30):
            own = [list(range(number % 4, len(TERMS))) for number in range(batch.num_rows)]
            offsets = np.cumsum([0, *map(len, own)])
            yield AnchorBatch(batch, Candidates.of_rows(np.concatenate(own), offsets) if keyed else None)

    partners = pa.record_batch([pa.array(TERMS)], names=["p"])
    plan = PairJoin(("t",), ("p",), group.resolve(MATCH, (0, 1), (0,)), stop=stop)
    assert rows(group.join(plan, sides(), partners)) == rows(single.join(plan, sides(), partners))


def test_anchors_go_where_their_documents_lie(group: EngineGroup, single: Engine) -> None:
    def asked(engine: Any) -> tuple[list[dict[str, Any]], RunReport]:
        report = RunReport()
        kept = list(engine.run(chain(retain=True), batches(), report))
        computed = report.fresh_tokens
        plan = PairJoin(("t",), ("p",), engine.resolve(MATCH, (0, 1), (0,)))
        sides = (AnchorBatch(batch) for batch in batches())
        found = rows(engine.join(plan, sides, pa.record_batch([pa.array(TERMS)], names=["p"]), report))
        engine.end(report)
        report.fresh_tokens -= computed
        return [*rows(iter(kept)), *found], report

    ours, theirs = asked(group), asked(single)
    assert ours[0] == theirs[0]
    # Equal texts may meet in two processes, which then ask twice; documents are not computed again.
    assert ours[1].fresh_tokens < 1.5 * theirs[1].fresh_tokens


def test_the_first_overflow_is_raised_with_the_rows_before_it(group: EngineGroup) -> None:
    texts = [*TEXTS[:100], "long " * 60_000, *TEXTS[100:150], "long " * 60_000]
    found: list[dict[str, Any]] = []
    with pytest.raises(ContextOverflowError) as error:
        for batch in group.run(chain(), batches(texts)):
            found += batch.to_pylist()
    assert error.value.row == 100
    assert str(error.value).startswith("row 100: the prompt of AiIf")
    assert [row["row"] for row in found] == list(range(100))


def test_a_run_can_be_left_early_and_runs_can_overlap(group: EngineGroup, single: Engine) -> None:
    left = group.run(chain(), batches())
    next(left)
    assert rows(group.run(chain(), batches())) == rows(single.run(chain(), batches()))
    left.close()
    assert rows(group.run(chain(), batches(TEXTS[:20]))) == rows(single.run(chain(), batches(TEXTS[:20])))
    assert not rows(group.run(chain(), iter(())))


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelError, match=r"devices=\[\]"):
        EngineGroup("oracle", devices=[])
    with pytest.raises(ModelError, match=r"nowhere\.gguf"):
        EngineGroup("nowhere.gguf", devices=["cpu"])


def test_a_process_that_dies_in_the_middle_ends_the_run_and_the_group() -> None:
    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield from batches()

    found: list[dict[str, Any]] = []
    with EngineGroup("oracle", devices=["cpu", "cpu"], token_budget=600, kv_budget=1 << 20) as group:
        processes = list(group._processes._started)
        with pytest.raises(ModelError) as error:
            for number, batch in enumerate(group.run(chain(), endless())):
                found += batch.to_pylist()
                if number == 3:
                    os.kill(processes[1].pid or 0, signal.SIGKILL)
        message = r"device 'cpu' \(engine 1\) has ended with exit code -9, with rows ([\d,]+) to ([\d,]+) in work"
        named = re.search(message, str(error.value))
        assert named is not None, str(error.value)
        first, last = (int(number.replace(",", "")) for number in named.groups())
        assert [row["row"] for row in found] == list(range(len(found))), "what came is in order and without gaps"
        assert len(found) <= first <= last
        assert not any(process.is_alive() for process in processes), "the other process is ended too"
        assert group.closed and not group._queues
        with pytest.raises(ModelError, match=r"engine 1\) has ended"):
            group.run(chain(), batches())


def test_an_error_of_the_input_comes_through_and_leaves_the_group_whole(group: EngineGroup) -> None:
    def fails() -> Iterator[pa.RecordBatch]:
        yield from batches()
        raise ZeroDivisionError("in the user's own code")

    with pytest.raises(ZeroDivisionError, match="own code"):
        rows(group.run(chain(), fails()))
    assert not group._queues
    assert len(rows(group.run(chain(), batches()))) == len(TEXTS)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises, also where the tests run as a job in the background, which inherits that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_the_group_whole(group: EngineGroup, single: Engine) -> None:
    def interrupted() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches(TEXTS * 5)):
            if number == 6:
                signal.raise_signal(signal.SIGINT)
            yield batch

    for process in group._processes._started:
        os.kill(process.pid or 0, signal.SIGINT)  # a terminal sends it to all
    with pytest.raises(KeyboardInterrupt):
        rows(group.run(chain(), interrupted()))
    assert not group._queues
    assert rows(group.run(chain(), batches())) == rows(single.run(chain(), batches()))


@pytest.mark.parametrize("options, told", [
    ({}, "numpy"), ({"products": "torch"}, "torch"), ({"backend": "openai"}, None),
], ids=["auto", "torch", "openai"])  # fmt: skip
def test_engines_are_told_one_library_to_multiply_with(
    options: dict[str, Any], told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Had each measured for itself, the last digits of a score could depend on the engine that a row went to."""

    class Opened(Exception):
        """Before any process starts: what the engines would be opened with."""

    def processes(model: str, names: list[str], options: dict[str, Any]) -> None:
        raise Opened(options.get("products"))

    monkeypatch.setattr(torch_model, "speeds", lambda dtype: {"torch": 60.0, "numpy": 67.0})
    monkeypatch.setattr(group_module, "Processes", processes)
    with pytest.raises(Opened) as opened:
        EngineGroup("some-model", devices=["cpu", "cpu"], dtype="float32", **options)
    assert opened.value.args == (told,)


def test_a_piece_does_not_take_its_whole_batch_to_the_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2_000)
    whole = pa.record_batch([pa.array(["x" * 1_000] * 500)], names=["t"])
    for batch in (whole, AnchorBatch(whole)):
        merger = pieces.Merger(pieces.Source(iter([batch]), nobody), "row", None)
        assert len(pickle.dumps(merger.give(0))) < 5_000


def test_an_error_of_no_kind_of_ours_comes_through_with_its_name() -> None:
    assert str(portable(KeyError("weights"))) == "KeyError: 'weights'"
    overflow = ContextOverflowError("too long", row=3)
    assert portable(overflow) is overflow and pickle.loads(pickle.dumps(overflow)).row == 3


@pytest.mark.filterwarnings("ignore::quail_frames.QuailFramesWarning")
def test_failures_name_the_rows_of_the_whole_input_in_order() -> None:
    def fault(prompt: str, before: int) -> str:
        return "418" if number_in(prompt) % 7 == 3 else "ok"

    texts = [f"text {number}" for number in range(200)]
    options: dict[str, Any] = {"backend": "openai", "backoff": 0.01}
    with Endpoint(fault) as server:
        options["base_url"] = server.url
        report = RunReport()
        with EngineGroup("some-model", devices=["cpu", "cpu"], **options) as group:
            plan = chain(group.resolve(IF, (0,)).call)
            found = rows(group.run(plan, batches(texts), report))
    missing = [number for number in range(200) if number % 7 == 3]
    assert [failure.row for failure in report.failures] == missing
    assert [row["row"] for row in found if row["a"] is None] == missing
    assert all("418" in failure.reason for failure in report.failures)


def test_changes_of_the_order_name_rows_of_the_whole_input() -> None:
    merger = pieces.Merger(pieces.Source(batches(), lambda rows: np.full(rows.num_rows, -1)), "row", None)
    for engine in (0, 1, 1, 0):
        merger.give(engine)
    starts = [piece.first for piece in merger._source.pieces][:4]
    assert merger.row(0, 0) == 0 and merger.row(1, 0) == starts[1]
    lengths = [piece.length for piece in merger._source.pieces]
    assert merger.row(1, lengths[1] + 2) == starts[2] + 2
    assert merger.row(0, lengths[0]) == starts[3]
    assert merger.undecided(0) == (0, starts[3] + lengths[3] - 1)


def test_a_group_ends_its_processes_when_it_is_closed_or_forgotten() -> None:
    closed, forgotten = (EngineGroup("oracle", devices=["cpu"]) for _ in range(2))
    processes = [group._processes._started[0] for group in (closed, forgotten)]
    closed.close()
    with pytest.raises(QuailFramesError, match="is closed"):
        closed.run(chain(), batches())
    del forgotten
    gc.collect()
    assert not any(process.is_alive() for process in processes)


def test_a_forked_process_says_so_and_a_group_cannot_be_sent(
    group: EngineGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TypeError, match="belongs to its process"):
        pickle.dumps(group)
    monkeypatch.setattr(group, "_process", -1)
    with pytest.raises(QuailFramesError, match="before the process was forked"):
        group.run(chain(), batches())


def test_devices_are_told_once_to_configure() -> None:
    try:
        qf.configure("oracle", devices=["cpu", "cpu"], token_budget=600)
        frame = pl.DataFrame({"t": TEXTS})
        query = qf.lazy(frame).with_columns(ok=qf.ai_if("q {t}"))
        found = query.collect()
        assert isinstance(qf.default_engine(), EngineGroup)
        first = qf.default_engine()
        qf.configure("oracle", devices=["cpu", "cpu"], token_budget=600)
        assert qf.default_engine() is first, "equal options share a group"
        qf.close_default_engine()
        qf.configure("oracle", token_budget=600)
        assert found.equals(query.collect())
        for options, message in [
            ({"devices": []}, r"devices=\[\]"),
            ({"devices": "cuda:0"}, "give 'all' or a list of names"),
            ({"devices": ["cpu"], "device": "cuda"}, "device= and devices= are both given"),
        ]:
            with pytest.raises(ModelError, match=message):
                qf.configure("oracle", **options)
        with pytest.raises(ModelError, match="EngineGroup"):
            Engine("oracle", devices=["cpu"])  # type: ignore[call-arg]
    finally:
        qf.close_default_engine()
        qf.configure("oracle")
