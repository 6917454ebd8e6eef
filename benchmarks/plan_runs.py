"""What the cases of `benchmarks.plan_cases` are made of: plans with the work expected of them, and how to run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks import data
from benchmarks.peers.shapes import sized, spread
from benchmarks.prompts import token_batch
from quail_frames.cost.choices import TRUE_FALSE_ENTRIES, Target
from quail_frames.cost.work import AttentionPath, Work, asks, pair_join, prefill
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin, PlannedCall
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.layouts import own_tokens
from quail_frames.runtime.tokens.ragged import Ragged

Run = Callable[[RunReport], object]


@dataclass(frozen=True)
class Alternative:
    """One plan: the work expected of it, and how to run it."""

    name: str
    work: Work
    run: Run


@dataclass(frozen=True)
class Case:
    """Plans of one query."""

    name: str
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True)
class Bench:
    """Two engines that differ in their attention path, where work is priced, and the size of the queries."""

    engine: Engine
    unified: Engine
    target: Target
    scale: float

    @property
    def head(self) -> float:
        """What a TRUE/FALSE read-out reads, as a share of a whole head row."""
        return self.target.head_share(TRUE_FALSE_ENTRIES)

    def reviews(self, tokens: int, count: int) -> Ragged:
        """Reviews cut to about so many tokens."""
        texts = data.cut_to(data.texts("reviews"), tokens, self.engine.tokenizer)
        return self.engine.tokenizer.encode(spread(texts, sized(count, self.scale)))

    def pieces(self, planned: PlannedCall) -> tuple[int, int, int]:
        """Tokens of a call's own in document, instruction and question."""
        prompt = self.engine.compile(planned).prompt
        return own_tokens(prompt.document), own_tokens(prompt.instruction), own_tokens(prompt.question)


def pairs_work(
    bench: Bench,
    planned: PlannedCall,
    anchors: Ragged,
    partners: Ragged,
    path: AttentionPath = "tree",
    there: bool = False,
) -> Work:
    """Every anchor with every partner."""
    document, frame, question = bench.pieces(planned)
    suffix = float(partners.lengths.mean()) + question
    return pair_join(anchors.lengths + document, float(len(partners)), suffix, frame, there, path, bench.head)


def chain_work(bench: Bench, calls: Sequence[PlannedCall], rows: Ragged) -> Work:
    """Questions of one instruction asked of every row: document and instruction once, then each question."""
    document, instruction, _ = bench.pieces(calls[0])
    lengths = rows.lengths + document + instruction
    work = prefill(lengths)
    for call in calls:
        work += asks(lengths, bench.pieces(call)[2], 1, "unified", bench.head)
    return work


def run_chain(engine: Engine, plan: Chain, batch: pa.RecordBatch) -> Run:
    """A chain over one batch."""
    return lambda report: list(engine.run(plan, [batch], report))


def run_answers(engine: Engine, calls: Sequence[PlannedCall], rows: Ragged) -> Run:
    """Every call asked of every row."""
    outputs = tuple(AnswerOutput(str(number), number) for number in range(len(calls)))
    plan = Chain(("t",), (), tuple(calls), tuple(range(len(calls))), None, outputs)
    return run_chain(engine, plan, token_batch("t", rows))


def run_join(engine: Engine, planned: PlannedCall, anchors: Ragged, partners: Ragged) -> Run:
    """Every anchor asked with every partner."""
    plan = PairJoin(("a",), ("p",), planned)
    return lambda report: list(
        engine.join(plan, [AnchorBatch(token_batch("a", anchors))], token_batch("p", partners), report)
    )


def matched_anchors(
    engine: Engine, planned: PlannedCall, anchors: Ragged, partners: Ragged, report: RunReport
) -> npt.NDArray[np.int64]:
    """Anchors with at least one partner for which the answer is TRUE."""
    plan = PairJoin(("a",), ("p",), planned)
    found = engine.join(plan, [AnchorBatch(token_batch("a", anchors))], token_batch("p", partners), report)
    rows = [batch.column(0).to_numpy() for batch in found]
    return np.unique(np.concatenate(rows)).astype(np.int64)


def rows_kept(
    engine: Engine, plan: Chain, batch: pa.RecordBatch, report: RunReport | None = None
) -> npt.NDArray[np.int64]:
    """Rows that the chain keeps."""
    found = [each.column(0).to_numpy() for each in engine.run(plan, [batch], report)]
    return np.concatenate(found).astype(np.int64)
