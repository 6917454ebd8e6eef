"""Learning the order of a chain's questions while it runs.

It starts with what is known: the user's share, else one seen earlier in this process. A few
rows, spread over what was read, go ahead of the others (the pilot); in it, calls about which
nothing is known take turns at being asked first. Its answers count like any others. After
every batch what was seen takes the place of the estimates, and the order changes where that
is expected to save enough. The order decides who is asked what first, never what a row's
answer is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from quail_frames.cost.programs import Price, Program
from quail_frames.plan import conditions as logic
from quail_frames.plan.calls import AiCall, describe_call
from quail_frames.plan.physical import Chain
from quail_frames.plan.selectivity import SEEN, UNKNOWN_SHARE, Counts, Estimate, estimate
from quail_frames.runtime.compiled import CompiledCall
from quail_frames.runtime.operators.truths import passes
from quail_frames.runtime.report import LearnedShare, OrderChange
from quail_frames.runtime.tokens.ragged import Int64

Bool = npt.NDArray[np.bool_]
Turns = npt.NDArray[np.int16]

PILOT_ROWS = 32
"""Rows that are asked before the others, at most; a quarter of the rows read where those are fewer."""
LEAST_PILOT = 4
STATED_ROWS = 8.0
"""How many answers the user's number is worth."""
ASSUMED_ROWS = 2.0
REMEMBERED_ROWS = 64.0
"""How many answers earlier runs are worth, at most."""
WINDOW_ROWS = 2000.0
"""Older answers count less and less beyond so many, so that the order follows data that changes."""
WORTH_IT = 0.03
"""An order replaces the current one where it is expected to save this share of the work."""
MOVED = 0.02
"""Shares that moved less than this are not looked at again."""


@dataclass
class Share:
    """What is believed of one test: the starting estimate with its weight in rows, and the counts of this run."""

    test: logic.CallTest
    start: Estimate
    weight: float
    recent: Counts = field(default_factory=Counts)
    total: Counts = field(default_factory=Counts)

    @staticmethod
    def of(call: AiCall, test: logic.CallTest) -> Share:
        """From what is known before the run."""
        start = estimate(call, test)
        most = {"stated": STATED_ROWS, "remembered": min(start.answers, REMEMBERED_ROWS), "assumed": ASSUMED_ROWS}
        return Share(test, start, most[start.origin])

    @property
    def value(self) -> float:
        """The mean of a Beta distribution: prior counts and those of the run."""
        return (self.weight * self.start.share + self.recent.passed) / (self.weight + self.recent.asked)

    def add(self, counts: Counts) -> None:
        """Count more answers."""
        self.total += counts
        self.recent += counts
        if self.recent.asked > WINDOW_ROWS:
            keep = WINDOW_ROWS / self.recent.asked
            self.recent = Counts(self.recent.passed * keep, self.recent.asked * keep)


class LearnedOrder:
    """The current order of a chain's calls, and why it is that."""

    def __init__(self, plan: Chain, calls: Sequence[CompiledCall]) -> None:
        self.order = plan.order
        self._calls = [call.planned.call for call in calls]
        self._condition = plan.keep
        leaves = () if plan.keep is None else logic.leaves_of(plan.keep)
        tests = [leaf for leaf in leaves if not isinstance(leaf, logic.Mask)]
        self._shares = {test: Share.of(self._calls[test.call], test) for test in tests}
        self._masks = {leaf: UNKNOWN_SHARE for leaf in leaves if isinstance(leaf, logic.Mask)}
        self.deciding = tuple(dict.fromkeys(test.call for test in tests))
        self.learns = plan.learn and len(self.deciding) > 1
        assumed = {test.call for test, share in self._shares.items() if share.start.origin == "assumed"}
        self.unknown = tuple(call for call in self.deciding if call in assumed) if self.learns else ()
        self._chosen_by: dict[logic.Leaf, float] = {
            test: estimate(self._calls[test.call], test, seen=None).share for test in tests
        }
        self._looked_at = self._chosen_by

    def observe(self, call: int, values: np.ndarray) -> None:
        """Answers of the call, one for each distinct input."""
        for test, share in self._shares.items():
            if test.call == call and len(values):
                passed = passes(test, self._calls[call], values)
                share.add(Counts(float(passed.sum()), float(len(values))))

    def pilot_of(self, rows: Int64, limited: bool) -> Int64:
        """Which of the rows go first: spread over all, or the first ones where the query wants only the first rows."""
        count = min(len(rows), max(LEAST_PILOT, min(PILOT_ROWS, len(rows) // 4)))
        return rows[:count] if limited else rows[np.linspace(0, len(rows) - 1, count).astype(np.int64)]

    def orders(self, turns: Turns, holding: bool) -> Iterator[tuple[tuple[int, ...], Bool]]:
        """(order, which rows are asked in it); `turns` are the rows' numbers in the pilot.

        While a pilot is under way (`holding`) only its rows are asked, and the calls about which nothing is known take
        turns at being the first, so that each is seen of rows that no other has chosen.
        """
        if not holding:
            yield self.order, np.ones(len(turns), dtype=np.bool_)
            return
        count = max(len(self.unknown), 1)
        for turn in range(count):
            first = self.unknown[turn : turn + 1]
            order = (*first, *(call for call in self.order if call not in first))
            yield order, (turns >= 0) & (turns % count == turn)

    def reconsider(self, prices: Callable[[], Sequence[Price]], row: int) -> OrderChange | None:
        """Change the order where what was learned makes another one cheaper."""
        values = self._values()
        moved = max((abs(values[test] - self._looked_at[test]) for test in values), default=0.0)
        if not self.learns or moved < MOVED:
            return None
        assert self._condition is not None
        self._looked_at = values
        program = Program(self._condition, values | self._masks, prices())
        best, current = program.best(), program.cost(self.order)
        if best.cost >= (1 - WORTH_IT) * current:
            return None
        rest = [call for call in self.order if call not in best.order]
        change = self._change(row, (*best.order, *rest), 1 - best.cost / current)
        self.order, self._chosen_by = (*best.order, *rest), values
        return change

    def remember(self) -> None:
        """Leave what was seen to later runs of this process."""
        for test, share in self._shares.items():
            SEEN.add(self._calls[test.call], test, share.total)
            share.total = Counts()

    def _values(self) -> dict[logic.Leaf, float]:
        return {test: share.value for test, share in self._shares.items()}

    def _change(self, row: int, order: tuple[int, ...], saves: float) -> OrderChange:
        names = {call: describe_call(self._calls[call]) for call in self.order}
        learned = tuple(self._learned(names[test.call], share) for test, share in self._shares.items())
        asked = tuple(names[call] for call in self.order if call in self.deciding)
        then = tuple(names[call] for call in order if call in self.deciding)
        return OrderChange(row, asked, then, learned, saves)

    def _learned(self, name: str, share: Share) -> LearnedShare:
        before = self._chosen_by[share.test]
        return LearnedShare(name, share.start.origin, before, share.value, round(share.recent.asked))
