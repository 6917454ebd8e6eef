"""Units that are equal once they are cut to the model's context: the first is asked, the others take its answer.

Snapshots of one growing text are such: beyond the context all begin with the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np

from quail_frames.runtime.operators.asks import cut_values
from quail_frames.runtime.operators.lane import ANSWERED
from quail_frames.runtime.operators.placement import Placement
from quail_frames.runtime.tokens.ragged import Int64

AT_ONCE = 64
"""Texts that are cut at a time: each may be as long as the context."""
NOBODY: Int64 = np.zeros(0, dtype=np.int64)


class Twins:
    """The cut units of one call, by the tokens that are left of them."""

    def __init__(self, place: Placement) -> None:
        self._place = place
        self._first: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}
        self._others: dict[int, list[int]] = {}

    def to_ask(self, units: Int64) -> Int64:
        """Those of the cut units that are to be asked; a twin of an answered one is answered, the others wait."""
        return np.array([unit for unit, key in self._keys(units) if not self._left_to_twin(unit, key)], dtype=np.int64)

    def answer(self, units: Int64) -> Int64:
        """Hand the answers of decided units on; returns who got one."""
        found = [NOBODY]
        for unit in units.tolist() if self._others else ():
            others = self._released(np.array([unit]))
            self._place.state.copy(unit, others)
            found.append(others)
        return np.concatenate(found)

    def forget(self, units: Int64) -> Int64:
        """These units will have no answer; returns who waited for one."""
        others = self._released(units)
        for unit in (*units.tolist(), *others.tolist()):
            key = self._key_of.pop(unit, None)
            if key is not None and self._first.get(key) == unit:
                del self._first[key]
        return others

    def _left_to_twin(self, unit: int, key: bytes) -> bool:
        """Whether another unit is asked for this one, which takes its answer, now or once it is there."""
        first = self._first.setdefault(key, unit)
        self._key_of[unit] = key
        if first == unit:
            return False
        if self._place.state.state.data[first] == ANSWERED:
            self._place.state.copy(first, np.array([unit]))
        else:
            self._others.setdefault(first, []).append(unit)
        return True

    def _released(self, units: Int64) -> Int64:
        """Units that waited for one of these; they wait no more."""
        if not self._others:
            return NOBODY
        return np.array([other for unit in units.tolist() for other in self._others.pop(unit, ())], dtype=np.int64)

    def _keys(self, units: Int64) -> Iterator[tuple[int, bytes]]:
        limit = self._place.limit - self._place.call.positions
        for start in range(0, len(units), AT_ONCE):
            some = units[start : start + AT_ONCE]
            values = cut_values(self._place.lane.values_of(some), limit)
            for row, unit in enumerate(some.tolist()):
                digest = blake2b(digest_size=16)
                for lists in values.values():
                    digest.update(len(lists[row]).to_bytes(8, "little") + lists[row].tobytes())
                yield unit, digest.digest()
