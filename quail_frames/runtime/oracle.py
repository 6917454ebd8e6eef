"""Models without arithmetic: the oracle, which proves the runtime, and the null model, which times its host side.

The oracle's state at a token is a sum over all (position, token) pairs visible to it,
each mixed to 64 bits, gathered through the same arena slots, prefixes and tree masks that
a real model reads. A wrong page, stale KV, wrong position, lost or doubled ask therefore
gives a wrong answer.
"""

from __future__ import annotations

import time

import numpy as np

from quail_frames.runtime.batch import Batch, Float32, ReadoutSpec, Segments
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.marks import UInt64, mix, token_marks
from quail_frames.runtime.tokens.ragged import Int32, Int64, offsets_of, ranges


def logits_of(states: UInt64, token_ids: Int32) -> Float32:
    """Logits [R, N] in -8..8 from states [R]."""
    bits = mix(states[:, None] ^ mix(token_ids.astype(np.int64))[None, :])
    return ((bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-20) - np.float32(8.0)).astype(np.float32)


def state_of(tokens: Int32) -> UInt64:
    """The state at the last of these tokens when they are a whole prompt, shape (1,)."""
    marks = token_marks(tokens, np.arange(len(tokens), dtype=np.int32))
    return marks.sum(dtype=np.uint64, keepdims=True)


def option_logits_of(states: UInt64) -> Float32:
    """Logits [A, options] in -8..8 from states [A, options + 1], the last of each row the final one."""
    return logits_of(mix(states[:, :-1] ^ mix(states[:, -1:])).reshape(-1), OPTION).reshape(len(states), -1)


OPTION = np.array([-2], dtype=np.int32)
"""Stands for the decision head where token ids stand for the output head."""


def with_normalizer(logits: Float32, states: UInt64) -> Float32:
    """Logits and, as a last column, a log-sum-exp over the vocabulary that is a function of the state."""
    return np.concatenate([logits, logits_of(states, np.array([-1], dtype=np.int32)) + np.float32(20)], axis=1)


class OracleModel:
    """Sums of token marks through the arena."""

    def __init__(self) -> None:
        self._arena: UInt64 = np.zeros(0, dtype=np.uint64)

    def clock(self) -> float:
        """Seconds."""
        return time.perf_counter()

    def reserve(self, pages: int) -> None:
        """An arena of this many pages, filled with noise: nothing may be read before it is written."""
        self._arena = mix(np.arange(pages * PAGE, dtype=np.uint64))

    def run(self, batch: Batch) -> list[Float32]:
        """Logits for every read of the batch, in order."""
        marks = token_marks(batch.tokens, batch.positions)
        kept = np.flatnonzero(batch.slots >= 0)
        self._arena[batch.slots[kept]] = marks[kept]
        self._arena[batch.copies[:, 1]] = self._arena[batch.copies[:, 0]]
        prefixes = self._prefix_sums(batch)
        states = np.zeros(len(batch), dtype=np.uint64)
        for segments in batch.segments:
            _inside_sums(segments, marks, states)
            rows = ranges(segments.starts, segments.lengths)
            seen = np.where(segments.unit >= 0, prefixes[segments.unit], np.uint64(0))
            states[rows] += np.repeat(seen, segments.lengths)
        return [_read_states(states[read.rows], read.readout) for read in batch.reads]

    def _prefix_sums(self, batch: Batch) -> UInt64:
        """Sum over the visible tokens of each unit, and a last 0 for "no unit"."""
        units = len(batch.unit_lengths)
        positions = ranges(np.zeros(units, dtype=np.int64), batch.unit_lengths)
        unit = np.repeat(np.arange(units), batch.unit_lengths)
        slots = batch.unit_pages[unit, positions // PAGE].astype(np.int64) * PAGE + positions % PAGE
        return np.append(_list_sums(self._arena[slots], offsets_of(batch.unit_lengths)), np.uint64(0))


def _read_states(states: UInt64, readout: ReadoutSpec) -> Float32:
    """What a read of rows with these states gives."""
    if readout.options:
        return option_logits_of(states.reshape(-1, readout.options + 1))
    logits = logits_of(states, readout.token_ids)
    return with_normalizer(logits, states) if readout.normalize else logits


def _list_sums(values: UInt64, offsets: Int64) -> UInt64:
    total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(values, dtype=np.uint64)])
    return total[offsets[1:]] - total[offsets[:-1]]


def _inside_sums(segments: Segments, marks: UInt64, states: UInt64) -> None:
    """Add to `states` what each token sees inside its own ask."""
    rows = ranges(segments.starts, segments.lengths)
    own = marks[rows]
    offsets = offsets_of(segments.lengths)
    before = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(own, dtype=np.uint64)])
    states[rows] += before[1:] - np.repeat(before[offsets[:-1]], segments.lengths)
    if segments.tree is None:
        return
    size = len(segments.tree)
    nodes = (segments.starts + segments.lengths - size)[:, None] + np.arange(size)
    chain = states[nodes[:, 0]] - marks[nodes[:, 0]]
    seen = np.where(segments.tree.visible, marks[nodes][:, None, :], np.uint64(0)).sum(axis=2, dtype=np.uint64)
    states[nodes] = chain[:, None] + seen


class NullModel:
    """Answers from a hash of each ask's own tokens: measures the host alone."""

    def clock(self) -> float:
        """Seconds."""
        return time.perf_counter()

    def reserve(self, pages: int) -> None:
        """Nothing is kept."""

    def run(self, batch: Batch) -> list[Float32]:
        """Logits for every read of the batch, in order."""
        marks = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mix(batch.tokens), dtype=np.uint64)])
        answers, reading = [], [block for block in batch.blocks if block.readout is not None]
        for read, block in zip(batch.reads, reading, strict=True):
            width = len(block.reads)
            first = read.rows.reshape(-1, width)[:, 0] - block.reads[0] - block.tokens.lengths
            states = marks[read.rows + 1] - marks[np.repeat(first, width)]
            answers.append(_read_states(states, read.readout))
        return answers
