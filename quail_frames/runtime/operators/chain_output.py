"""What leaves a chain: decided rows in their order, with answers and truths, counted in the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from quail_frames.errors import ContextOverflowError
from quail_frames.plan import conditions as logic
from quail_frames.plan.physical import Chain, ConditionOutput
from quail_frames.runtime.operators.answers import answer_array, truth_array
from quail_frames.runtime.operators.lane import ANSWERED, Lane
from quail_frames.runtime.operators.overflow import overflow_error
from quail_frames.runtime.operators.questions import Question
from quail_frames.runtime.operators.rows import KEPT, REFUSED, RowWindow
from quail_frames.runtime.operators.truths import Truths
from quail_frames.runtime.report import Failure, RunReport
from quail_frames.runtime.tokens.ragged import Int64

OUTPUT_ROWS = 512


class ChainOutput:
    """Takes decided rows from the front of a chain's window; `limit` is the longest prompt, in tokens."""

    def __init__(
        self,
        plan: Chain,
        questions: Sequence[Question],
        lanes: Sequence[Lane],
        rows: RowWindow,
        truths: Truths,
        limit: int,
        report: RunReport,
    ) -> None:
        self._plan, self._questions, self._lanes = plan, questions, lanes
        self._rows, self._truths, self._limit, self._report = rows, truths, limit, report
        self._kept = 0

    @property
    def full(self) -> bool:
        """The plan's limit is reached by what has left and what is decided at the front."""
        if self._plan.limit is None:
            return False
        ahead = self._rows.state.data[: self._rows.decided()] == KEPT
        return self._kept + int(ahead.sum()) >= self._plan.limit

    def take(self, last: bool) -> Iterator[pa.RecordBatch]:
        """Decided rows from the front: the more at a time the better, but retained ones at once.

        Raises
        ------
        ContextOverflowError
            The prompt of the row behind them is too long, and its call says `overflow="error"`.
        """
        count = self._rows.decided()
        if not count or not (last or self._plan.retain or count >= OUTPUT_ROWS):
            return
        states = self._rows.state.data[:count]
        refused = np.flatnonzero(states == REFUSED)
        yield self._batch(int(refused[0]) if len(refused) else count)
        if len(refused) and not self.full:
            raise self._overflow_error()

    def _batch(self, count: int) -> pa.RecordBatch:
        """The kept ones of so many leading rows, which leave the window."""
        self._count_answers(count)
        positions = np.flatnonzero(self._rows.state.data[:count] == KEPT)
        if self._plan.limit is not None:
            positions = positions[: self._plan.limit - self._kept]
        self._kept += len(positions)
        numbers = pa.array((self._rows.first + positions).astype(np.uint64))
        columns = [numbers, *self._columns(positions)]
        for blocks in self._rows.advance(count):
            for lane, block in zip(self._lanes, blocks, strict=True):
                lane.blocks.drop(block)
        names = ["row", *(output.name for output in self._plan.outputs)]
        return pa.RecordBatch.from_arrays(columns, names, metadata={"decided": str(self._rows.first)})

    def _columns(self, positions: Int64) -> Iterator[pa.Array]:
        leaves = self._truths.leaves(positions)
        for output in self._plan.outputs:
            if isinstance(output, ConditionOutput):
                yield truth_array(logic.evaluate(output.condition, leaves))
            else:
                known = leaves[logic.Answer(output.call)] < logic.NULL
                store = self._questions[output.call].state
                yield answer_array(store, self._truths.units(output.call, positions), known)

    def _count_answers(self, rows: int) -> None:
        self._report.decided += rows
        for number, question in enumerate(self._questions):
            units = self._truths.units(number, np.arange(rows))
            self._report.answers += int((question.state.state.data[units[units >= 0]] == ANSWERED).sum())
            if question.state.reasons:
                self._report_failures(question, units)

    def _report_failures(self, question: Question, units: Int64) -> None:
        """Say which of the leading rows were not answered, and why."""
        call, reasons = question.call.planned.call.output_name(), question.state.reasons
        for row in np.flatnonzero(np.isin(units, list(reasons))).tolist():
            self._report.failures.append(Failure(call, self._rows.first + row, reasons[int(units[row])]))

    def _overflow_error(self) -> ContextOverflowError:
        """What to say of the first row of the window."""
        question = self._questions[int(self._rows.awaited.data[0])]
        unit = int(self._truths.units(question.number, np.zeros(1, dtype=np.int64))[0])
        tokens = int(question.lane.value_tokens.data[unit]) + question.call.positions
        return overflow_error(question.call, self._rows.first, tokens, self._limit)
