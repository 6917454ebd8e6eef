"""Kinds of queries, each run by our engine as a plan and by the other as prompts in its best order.

A workload is one chunk of a shape. Its items are what is compared: rows kept, pairs found, labels chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from benchmarks.common import Watch
from benchmarks.peers.side import Asks, Choice, Outcome, Prompts
from benchmarks.prompts import pair_prompts, row_prompts, token_batch
from quail_frames.plan.conditions import And, Answer
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin, PlannedCall
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.operators.pair_asks import FIRST_WAVE
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.ragged import Int64, Ragged


class Workload(Protocol):
    """One chunk of a shape."""

    def ours(self, engine: Engine) -> Outcome:
        """Through our engine."""
        ...

    def theirs(self, peer: Asks) -> Outcome:
        """Through the other engine, each stage on the survivors of the one before."""
        ...

    def doubts(self, items: Int64) -> Prompts:
        """Prompts that decide these items; `rows` is the item of each."""
        ...


def prompts_of_rows(engine: Engine, call: PlannedCall, rows: Ragged) -> Prompts:
    """One prompt a row."""
    choice = Choice.of(engine.compile(call), engine.tokenizer)
    return Prompts.of(row_prompts(engine, call, rows), np.arange(len(rows)), choice)


def prompts_of_pairs(engine: Engine, call: PlannedCall, anchors: Ragged, partners: Ragged) -> Prompts:
    """One prompt a pair, anchor by anchor; `rows` is the anchor."""
    choice = Choice.of(engine.compile(call), engine.tokenizer)
    lists = pair_prompts(engine, call, anchors, partners)
    return Prompts.of(lists, np.repeat(np.arange(len(anchors)), len(partners)), choice)


def true_rows(engine: Engine, call: PlannedCall, rows: Ragged, report: RunReport) -> Int64:
    """Rows for which our engine answers TRUE; their documents stay resident."""
    plan = Chain(("text",), (), (call,), (0,), Answer(0), (), retain=True)
    batches = list(engine.run(plan, [token_batch("text", rows)], report))
    return np.concatenate([batch.column("row").to_numpy() for batch in batches]).astype(np.int64)


def true_pairs(engine: Engine, call: PlannedCall, anchors: Ragged, partners: Ragged, report: RunReport) -> Int64:
    """[anchors, partners] of 0 and 1; the anchors stay resident."""
    plan = PairJoin(("anchor",), ("partner",), call, retain=True)
    found = np.zeros((len(anchors), len(partners)), dtype=np.int64)
    source = [AnchorBatch(token_batch("anchor", anchors))]
    for batch in engine.join(plan, source, token_batch("partner", partners), report):
        found[batch.column("anchor").to_numpy(), batch.column("partner").to_numpy()] = 1
    return found


@dataclass(frozen=True, eq=False)
class FilterChain:
    """Rows that pass every filter; a row leaves at its first FALSE. Items: rows."""

    engine: Engine
    calls: Sequence[PlannedCall]
    rows: Ragged

    def ours(self, engine: Engine) -> Outcome:
        report, kept = RunReport(), np.zeros(len(self.rows), dtype=np.int64)
        numbers = tuple(range(len(self.calls)))
        keep = And(tuple(Answer(number) for number in numbers)) if len(numbers) > 1 else Answer(0)
        plan = Chain(("text",), (), tuple(self.calls), numbers, keep, ())
        watch = Watch()
        for batch in engine.run(plan, [token_batch("text", self.rows)], report):
            kept[batch.column("row").to_numpy()] = 1
        return Outcome(kept, report.fresh_tokens, watch.spent())

    def theirs(self, peer: Asks) -> Outcome:
        outcome = Outcome(np.zeros(len(self.rows), dtype=np.int64))
        alive = np.arange(len(self.rows))
        for call in self.calls:
            prompts = prompts_of_rows(self.engine, call, self.rows).take(alive)
            alive = alive[outcome.spend(prompts, peer.ask(prompts)) == 1]
        outcome.answers[alive] = 1
        return outcome

    def doubts(self, items: Int64) -> Prompts:
        return Prompts.by_row([prompts_of_rows(self.engine, call, self.rows).take(items) for call in self.calls])


@dataclass(frozen=True, eq=False)
class Classifications:
    """Every call asked of every row. Items: (row, call), row by row."""

    engine: Engine
    calls: Sequence[PlannedCall]
    rows: Ragged

    def ours(self, engine: Engine) -> Outcome:
        report = RunReport()
        outputs = tuple(AnswerOutput(f"label_{number}", number) for number in range(len(self.calls)))
        plan = Chain(("text",), (), tuple(self.calls), tuple(range(len(self.calls))), None, outputs)
        watch = Watch()
        batches = list(engine.run(plan, [token_batch("text", self.rows)], report))
        spent = watch.spent()
        columns = []
        for number, call in enumerate(self.calls):
            numbers = {label: place for place, label in enumerate(getattr(call.call, "labels"))}  # noqa: B009
            given = [label for batch in batches for label in batch.column(f"label_{number}").to_pylist()]
            columns.append(np.array([numbers[label] for label in given], dtype=np.int64))
        return Outcome(np.stack(columns, axis=1).reshape(-1), report.fresh_tokens, spent)

    def theirs(self, peer: Asks) -> Outcome:
        prompts = self._prompts()
        outcome = Outcome(np.zeros(0, dtype=np.int64))
        outcome.answers = outcome.spend(prompts, peer.ask(prompts))
        return outcome

    def doubts(self, items: Int64) -> Prompts:
        chosen = self._prompts().take(items)
        return Prompts(chosen.lists, items, chosen.choices, chosen.which)

    def _prompts(self) -> Prompts:
        return Prompts.by_row([prompts_of_rows(self.engine, call, self.rows) for call in self.calls])


@dataclass(frozen=True, eq=False)
class Joins:
    """Joins that share their anchors, after an optional filter of them. Items: (anchor, pair), -1 where filtered out.

    `calls[j]` is asked of every anchor that passed and every list of `partners[j]`.
    """

    engine: Engine
    calls: Sequence[PlannedCall]
    anchors: Ragged
    partners: Sequence[Ragged]
    keep: PlannedCall | None = None

    def ours(self, engine: Engine) -> Outcome:
        report, passed = RunReport(), np.arange(len(self.anchors))
        watch = Watch()
        if self.keep is not None:
            passed = true_rows(engine, self.keep, self.anchors, report)
        anchors = self.anchors.take(passed)
        sides = zip(self.calls, self.partners, strict=True)
        pairs = [true_pairs(engine, call, anchors, partners, report) for call, partners in sides]
        engine.end(report)
        return Outcome(self._items(passed, pairs), report.fresh_tokens, watch.spent())

    def theirs(self, peer: Asks) -> Outcome:
        outcome, passed = Outcome(np.zeros(0, dtype=np.int64)), np.arange(len(self.anchors))
        if self.keep is not None:
            prompts = prompts_of_rows(self.engine, self.keep, self.anchors)
            passed = passed[outcome.spend(prompts, peer.ask(prompts)) == 1]
        prompts = self._pairs(passed)
        answers = outcome.spend(prompts, peer.ask(prompts))
        sizes = [(len(passed), len(partners)) for partners in self.partners]
        pairs = [answers[prompts.which == number].reshape(size) for number, size in enumerate(sizes)]
        outcome.answers = self._items(passed, pairs)
        return outcome

    def doubts(self, items: Int64) -> Prompts:
        every = self._pairs(np.arange(len(self.anchors))).take(items)
        pairs = Prompts(every.lists, items, every.choices, every.which)
        if self.keep is None:
            return pairs
        filters = prompts_of_rows(self.engine, self.keep, self.anchors).take(every.rows)
        return Prompts.by_row([pairs, Prompts(filters.lists, items, filters.choices, filters.which)])

    def _pairs(self, passed: Int64) -> Prompts:
        """Anchor by anchor: all pairs of the first join, then of the next; `rows` numbers all anchors."""
        anchors = self.anchors.take(passed)
        sides = zip(self.calls, self.partners, strict=True)
        joined = Prompts.by_row([prompts_of_pairs(self.engine, call, anchors, partners) for call, partners in sides])
        return Prompts(joined.lists, passed[joined.rows], joined.choices, joined.which)

    def _items(self, passed: Int64, pairs: Sequence[Int64]) -> Int64:
        items = np.full((len(self.anchors), sum(map(len, self.partners))), -1, dtype=np.int64)
        items[passed] = np.concatenate(pairs, axis=1)
        return items.reshape(-1)


@dataclass(frozen=True, eq=False)
class SemiJoin:
    """Anchors with a TRUE partner; both sides stop asking an anchor once it has one. Items: anchors."""

    engine: Engine
    call: PlannedCall
    anchors: Ragged
    partners: Ragged

    def ours(self, engine: Engine) -> Outcome:
        report = RunReport()
        plan = PairJoin(("anchor",), ("partner",), self.call, stop="first_true")
        source = [AnchorBatch(token_batch("anchor", self.anchors))]
        watch = Watch()
        batches = list(engine.join(plan, source, token_batch("partner", self.partners), report))
        spent = watch.spent()
        matched = np.concatenate([batch.column("matched").to_numpy(zero_copy_only=False) for batch in batches])
        return Outcome(matched.astype(np.int64), report.fresh_tokens, spent)

    def theirs(self, peer: Asks) -> Outcome:
        """In waves, as our engine asks: the first few partners of every anchor, then twice as many of those left."""
        prompts, partners = self._prompts(), len(self.partners)
        outcome = Outcome(np.zeros(len(self.anchors), dtype=np.int64))
        truth = np.full((len(self.anchors), partners), -1, dtype=np.int64)
        wave, start = max(FIRST_WAVE, round(1 / max(self.call.selectivity, 1e-3))), 0
        while start < partners and (open_anchors := np.flatnonzero(outcome.answers == 0)).size:
            columns = np.arange(start, min(start + wave, partners))
            asked = (open_anchors[:, None] * partners + columns).reshape(-1)
            wanted = prompts.take(asked)
            answers = outcome.spend(wanted, peer.ask(wanted)).reshape(len(open_anchors), -1)
            truth[open_anchors[:, None], columns] = answers
            outcome.answers[open_anchors] = answers.max(axis=1)
            start, wave = start + wave, 2 * wave
        before = np.cumsum(truth == 1, axis=1) - (truth == 1)
        outcome.needed = [prompts.take(np.flatnonzero((before == 0) & (truth >= 0)))]
        return outcome

    def doubts(self, items: Int64) -> Prompts:
        every = self._prompts()
        return every.take(np.flatnonzero(np.isin(every.rows, items)))

    def _prompts(self) -> Prompts:
        return prompts_of_pairs(self.engine, self.call, self.anchors, self.partners)
