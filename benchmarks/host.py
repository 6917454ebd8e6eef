"""How fast the host alone is: from token ids to answers on one core, with a device that does no arithmetic.

`device="null"` answers from a hash of each ask's tokens, so what is timed is reading, deduplication, the operators,
batch building and KV accounts. `--profile` prints where the time goes.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import torch

from benchmarks.common import Machine, Spent, Watch, options, show, write
from benchmarks.prompts import classify_call, filter_call, join_call, token_batch, tokenizer_of
from quail_frames.plan.conditions import Answer
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.tokens.ragged import Ragged, offsets_of

DOCUMENTS, DOCUMENT_TOKENS = 50_000, 100
ANCHORS, ANCHOR_TOKENS = 1_000, 300
PARTNERS, PARTNER_TOKENS = 1_000, 8
CLASSIFIED = 30_000
LABELS = ("plot", "acting", "effects", "music", "length", "script", "humour", "camera", "ending", "other")
ROWS = 4_096
"""Rows of a record batch."""
REPEATS = 3


@dataclass(frozen=True)
class Rate:
    """Items a second, and a second of processor time: what an idle machine would do."""

    wall: float
    processor: float

    @staticmethod
    def of(items: int, spent: Spent) -> Rate:
        """So many items in this time."""
        return Rate(items / spent.wall, items / spent.processor)


def random_lists(rows: int, tokens: int, seed: int) -> Ragged:
    """Random token ids, `tokens` a row."""
    values = np.random.default_rng(seed).integers(1_000, 40_000, rows * tokens, dtype=np.int32)
    return Ragged(values, offsets_of(np.full(rows, tokens, dtype=np.int64)))


def in_batches(lists: Ragged) -> Iterator[pa.RecordBatch]:
    """The lists in record batches of `ROWS` rows."""
    for start in range(0, len(lists), ROWS):
        yield token_batch("text", lists.take(np.arange(start, min(start + ROWS, len(lists)))))


def join_pairs(engine: Engine) -> Rate:
    """Pairs a second in a join of all anchors with all partners."""
    call = join_call(engine, "Does the review ", " discuss ", "?")
    plan = PairJoin(("anchor",), ("partner",), call)
    anchors = AnchorBatch(token_batch("anchor", random_lists(ANCHORS, ANCHOR_TOKENS, 1)))
    partners = token_batch("partner", random_lists(PARTNERS, PARTNER_TOKENS, 2))
    watch = Watch()
    found = sum(batch.num_rows for batch in engine.join(plan, [anchors], partners))
    assert 0 < found < ANCHORS * PARTNERS
    return Rate.of(ANCHORS * PARTNERS, watch.spent())


def filter_documents(engine: Engine) -> Rate:
    """Documents a second in one filter."""
    plan = Chain(("text",), (), (filter_call(engine, "Is this about a movie?"),), (0,), Answer(0), ())
    batches = list(in_batches(random_lists(DOCUMENTS, DOCUMENT_TOKENS, 3)))
    watch = Watch()
    found = sum(batch.num_rows for batch in engine.run(plan, batches))
    assert 0 < found < DOCUMENTS
    return Rate.of(DOCUMENTS, watch.spent())


def classifications(engine: Engine) -> Rate:
    """Documents a second in one classification into ten labels."""
    call = classify_call(engine, LABELS)
    plan = Chain(("text",), (), (call,), (0,), None, (AnswerOutput("label", 0),))
    batches = list(in_batches(random_lists(CLASSIFIED, DOCUMENT_TOKENS, 4)))
    watch = Watch()
    found = sum(batch.num_rows for batch in engine.run(plan, batches))
    assert found == CLASSIFIED
    return Rate.of(CLASSIFIED, watch.spent())


MEASURES: dict[str, Callable[[Engine], Rate]] = {
    "join_pairs_per_s": join_pairs,
    "filter_documents_per_s": filter_documents,
    "classifications_per_s": classifications,
}


def open_null(model: str) -> Engine:
    """The null device with a real tokenizer: the oracle's own makes a token of nearly every byte of a question."""
    engine = Engine("oracle", device="null")
    engine.tokenizer = tokenizer_of(model)
    return engine


def bind_to_one_core() -> None:
    """All threads of this process on one core, so that the device's thread is paid for too."""
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = options(__doc__)
    parser.add_argument("--model", default="smollm2-135m", help="whose tokenizer encodes the questions")
    parser.add_argument("--only", choices=list(MEASURES))
    parser.add_argument("--profile", action="store_true", help="print the functions that take longest")
    chosen = parser.parse_args(arguments)
    machine = Machine.here()
    bind_to_one_core()
    with open_null(chosen.model) as engine:
        measures = {name: measure for name, measure in MEASURES.items() if chosen.only in (None, name)}
        rates = {name: measure_rates(measure, engine, chosen.profile) for name, measure in measures.items()}
    medians = {name: statistics.median(rate.wall for rate in found) for name, found in rates.items()}
    on_processor = {name: statistics.median(rate.processor for rate in found) for name, found in rates.items()}
    rows = [[name, medians[name], max(rate.wall for rate in rates[name]), on_processor[name]] for name in rates]
    show("Host alone, one core", ["", "median", "best", "per second of processor time"], rows, machine.line())
    runs = {name: [asdict(rate) for rate in found] for name, found in rates.items()}
    per_processor = {f"{name}_of_processor": value for name, value in on_processor.items()}
    write(chosen.json, {**medians, **per_processor, "runs": runs, "model": chosen.model}, machine)


def measure_rates(measure: Callable[[Engine], Rate], engine: Engine, profile: bool) -> list[Rate]:
    """Of each repetition; a first one warms up."""
    measure(engine)
    if profile:
        profiler = cProfile.Profile()
        profiler.runcall(measure, engine)
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    return [measure(engine) for _ in range(REPEATS)]


if __name__ == "__main__":
    main()
