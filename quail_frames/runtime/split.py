"""What happens when a batch does not fit the device: it is cut in two that give the same answers one after the other.

An ask may read KV that another ask of its batch writes; the writer then goes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quail_frames.errors import DeviceMemoryError
from quail_frames.runtime.batch import Batch, Float32, Int64, Read, Segments
from quail_frames.runtime.kv.pages import PAGE, pages_for
from quail_frames.runtime.tokens.ragged import ranges


@dataclass(frozen=True, eq=False)
class Part:
    """Some asks of a batch as a batch; `answers[i]` are the places of its rows in those of the whole's read i."""

    batch: Batch
    answers: tuple[Int64, ...]


def run_in_halves(run: Callable[[Batch], list[Float32]], batch: Batch) -> tuple[list[Float32], int]:
    """Answers of a batch that did not fit as a whole, and how often it was halved (1: two halves were enough).

    Raises
    ------
    DeviceMemoryError
        A single ask does not fit.
    """
    parts = halves(batch)
    if len(parts) < 2:
        raise DeviceMemoryError(
            f"a prompt of {len(batch)} tokens does not fit the device beside the model and its KV memory; open the "
            "engine with a smaller kv_budget or max_length, or take a smaller model"
        )
    found = [_run_part(run, part) for part in parts]
    answers = []
    for number, read in enumerate(batch.reads):
        logits = np.concatenate([own[number] for own, _ in found])
        rows = read.readout.options + 1  # that an answer is read from
        order = np.concatenate([part.answers[number][::rows] // rows for part in parts])
        whole = np.empty((len(read.rows) // rows, logits.shape[1]), dtype=np.float32)
        whole[order] = logits
        answers.append(whole)
    return answers, 1 + max(deeper for _, deeper in found)


def _run_part(run: Callable[[Batch], list[Float32]], part: Part) -> tuple[list[Float32], int]:
    try:
        return run(part.batch), 0
    except DeviceMemoryError:
        pass  # what the failed run holds is freed only once its exception is gone
    return run_in_halves(run, part.batch)


@dataclass(frozen=True, eq=False)
class Asks:
    """The asks of a batch, one after another: rows, unit, and which of the segments they belong to."""

    starts: Int64
    lengths: Int64
    unit: Int64
    segment: Int64

    @staticmethod
    def of(batch: Batch) -> Asks:
        """All asks of the batch."""
        counts = [len(part.starts) for part in batch.segments]
        starts, lengths, unit = (
            np.concatenate([getattr(part, name) for part in batch.segments]) for name in ("starts", "lengths", "unit")
        )
        return Asks(starts, lengths, unit, np.repeat(np.arange(len(counts)), counts))

    def of_rows(self) -> Int64:
        """The ask of each row."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)


def halves(batch: Batch) -> list[Part]:
    """Two parts of about half the tokens, to be run in this order; one where the batch is a single ask."""
    asks = Asks.of(batch)
    if len(asks.starts) < 2:
        return [Part(batch, tuple(np.arange(len(read.rows)) for read in batch.reads))]
    writers = _writers(batch, asks)
    order = np.argsort(_levels(batch, asks, writers), kind="stable")
    tokens = np.cumsum(asks.lengths[order])
    count = int(np.clip(np.searchsorted(tokens, tokens[-1] // 2, side="right"), 1, len(order) - 1))
    first = np.zeros(len(order), dtype=np.bool_)
    first[order[:count]] = True
    source = writers[batch.copies[:, 0] // PAGE]
    early = (source < 0) | first[source]
    return [_part(batch, asks, np.flatnonzero(first), early), _part(batch, asks, np.flatnonzero(~first), ~early)]


def _writers(batch: Batch, asks: Asks) -> Int64:
    """The ask that writes to each page, -1 for none."""
    kept = np.flatnonzero(batch.slots >= 0)
    units = batch.unit_pages.reshape(-1).astype(np.int64)
    pages: list[Int64] = [batch.slots[kept] // PAGE, units, batch.copies.reshape(-1) // PAGE]
    writers = np.full(int(max(part.max(initial=0) for part in pages)) + 1, -1, dtype=np.int64)
    writers[pages[0]] = asks.of_rows()[kept]
    return writers


def _levels(batch: Batch, asks: Asks, writers: Int64) -> Int64:
    """0 for an ask that reads nothing of this batch, else one more than the highest of those that it reads from."""
    levels = np.zeros(len(asks.starts), dtype=np.int64)
    reading = np.flatnonzero(asks.unit >= 0)
    if not len(reading):
        return levels
    pages = batch.unit_pages[asks.unit[reading]]
    used = np.arange(pages.shape[1]) < pages_for(batch.unit_lengths[asks.unit[reading]])[:, None]
    tables = (writers, *_copied(batch, writers))
    needs = np.concatenate([np.where(used, table[pages], -1) for table in tables], axis=1)
    needs[needs == reading[:, None]] = -1
    for _ in range(len(reading)):
        found = np.where(needs >= 0, levels[needs] + 1, 0).max(axis=1)
        if (found == levels[reading]).all():
            break
        levels[reading] = found
    return levels


def _copied(batch: Batch, writers: Int64) -> Int64:
    """[sources, pages]: the asks that write what each page takes by copies, which may come from several pages."""
    pages = np.unique(batch.copies[:, ::-1] // PAGE, axis=0)
    number = np.arange(len(pages)) - np.searchsorted(pages[:, 0], pages[:, 0])
    found = np.full((int(number.max(initial=-1)) + 1, len(writers)), -1, dtype=np.int64)
    found[number, pages[:, 0]] = writers[pages[:, 1]]
    return found


def _part(batch: Batch, asks: Asks, chosen: Int64, copies: npt.NDArray[np.bool_]) -> Part:
    lengths = asks.lengths[chosen]
    rows = ranges(asks.starts[chosen], lengths)
    starts = np.cumsum(lengths) - lengths
    units, unit = np.unique(np.append(asks.unit[chosen], -1), return_inverse=True)
    unit = unit[:-1] - 1
    segments = []
    for number, whole in enumerate(batch.segments):
        own = asks.segment[chosen] == number
        if own.any():
            segments.append(Segments(starts[own], lengths[own], unit[own], whole.tree))
    place = np.full(len(batch), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    answers = tuple(np.flatnonzero(place[read.rows] >= 0) for read in batch.reads)
    reads = tuple(Read(place[read.rows[own]], read.readout) for read, own in zip(batch.reads, answers, strict=True))
    part = Batch(
        tokens=batch.tokens[rows],
        positions=batch.positions[rows],
        slots=batch.slots[rows],
        segments=tuple(segments),
        unit_pages=batch.unit_pages[units[1:]],
        unit_lengths=batch.unit_lengths[units[1:]],
        reads=reads,
        copies=batch.copies[copies],
        blocks=(),
    )
    return Part(part, answers)
