"""The chain: calls asked of rows, as far as the filter and the outputs need them.

After every batch the rows whose answer came are judged again; each undecided row waits
for the first call, in the current order, that can still change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quail_frames.plan.physical import Chain
from quail_frames.runtime.batch import Float32
from quail_frames.runtime.compiled import CompiledCall, Tokenizer
from quail_frames.runtime.kv.memory import Memory
from quail_frames.runtime.operators.answers import truth_of_mask
from quail_frames.runtime.operators.chain_output import ChainOutput
from quail_frames.runtime.operators.failures import NOTHING_FAILED, Failed, without_asks
from quail_frames.runtime.operators.inputs import InputColumn
from quail_frames.runtime.operators.known import KnownAnswers
from quail_frames.runtime.operators.lane import ANSWERED, NULLED, REFUSED, UNASKED, Lane, lanes_of
from quail_frames.runtime.operators.learning import LearnedOrder
from quail_frames.runtime.operators.overflow import can_cut
from quail_frames.runtime.operators.questions import Asked, Question
from quail_frames.runtime.operators.rows import DROPPED, KEPT, NO_PILOT, RowWindow
from quail_frames.runtime.operators.rows import REFUSED as ROW_REFUSED
from quail_frames.runtime.operators.starts import share_starts
from quail_frames.runtime.operators.truths import Truths
from quail_frames.runtime.report import OrderChange, RunReport
from quail_frames.runtime.room import Room
from quail_frames.runtime.tokens.ragged import Int64

Bool = npt.NDArray[np.bool_]


class ChainOperator:
    """Runs a `Chain` plan over record batches."""

    def __init__(
        self,
        plan: Chain,
        calls: Sequence[CompiledCall],
        tokenizer: Tokenizer,
        memory: Memory,
        limit: int,
        report: RunReport,
        known: KnownAnswers | None = None,
    ) -> None:
        self.plan = plan
        self._memory = memory
        self._report = report
        self._limit = limit
        calls = share_starts(calls, alone=plan.retain or plan.retain_all)
        self.lanes, lane_of = lanes_of(calls, tokenizer, memory)
        self.questions = [
            Question(number, self.lanes[lane], limit, plan.retain or plan.retain_all, report)
            for number, lane in enumerate(lane_of)
        ]
        self.rows = RowWindow(len(self.lanes), len(plan.masks))
        self._truths = Truths(plan, [question.state for question in self.questions], lane_of, self.rows)
        self._learned = LearnedOrder(plan, calls)
        self._changes: tuple[OrderChange, ...] = ()
        self._holding = self._learned.learns
        self._output = ChainOutput(plan, self.questions, self.lanes, self.rows, self._truths, limit, report)
        if known is not None:
            for number in plan.remember:
                self.questions[number].share_answers(known.rows(plan.calls[number], report))

    @property
    def waiting_tokens(self) -> int:
        """Input tokens of the undecided rows: how far ahead the chain has read."""
        waiting = self.rows.waiting
        total = 0
        for number, lane in enumerate(self.lanes):
            units = self.rows.units[number].data[waiting]
            total += int(lane.value_tokens.data[units[units >= 0]].sum())
        return total

    @property
    def ready_tokens(self) -> int:
        """About how many tokens could be asked now."""
        return sum(question.ready_tokens for question in self.questions)

    @property
    def finished(self) -> bool:
        """The limit is reached: no row is wanted any more."""
        return self._output.full

    def read(self, batch: pa.RecordBatch) -> None:
        """Take in a record batch of inputs and masks."""
        columns = {n: InputColumn(name, batch.column(name)) for n, name in enumerate(self.plan.inputs)}
        masks = [truth_of_mask(batch.column(name)) for name in self.plan.masks]
        taken = [lane.intake(columns) for lane in self.lanes]
        self._report.rows += batch.num_rows
        positions = self.rows.append([units for units, _ in taken], masks, [block for _, block in taken])
        self._judge(positions)

    def fill(self, room: Room) -> None:
        """Add asks: first on resident documents, the furthest questions first, then new documents."""
        if self._holding:
            self._start_pilot()
        for number in reversed(self._learned.order):
            self.questions[number].fill_resident(room)
        for number in reversed(self._learned.order):
            self.questions[number].fill_fresh(room)

    def accept(self, tag: Asked, logits: Float32, failed: Failed = NOTHING_FAILED) -> None:
        """Answers of one block."""
        if failed:
            rows = np.array(sorted(failed), dtype=np.int64)
            tag.question.give_up(self._memory, tag.units[rows], [failed[row] for row in rows.tolist()])
            tag, logits = (
                tag.part(np.delete(np.arange(len(tag.units)), rows)),
                without_asks(logits, rows, len(tag.units)),
            )
            self._report.asks += len(rows)
        decided = tag.question.accept(self._memory, tag.units, logits)
        self._learned.observe(tag.question.number, tag.question.state.values.data[decided])
        self._report.count(tag.question.call.planned.call, len(decided), tag.question.state.true(decided))
        twins = tag.question.answer_twins(decided)
        tag.question.leave(np.concatenate([decided, twins]))
        self._report.truncated += int(tag.question.too_long(decided).sum()) + len(twins)

    def settle(self) -> None:
        """After a batch's answers: judge again the rows that got one."""
        waiting = self.rows.waiting
        awaited = self.rows.awaited.data[waiting]
        answered = np.zeros(len(waiting), dtype=np.bool_)
        for number, question in enumerate(self.questions):
            mine = np.flatnonzero(awaited == number)
            units = self._truths.units(number, waiting[mine])
            answered[mine] = question.state.state.data[units] >= ANSWERED
        self._judge(waiting[answered])
        self._learn()

    def take_output(self, last: bool) -> Iterator[pa.RecordBatch]:
        """Decided rows from the front of the window."""
        return self._output.take(last)

    def close(self) -> None:
        """Give all contexts back."""
        for question in self.questions:
            self._memory.contexts.close(np.array(question.close(), dtype=np.int32))
        for lane in self.lanes:
            held = np.flatnonzero(lane.context.data[: lane.units] >= 0)
            self._memory.contexts.close(lane.context.data[held])
            lane.context.data[held] = -1
        self._memory.end(self)
        self._learned.remember()
        met = self.rows.first + self.rows.size  # a change that no row has met is none
        self._report.order_changes += tuple(change for change in self._changes if change.row < met)

    def _start_pilot(self) -> None:
        """Let some rows go ahead of the others, unless they already have."""
        waiting = self.rows.waiting
        if len(waiting):
            self._reorder()
        while len(waiting) and not self._pilot_under_way(waiting):
            picked = self._learned.pilot_of(waiting, self.plan.limit is not None)
            self.rows.pilot.data[picked] = np.arange(len(picked))
            self._judge(picked)
            waiting = self.rows.waiting

    def _pilot_under_way(self, waiting: Int64) -> bool:
        return bool((self.rows.pilot.data[waiting] != NO_PILOT).any())

    def _learn(self) -> None:
        """Change the order of the questions by what their answers tell, for rows of which nothing was asked yet."""
        waiting = self.rows.waiting
        released = self._holding and not self._pilot_under_way(waiting)
        self._holding &= not released
        changed = self._reorder()
        if changed:
            for number in self._learned.deciding:
                self.questions[number].withdraw()
        if changed or released:
            self._judge(waiting[self._unasked(waiting)])

    def _reorder(self) -> bool:
        """Put the questions into the order that what is known by now suggests; False where it is that already."""
        change = self._learned.reconsider(lambda: [question.price() for question in self.questions], self._next_row())
        self._changes += () if change is None else (change,)
        return change is not None

    def _next_row(self) -> int:
        """The first row of which nothing was asked yet: the next one to be read, where all were."""
        waiting = self.rows.waiting
        unasked = waiting[self._unasked(waiting)]
        return self.rows.first + (int(unasked[0]) if len(unasked) else self.rows.size)

    def _unasked(self, positions: Int64) -> Bool:
        """Rows that wait for no call, or for one that has been withdrawn."""
        awaited = self.rows.awaited.data[positions]
        unasked = awaited < 0
        for number in self._learned.deciding:
            mine = np.flatnonzero(awaited == number)
            states = self.questions[number].state.state.data[self._truths.units(number, positions[mine])]
            unasked[mine] = states == UNASKED
        return unasked

    def _judge(self, positions: Int64) -> None:
        """Decide rows, or queue the call that each waits for."""
        if not len(positions):
            return
        before = [self._lane_units(lane, positions) for lane in range(len(self.lanes))]
        leaves = self._truths.leaves(positions)
        dropped, need = self._truths.verdict(leaves)
        state = np.where(dropped, DROPPED, np.where(need.any(axis=0), self.rows.state.data[positions], KEPT))
        self.rows.state.data[positions] = state
        pending = np.flatnonzero(need.any(axis=0) & ~dropped)
        self._queue(positions, pending, need)
        rows_kept = positions[state == KEPT]
        self._release(before, [self._lane_units(lane, rows_kept) for lane in range(len(self.lanes))])

    def _queue(self, positions: Int64, pending: Int64, need: Bool) -> None:
        """Let the pending rows wait for their first needed call; while a pilot is under way, its rows only."""
        turns = self.rows.pilot.data[positions[pending]]
        for order, chosen in self._learned.orders(turns, self._holding):
            rows = pending[chosen]
            for number in order:
                mine = rows[need[number, rows]]
                rows = rows[~need[number, rows]]
                self._await(number, positions[mine])

    def _await(self, number: int, positions: Int64) -> None:
        """Let rows wait for a call; units not asked yet enter its queue."""
        if not len(positions):
            return
        question = self.questions[number]
        self.rows.awaited.data[positions] = number
        units = np.unique(self._truths.units(number, positions))
        units = units[question.state.state.data[units] == UNASKED]
        self._learned.observe(number, question.state.values.data[question.recall(units)])
        units = units[question.state.state.data[units] == UNASKED]
        long = question.too_long(units)
        cut = can_cut(question.call, self._limit)
        question.push(units[~long | cut])
        if long.any() and not cut:
            nulled = question.overflow == "null"
            question.state.state.data[units[long]] = NULLED if nulled else REFUSED
            self._report.overflowed += int(long.sum()) if nulled else 0
        self._settle_refused(number, positions)

    def _settle_refused(self, number: int, positions: Int64) -> None:
        """Rows whose awaited call is already refused, nulled or answered do not wait for a batch."""
        state = self.questions[number].state.state.data[self._truths.units(number, positions)]
        self.rows.state.data[positions[state == REFUSED]] = ROW_REFUSED
        self._judge(positions[(state == NULLED) | (state == ANSWERED)])

    def _lane_units(self, lane: int, positions: Int64) -> Int64:
        units = self.rows.units[lane].data[positions]
        return np.unique(units[units >= 0])

    def _release(self, touched: list[Int64], kept: list[Int64]) -> None:
        """Free the documents of units that no row in the window waits for."""
        for number, units in enumerate(touched):
            lane = self.lanes[number]
            held = units[lane.context.data[units] >= 0]
            if len(held):
                waiting = self.rows.units[number].data[self.rows.waiting]
                self._retire(lane, held[~np.isin(held, waiting)], waiting, kept[number])

    def _retire(self, lane: Lane, units: Int64, waiting: Int64, kept: Int64) -> None:
        """Leave idle what a later operator, or a waiting row that starts alike, will want; free the others."""
        wanted = np.isin(units, kept) if self.plan.retain else np.zeros(len(units), dtype=np.bool_)
        wanted |= self.plan.retain_all
        alike = lane.alike.data[units] & np.isin(lane.start.data[units], lane.start.data[waiting])
        leaving = np.ones(len(units), dtype=np.bool_)
        for place in np.flatnonzero(wanted | alike):
            document = lane.documents.get(int(units[place]))
            if document is not None:
                owner = self._report if wanted[place] else self
                trail = lane.instruction_tokens(int(units[place]))
                self._memory.keep(int(lane.context.data[units[place]]), document, owner, trail=trail)
                leaving[place] = False
        self._memory.contexts.close(lane.context.data[units[leaving]])
        lane.context.data[units] = -1
        for unit in units.tolist():
            lane.documents.pop(unit, None)
