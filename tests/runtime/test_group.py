"""Two processes answer as one engine does: same rows, same order, same errors, whatever reaches which process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quail_frames.errors import ContextOverflowError, ModelError, QuailFramesError
from quail_frames.plan.calls import AiClassify, AiIf
from quail_frames.plan.conditions import Answer
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.group import EngineGroup, pieces
from quail_frames.runtime.operators.candidates import AnchorBatch, Candidates
from quail_frames.runtime.report import RunReport

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


def test_a_group_that_lost_a_process_says_so() -> None:
    with EngineGroup("oracle", devices=["cpu"]) as group:
        group._processes[0].terminate()
        with pytest.raises(ModelError, match="engine 0 has ended"):
            rows(group.run(chain(), batches()))
        with pytest.raises(ModelError, match="engine 0 has ended"):
            rows(group.run(chain(), batches()))


def test_a_closed_group_says_so() -> None:
    group = EngineGroup("oracle", devices=["cpu"])
    group.close()
    with pytest.raises(QuailFramesError, match="is closed"):
        group.run(chain(), batches())
