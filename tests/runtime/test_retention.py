"""What stays resident when memory is short, and what memory a large join takes."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from quail_frames.plan.calls import AiIf
from quail_frames.plan.conditions import Answer
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected import expected_answer
from quail_frames.runtime.kv.pages import PAGE, pages_for
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.report import RunReport

BUDGET = 400
"""Tokens of a batch: so much memory documents under way need themselves, whoever decides what stays."""
GOOD = AiIf(Template(("Is it good?\n", Slot(0))), ("text",))
MATCH = AiIf(Template(("Does ", Slot(0), " mention ", Slot(1), "?")), ("text", "term"))


def texts_of(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [bytes(rng.integers(97, 123, rng.integers(40, 400), dtype=np.uint8)).decode() for _ in range(count)]


def batches(texts: list[str]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([pa.array(texts, pa.string())], names=["text"])


def regret_of(texts: list[str], pages: int) -> tuple[int, list[int]]:
    """Filter all texts, then join the survivors: (tokens computed again, lengths of the survivors' documents)."""
    with Engine("oracle", kv_budget=8 * PAGE * pages, token_budget=BUDGET) as engine:
        report = RunReport()
        good, match = engine.resolve(GOOD, (0,)), engine.resolve(MATCH, (0, 1), anchors=(0,))
        plan = Chain(("text",), (), (good,), (0,), Answer(0), (), retain=True)
        rows = [row["row"] for out in engine.run(plan, batches(texts), report) for row in out.to_pylist()]
        survivors = [texts[row] for row in rows]
        anchors = [AnchorBatch(batch) for batch in batches(survivors)]
        join = PairJoin(("text",), ("term",), match)
        list(engine.join(join, anchors, pa.record_batch([pa.array(["a", "b"])], names=["term"]), report))
        engine.end(report)
        assert engine.memory.contexts.pool.free == engine.memory.pages
        start = len(engine.tokenizer.encode(["DOCUMENT:\n"]).values)
    return report.regret_tokens, [start + len(text) for text in survivors]


def test_nothing_is_computed_again_while_memory_holds_the_working_set() -> None:
    regret, lengths = regret_of(texts_of(200), pages=20_000)
    assert regret == 0 and len(lengths) > 50


def test_with_half_the_memory_regret_is_near_the_least_possible() -> None:
    _, lengths = regret_of(texts_of(200), pages=20_000)
    half = int(pages_for(np.array(lengths)).sum()) // 2
    regret, _ = regret_of(texts_of(200), pages=half)
    assert regret <= 1.10 * least_regret(lengths, half - BUDGET // PAGE)


def least_regret(lengths: list[int], pages: int) -> int:
    """Offline optimum: each survivor is wanted once more, so the best set is the one that holds most tokens."""
    best = np.zeros(pages + 1, dtype=np.int64)
    for length, size in zip(lengths, pages_for(np.array(lengths)).tolist(), strict=True):
        best[size:] = np.maximum(best[size:], best[: pages + 1 - size] + length)
    return sum(lengths) - int(best[-1])


def test_two_threads_share_one_engine() -> None:
    texts = [texts_of(150, seed) for seed in (1, 2)]
    got: dict[int, list[bool]] = {}
    with Engine("oracle", token_budget=3000, kv_budget=8 * PAGE * 200) as engine:
        planned = engine.resolve(GOOD, (0,))
        second = engine.resolve(AiIf(Template(("Is it long?\n", Slot(0))), ("text",)), (0,))
        plan = Chain(("text",), (), (planned, second), (0, 1), None, (AnswerOutput("a", 0), AnswerOutput("b", 1)))

        def ask(number: int) -> None:
            table = pa.Table.from_batches(engine.run(plan, batches(texts[number])))
            got[number] = table["a"].to_pylist() + table["b"].to_pylist()

        threads = [threading.Thread(target=ask, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert engine.memory.contexts.pool.free == engine.memory.pages
    for number in (0, 1):
        assert got[number] == [expected_answer(call, (text,)) for call in (planned, second) for text in texts[number]]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "getrusage"), reason="needs POSIX memory counters")
def test_a_join_of_two_thousand_by_two_thousand_stays_small() -> None:
    run = subprocess.run([sys.executable, "-c", LARGE_JOIN], capture_output=True, text=True, timeout=250)
    assert run.returncode == 0, run.stderr
    pairs, megabytes = map(float, run.stdout.split())
    assert pairs > 0 and megabytes < 500


LARGE_JOIN = """
import resource
import pyarrow as pa
from quail_frames.plan.calls import AiIf
from quail_frames.plan.physical import PairJoin
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.operators.candidates import AnchorBatch

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

engine = Engine("oracle", device="null")
match = AiIf(Template(("Does ", Slot(0), " mention ", Slot(1), "?")), ("text", "term"))
plan = PairJoin(("text",), ("term",), engine.resolve(match, (0, 1), anchors=(0,)))
texts = pa.record_batch([pa.array([f"document number {n} " * 10 for n in range(2000)])], names=["text"])
terms = pa.record_batch([pa.array([f"term {n}" for n in range(2000)])], names=["term"])
before, pairs = peak(), 0
for out in engine.join(plan, [AnchorBatch(texts)], terms):
    pairs += out.num_rows
print(pairs, peak() - before)
"""
