"""From the scheduler's batches back to whole prompts, for engines that hold no contexts of ours.

The arena keeps the tokens themselves where a model keeps their keys and values, so an ask on
a context reads its prompt as a model reads its KV.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from quail_frames.runtime.batch import AskBlock, Batch, Int32, Segments
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.tokens.assemble import assemble
from quail_frames.runtime.tokens.layouts import Input
from quail_frames.runtime.tokens.ragged import Int64, Ragged, offsets_of, ranges

Prompts = tuple[Int32, ...]
"""Tokens up to each row that an ask reads, itself included."""


class PromptStore:
    """The tokens of all contexts, in pages."""

    def __init__(self) -> None:
        self._arena: Int32 = np.zeros(0, dtype=np.int32)

    def reserve(self, pages: int) -> None:
        """An arena of so many pages."""
        self._arena = np.zeros(pages * PAGE, dtype=np.int32)

    def whole(self, batch: Batch) -> list[tuple[AskBlock, list[Prompts]]]:
        """Keep what the batch keeps; the blocks that are read, with the prompts of every ask."""
        kept = np.flatnonzero(batch.slots >= 0)
        self._arena[batch.slots[kept]] = batch.tokens[kept]
        self._arena[batch.copies[:, 1]] = self._arena[batch.copies[:, 0]]
        prefixes = self._prefixes(batch)
        pairs = zip(batch.segments, batch.blocks, strict=True)
        return [(block, list(_of_block(own, block, prefixes))) for own, block in pairs if block.readout is not None]

    def _prefixes(self, batch: Batch) -> Ragged:
        """Tokens of each unit, and a last empty list for "no unit"."""
        lengths: Int64 = np.append(batch.unit_lengths, 0)
        unit = np.repeat(np.arange(len(lengths)), lengths)
        positions = ranges(np.zeros(len(lengths), dtype=np.int64), lengths)
        slots = batch.unit_pages[unit, positions // PAGE].astype(np.int64) * PAGE + positions % PAGE
        return Ragged(self._arena[slots], offsets_of(lengths))


def _of_block(segments: Segments, block: AskBlock, prefixes: Ragged) -> Iterator[Prompts]:
    joined = assemble((Input(0), Input(1)), {0: prefixes.take(segments.unit), 1: block.tokens}, len(block))
    paths = _paths(block)
    size = 0 if block.tree is None else len(block.tree)
    for tokens in joined.lists():
        chain, tree = tokens[: len(tokens) - size], tokens[len(tokens) - size :]
        yield tuple(np.concatenate([chain[: len(chain) + cut], tree[path]]) for cut, path in paths)


def _paths(block: AskBlock) -> Sequence[tuple[int, Int64]]:
    """For each read row: where the ask's chain ends for it, counted from its end, and its tree tokens."""
    nothing = np.zeros(0, dtype=np.int64)
    if block.tree is None:
        return [(read + 1, nothing) for read in block.reads]
    size, visible = len(block.tree), block.tree.visible
    return [
        (0, np.flatnonzero(visible[size + read])) if read >= -size else (read + 1 + size, nothing)
        for read in block.reads
    ]
