"""What an engine is asked and does while a query runs: its plans, its prompts' prefix tree, its work.

Prompts are read off the operators as answers come. What a row's prompts share (its document) is kept as tokens, once;
what follows it is counted in a prefix tree of the row's own, because no other row can share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.minimum import distinct_prefixes, minimum_tokens
from quail_frames.cost.work import NOTHING, Work
from quail_frames.plan.physical import PhysicalOperator
from quail_frames.runtime.batch import Batch, Float32
from quail_frames.runtime.batch_work import batch_work
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.marks import mix, token_marks
from quail_frames.runtime.operators.anchors import AskedPairs
from quail_frames.runtime.operators.asks import ask_tokens, cut_values
from quail_frames.runtime.operators.pairs import PairOperator
from quail_frames.runtime.operators.questions import Asked
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.assemble import assemble, concatenate
from quail_frames.runtime.tokens.ragged import Int64, Ragged


@dataclass
class Prompts:
    """The prompts of a query, by the row that they are about: a row is known by a hash of its document's tokens."""

    documents: dict[int, Ragged] = field(default_factory=dict)
    whole: list[tuple[Ragged, Int64]] = field(default_factory=list)
    """Prompts that begin with their call's words, or were cut, with their rows."""
    suffixes: list[tuple[Ragged, Int64]] = field(default_factory=list)
    """What follows documents, with their rows: questions, and the frames of joins."""
    pairs: dict[tuple[int, int], list[tuple[PairOperator, Int64]]] = field(default_factory=dict)
    """By frame and anchor: the partners asked, behind the frame."""

    def minimum(self) -> int:
        """The fewest tokens that answer all of them; see `benchmarks.minimum`."""
        rows = np.fromiter(self.documents, dtype=np.int64, count=len(self.documents))
        shared = [(concatenate(list(self.documents.values())), rows)] if len(rows) else []
        total = minimum_tokens(*_together(shared + self.whole)) if shared or self.whole else 0
        if self.suffixes:
            total += distinct_prefixes(*_together(self.suffixes))
        return total + sum(_pair_tokens(asked) for asked in self.pairs.values())

    def add(self, asked: Asked, limit: int) -> None:
        """Single rows, or joined pairs, asked by a chain."""
        question = asked.question
        call, lane, units, steps = question.call, question.lane, asked.units, question._place.steps(asked.units)
        prompt, values = call.prompt, lane.values_of(units)
        documents = assemble(prompt.document, values, len(units))
        long = question.too_long(units)
        if long.any() or not prompt.document:
            values = cut_values(values, limit - call.positions) if long.any() else values
            pieces = (*prompt.document, *prompt.instruction, *prompt.question)
            lists = ask_tokens(call, pieces, values, steps)
            self.whole.append(
                (lists, _row_keys(lists if long.any() else assemble(prompt.question, values, len(units))))
            )
            return
        rows = _row_keys(documents)
        new = [number for number, row in enumerate(rows.tolist()) if row not in self.documents]
        self.documents |= {int(rows[number]): documents.take(np.array([number])) for number in new}
        self.suffixes.append((ask_tokens(call, (*prompt.instruction, *prompt.question), values, steps), rows))

    def add_pairs(self, operator: PairOperator, asked: AskedPairs) -> None:
        """Pairs asked by a join."""
        prompt, start = operator.call.prompt, 0
        frame = int(_row_keys(assemble(prompt.instruction, {}, 1))[0])
        for anchor, count in zip(asked.anchors, asked.counts, strict=True):
            units = asked.units[start : start + count]
            start += count
            document = assemble(prompt.document, anchor.values, 1)
            row = int(_row_keys(document)[0])
            if (operator.prompts.whole_tokens(anchor, units) >= operator.prompts.limit).any():
                lists = operator.prompts.whole_block(anchor, units).tokens
                self.whole.append((lists, np.full(count, row)))
                continue
            self.documents.setdefault(row, document)
            if (frame, row) not in self.pairs:
                self.suffixes.append((assemble(prompt.instruction, {}, 1), np.array([row])))
            self.pairs.setdefault((frame, row), []).append((operator, units))


def _together(parts: list[tuple[Ragged, Int64]]) -> tuple[Ragged, Int64]:
    return concatenate([lists for lists, _ in parts]), np.concatenate([rows for _, rows in parts])


def _row_keys(lists: Ragged) -> Int64:
    """A hash of each list's tokens."""
    positions = np.arange(len(lists.values)) - np.repeat(lists.offsets[:-1], lists.lengths)
    marks = token_marks(lists.values, positions.astype(np.int32))
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(marks, dtype=np.uint64)])
    return mix(total[lists.offsets[1:]] - total[lists.offsets[:-1]]).astype(np.int64)


def _pair_tokens(asked: list[tuple[PairOperator, Int64]]) -> int:
    """The prefix tree of the partners."""
    lists = concatenate([each.prompts.question.take(units) for each, units in asked])
    return distinct_prefixes(lists, np.zeros(len(lists), dtype=np.int64))


class Watched:
    """An operator whose answers are read on their way in."""

    def __init__(self, operator: Any, prompts: Prompts, limit: int) -> None:
        self._operator, self._prompts, self._limit = operator, prompts, limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)

    def accept(self, tag: Any, logits: Float32, *failed: Any) -> None:
        """Note the prompts, then hand on."""
        if isinstance(tag, Asked):
            self._prompts.add(tag, self._limit)
        else:
            self._prompts.add_pairs(self._operator, tag)
        self._operator.accept(tag, logits, *failed)


@dataclass
class Recorder:
    """Notes what an engine does from `Recorder.on(engine)` on; `take` begins anew.

    plans      chains and pair joins, in the order in which they began
    work       of all batches, by the formulas of `quail_frames.cost.work`
    batches    runs of the model
    """

    engine: Engine
    plans: list[PhysicalOperator] = field(default_factory=list)
    prompts: Prompts = field(default_factory=Prompts)
    work: Work = NOTHING
    batches: int = 0

    @staticmethod
    def on(engine: Engine) -> Recorder:
        """Watch this engine, for as long as it lives."""
        recorder = Recorder(engine)
        scheduler, model = engine._scheduler, engine._model
        run_operator, run_batch = scheduler.run, model.run

        def watched(operator: Any, source: Iterator[Any], report: RunReport) -> Iterator[pa.RecordBatch]:
            recorder.plans.append(operator.plan)
            return run_operator(Watched(operator, recorder.prompts, engine.max_length), source, report)

        def counted(batch: Batch) -> list[Float32]:
            recorder.work += batch_work(batch, engine.shape.vocabulary)
            recorder.batches += 1
            return run_batch(batch)

        scheduler.run = watched  # type: ignore[method-assign, assignment]
        model.run = counted  # type: ignore[method-assign]
        return recorder

    def take(self) -> Recorder:
        """What was noted since the last call."""
        found = Recorder(self.engine, self.plans, self.prompts, self.work, self.batches)
        self.plans, self.prompts, self.work, self.batches = [], Prompts(), NOTHING, 0
        return found
