"""From stored answers to the truths that conditions are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quail_frames.plan import conditions as logic
from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.physical import Chain, ConditionOutput
from quail_frames.runtime.operators.lane import ANSWERED, NULLED, CallState
from quail_frames.runtime.operators.rows import RowWindow
from quail_frames.runtime.tokens.ragged import Int64

Bool = npt.NDArray[np.bool_]

_COMPARE = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}


def passes(test: logic.CallTest, call: AiCall, values: np.ndarray) -> logic.Truth:
    """TRUE or FALSE for each stored answer."""
    if isinstance(test, logic.Answer):
        return values.astype(np.int8)
    if isinstance(test, logic.ScoreTest):
        found = getattr(np, _COMPARE[test.comparison])(values, test.value)
        return np.asarray(found).astype(np.int8)
    assert isinstance(call, AiClassify)
    chosen = [number for number, label in enumerate(call.labels) if label in test.labels]
    return (np.isin(values, chosen) != test.negated).astype(np.int8)


def answer_state(store: CallState, units: Int64) -> logic.Truth:
    """PENDING, NULL, or the truth of an AiIf (TRUE for other kinds: "answered"); unit -1 is NULL."""
    state = store.state.data[units]
    boolean = store.values.data.dtype == np.int8
    truth = np.where(state == ANSWERED, store.values.data[units] if boolean else logic.TRUE, logic.PENDING)
    return np.where((state == NULLED) | (units < 0), logic.NULL, truth).astype(np.int8)


class Truths:
    """Truths of a chain's conditions for rows of its window.

    `states[c]` and `lanes[c]` are the answers of call c and the number of the lane that it is asked in.
    """

    def __init__(self, plan: Chain, states: Sequence[CallState], lanes: Sequence[int], rows: RowWindow) -> None:
        self._states, self._lanes, self._rows = states, lanes, rows
        self._plan = plan
        outputs = [output.condition for output in plan.outputs if isinstance(output, ConditionOutput)]
        conditions = outputs if plan.keep is None else [plan.keep, *outputs]
        leaves = dict.fromkeys(leaf for condition in conditions for leaf in logic.leaves_of(condition))
        self._tests = [leaf for leaf in leaves if isinstance(leaf, logic.ScoreTest | logic.LabelTest)]

    def units(self, call: int, positions: Int64) -> Int64:
        """Units of the rows in the call's lane."""
        return self._rows.units[self._lanes[call]].data[positions]

    def leaves(self, positions: Int64) -> logic.Leaves:
        """Truth of every leaf of the plan's conditions; `Answer(c)` is there for every call, as its state."""
        leaves = logic.Leaves(len(positions))
        for number, store in enumerate(self._states):
            leaves[logic.Answer(number)] = answer_state(store, self.units(number, positions))
        for number in range(len(self._plan.masks)):
            leaves[logic.Mask(number)] = self._rows.masks[number].data[positions]
        for test in self._tests:
            store, state = self._states[test.call], leaves[logic.Answer(test.call)]
            values = store.values.data[self.units(test.call, positions)]
            found = passes(test, store.call.planned.call, values)
            leaves[test] = np.where(state == logic.TRUE, found, state).astype(np.int8)
        return leaves

    def verdict(self, leaves: logic.Leaves) -> tuple[Bool, Bool]:
        """(rows that the filter drops [rows], calls still needed [calls, rows])."""
        rows, calls = leaves.rows, len(self._states)
        dropped, need = np.zeros(rows, dtype=np.bool_), np.zeros((calls, rows), dtype=np.bool_)
        open_filter = np.zeros(rows, dtype=np.bool_)
        if self._plan.keep is not None:
            for conjunct in logic.conjuncts(self._plan.keep):
                truth = logic.evaluate(conjunct, leaves)
                dropped |= (truth == logic.FALSE) | (truth == logic.NULL)
                open_filter |= truth == logic.PENDING
            need |= logic.needed(self._plan.keep, leaves, ~dropped, calls)
        kept = ~dropped & ~open_filter
        for output in self._plan.outputs:
            if isinstance(output, ConditionOutput):
                need |= logic.needed(output.condition, leaves, kept, calls)
            else:
                need[output.call] |= kept & (leaves[logic.Answer(output.call)] == logic.PENDING)
        return dropped, need
