"""The pair join: one TRUE/FALSE call asked of (anchor, partner) pairs.

An anchor's document and the frame after it are computed once and stay resident while its
partners pass by as short suffixes; all of a batch's pairs of one anchor share its
attention reads.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quail_frames.plan.conditions import Answer
from quail_frames.plan.physical import PairJoin
from quail_frames.plan.selectivity import SEEN, Counts
from quail_frames.runtime.batch import Float32
from quail_frames.runtime.compiled import CompiledCall, Tokenizer
from quail_frames.runtime.kv.memory import Memory
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.operators.anchors import NONE, Anchor, AskedPairs
from quail_frames.runtime.operators.branches import Branches
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.operators.failures import NOTHING_FAILED, Failed
from quail_frames.runtime.operators.inputs import InputColumn
from quail_frames.runtime.operators.known import KnownAnswers, KnownPairs
from quail_frames.runtime.operators.learning import Share
from quail_frames.runtime.operators.overflow import can_cut, overflow_error
from quail_frames.runtime.operators.pair_asks import PairAsks
from quail_frames.runtime.operators.pair_prompts import PairPrompts
from quail_frames.runtime.report import Failure, RunReport
from quail_frames.runtime.room import Room
from quail_frames.runtime.tokens.ragged import Int64, Ragged

Bool = npt.NDArray[np.bool_]
REMEMBERED = 1 << 16
"""Distinct anchors of a run whose pairs are recognised when they come again; then the memory starts afresh."""


class PairOperator:
    """Runs a `PairJoin` over anchor batches and one batch of partners.

    Output with `stop="never"`: `{"anchor": UInt64, "partner": UInt64}`, a row for each TRUE
    pair, by anchor row, then partner row. With `stop="first_true"`: `{"anchor", "matched"}`,
    a row for each anchor row. The schema metadata `decided` is the number of anchor rows
    decided so far.
    """

    def __init__(
        self,
        plan: PairJoin,
        call: CompiledCall,
        partners: pa.RecordBatch,
        tokenizer: Tokenizer,
        memory: Memory,
        limit: int,
        report: RunReport,
        known: KnownAnswers | None = None,
        later: Sequence[pa.RecordBatch] = (),
    ) -> None:
        self.plan, self.call = plan, call
        self._tokenizer, self._memory, self._limit, self._report = tokenizer, memory, limit, report
        self._anchors: dict[Hashable, Anchor] = {}
        self._active: dict[Anchor, None] = {}
        self._answered: dict[Anchor, None] = {}
        self._starts: Counter[bytes] = Counter()
        self._rows: deque[tuple[int, Anchor | None, Int64 | None]] = deque()
        self._read = 0
        self._share = Share.of(call.planned.call, Answer(0))
        self._known: KnownPairs | None = None
        if known is not None and plan.remember:
            self._known = known.pairs(plan.call, len(plan.anchor_inputs), report)
        self.prompts = PairPrompts.of(plan, call, partners, tokenizer, limit, later if self._known is not None else ())
        self.partners = self.prompts.partners
        self._branches: Branches | None = None
        if self._known is not None:
            self._numbers = self._known.numbers(self.prompts.keys_of_units(partners, plan.partner_inputs))
            self._branches = Branches(self._known, self.prompts, memory, report)
        self._asks = PairAsks(plan.stop, self.prompts, memory, report, self._share, self._branches)

    @property
    def finished(self) -> bool:
        """More anchors are always wanted."""
        return False

    @property
    def waiting_tokens(self) -> int:
        """Tokens of the pairs not asked yet."""
        mean = len(self.prompts.question.values) // max(self.partners.units, 1) + 1
        return self._asks.pending * mean

    @property
    def ready_tokens(self) -> int:
        """As many tokens can be asked now as wait (less what waits for a wave to end)."""
        return self.waiting_tokens if self.plan.stop == "never" else 0

    def read(self, batch: AnchorBatch) -> None:
        """Take in anchor rows."""
        columns = {n: InputColumn(name, batch.rows.column(name)) for n, name in enumerate(self.plan.anchor_inputs)}
        keys = [tuple(key) for key in zip(*(column.keys() for column in columns.values()), strict=True)]
        rows = np.arange(batch.rows.num_rows)
        values = {number: column.tokens(rows, self._tokenizer) for number, column in columns.items()}
        self._report.rows += len(keys)
        if len(self._anchors) > REMEMBERED:
            self._anchors = {key: anchor for key, anchor in self._anchors.items() if not anchor.done}
        for row, key in enumerate(keys):
            among = None if batch.candidates is None else batch.candidates.rows(row)
            self._add_row(key, row, values, among)
        self._read += len(keys)

    def fill(self, room: Room) -> None:
        """Add pairs, anchor by anchor; an anchor not resident is computed in the same batch."""
        self._asks.fill(room, self._active)

    def accept(self, tag: AskedPairs, logits: Float32, failed: Failed = NOTHING_FAILED) -> None:
        """Answers of one block; a pair that was not answered is no pair."""
        truth = self.call.decode(logits).values == 1
        self._asks.give_back(tag)
        if failed:
            truth[list(failed)] = False
            self._report_failures(tag, failed)
        self._share.add(Counts(float(truth.sum()), float(len(truth) - len(failed))))
        start = 0
        self._answered.update(dict.fromkeys(tag.anchors))
        for anchor, count in zip(tag.anchors, tag.counts, strict=True):
            own = slice(start, start + count)
            self._leave(anchor, tag.units[own], truth[own], own, failed)
            passed = tag.units[own][truth[own]]
            anchor.running -= count
            if len(passed):
                anchor.true.append(passed)
                if self.plan.stop == "first_true":
                    self._asks.drop(anchor)
            start += count
        self._report.count(self.call.planned.call, len(tag.units), int(truth.sum()))
        self._report.answers += len(tag.units) - len(failed)

    def settle(self) -> None:
        """Free the contexts of anchors that are done."""
        done = [anchor for anchor in self._answered if anchor.done]
        self._answered = {}
        for anchor in done:
            del self._active[anchor]
        self._retire(done)
        for anchor in done:
            anchor.values, anchor.document = {}, None

    def take_output(self, last: bool) -> Iterator[pa.RecordBatch]:
        """Rows from the front whose anchors are done."""
        anchors, partners = [], []
        while self._rows and (self._rows[0][1] is None or self._rows[0][1].done):
            row, anchor, among = self._rows.popleft()
            true = np.sort(np.concatenate(anchor.true)) if anchor is not None and anchor.true else NONE
            rows = self.partners.rows_of(true, among)
            anchors.append(row)
            partners.append(rows)
        self._report.decided += len(anchors)
        if anchors:
            yield self._output(np.array(anchors, dtype=np.uint64), partners)

    def close(self) -> None:
        """Give all contexts back."""
        self._asks.close()
        self._close(list(self._active))
        self._memory.end(self)
        SEEN.add(self.call.planned.call, self._share.test, self._share.total)

    def _add_row(self, key: Hashable, row: int, values: dict[int, Ragged], among: Int64 | None) -> None:
        number, texts = self._read + row, key
        if None in key:  # type: ignore[operator]
            self._rows.append((number, None, among))
            return
        if self.plan.stop == "first_true" and among is not None:
            key = (key, among.tobytes())
        anchor = self._anchors.get(key)
        if anchor is None:
            anchor = self._anchors[key] = Anchor(number, texts=texts)
        was_done = anchor.done
        if was_done:
            anchor.values = {column: lists.take(np.array([row])) for column, lists in values.items()}
        waited = len(anchor.pending)
        if anchor.want(self._askable(anchor, self.partners.units_of(among))):
            self._recall(anchor)
            self._asks.pending += len(anchor.pending) - waited
        if was_done and not anchor.done:
            self._active[anchor] = None
            anchor.start = anchor.values[0].values[:PAGE].tobytes()
            self._starts[anchor.start] += 1
        elif was_done:
            anchor.values = {}
        self._rows.append((number, anchor, among))

    def _recall(self, anchor: Anchor) -> None:
        """Answer the pairs that another join has asked."""
        if self._known is None:
            return
        truths = self._known.truths(anchor.texts, self._numbers[anchor.pending])
        self._report.answers += int((truths >= 0).sum())
        anchor.answer(truths, self.plan.stop == "first_true")

    def _leave(self, anchor: Anchor, units: Int64, truth: Bool, rows: slice, failed: Failed) -> None:
        """Leave the answers of an anchor's pairs, asks `rows` of their block, to other joins that ask the same."""
        if self._known is not None:
            told = np.array([ask not in failed for ask in range(rows.start, rows.stop)], dtype=np.bool_)
            self._known.add(anchor.texts, self._numbers[units[told]], truth[told])

    def _askable(self, anchor: Anchor, units: Int64) -> Int64:
        """Units whose pair fits the model's context, or is cut to fit; the others follow the overflow policy."""
        lengths = self.prompts.tokens(anchor, units)
        long = lengths > self._limit
        if not long.any() or can_cut(self.call, self._limit):
            return units
        if self.call.planned.call.overflow == "null":
            self._report.overflowed += int(long.sum())
            return units[~long]
        raise overflow_error(self.call, anchor.row, int(lengths.max()), self._limit)

    def _output(self, anchors: np.ndarray, partners: list[Int64]) -> pa.RecordBatch:
        counts = np.array([len(rows) for rows in partners])
        decided = {"decided": str(self._read - len(self._rows))}
        if self.plan.stop == "first_true":
            names, columns = ["anchor", "matched"], [pa.array(anchors), pa.array(counts > 0)]
        else:
            flat = np.concatenate(partners).astype(np.uint64)
            names, columns = ["anchor", "partner"], [pa.array(np.repeat(anchors, counts)), pa.array(flat)]
        return pa.record_batch(columns, names=names, metadata=decided)

    def _retire(self, anchors: list[Anchor]) -> None:
        """Leave idle what a later operator, or a waiting anchor that starts alike, will want; free the others."""
        self._starts.subtract(anchor.start for anchor in anchors)
        for anchor in anchors:
            if anchor.context >= 0 and (self.plan.retain or self._starts[anchor.start] > 0):
                owner = self._report if self.plan.retain else self
                self._memory.keep(anchor.context, self.prompts.document(anchor), owner, trail=self.prompts.frame)
                anchor.context = -1
        self._close(anchors)

    def _report_failures(self, tag: AskedPairs, failed: Failed) -> None:
        call = self.call.planned.call.output_name()
        anchors = np.repeat(np.array([anchor.row for anchor in tag.anchors]), tag.counts)
        for ask, reason in sorted(failed.items()):
            partner = int(self.partners.rows_of(tag.units[ask : ask + 1], None)[0])
            self._report.failures.append(Failure(call, int(anchors[ask]), reason, partner))

    def _close(self, anchors: list[Anchor]) -> None:
        held = [anchor for anchor in anchors if anchor.context >= 0]
        self._memory.contexts.close(np.array([anchor.context for anchor in held], dtype=np.int32))
        for anchor in held:
            anchor.context = -1
        if self._branches is not None:
            self._branches.close(anchors)
