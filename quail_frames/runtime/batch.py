"""Asks and batches: "extend a context by some tokens and read some rows", as arrays.

An `AskBlock` holds many asks of one shape. `build_batch` joins blocks into one `Batch`,
which is all that a model sees. Nothing here loops over asks or tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.kv.contexts import ContextTable
from quail_frames.runtime.tokens.ragged import Ragged, offsets_of, ranges

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]
NO_COPIES = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class TrueFalseMargin:
    """An answer in one number: `(pool(TRUE logits) - pool(FALSE logits)) / temperature + bias`.

    The first `true_tokens` ids spell TRUE, the others FALSE; pool is `max` or `logsumexp`.
    """

    true_tokens: int
    pooling: str = "max"
    temperature: float = 1.0
    bias: float = 0.0


@dataclass(frozen=True)
class BestColumn:
    """An answer in one number: the column of the largest logit, the first of equals."""


@dataclass(frozen=True, eq=False)
class ReadoutSpec:
    """What is read at a row: logits of `token_ids`, and the log-sum-exp over the vocabulary if `normalize`.

    A model may give `answer` in their place, as a single column, so that only answers cross a GPU's bus.

    With `options` > 0 the model's decision head is read instead: an ask has so many option rows and then its final
    row, and gives one row of logits [options].
    """

    token_ids: Int32
    normalize: bool = False
    options: int = 0
    answer: TrueFalseMargin | BestColumn | None = None

    def answered(self, logits: Float32) -> bool:
        """Whether these rows are the answers themselves: one column where there are at least two logits."""
        return self.answer is not None and logits.shape[1] == 1


@dataclass(frozen=True, eq=False)
class TokenTree:
    """The last tokens of an ask form a tree: token j follows token `parents[j]`, or the ask's chain where -1.

    Parents come before children. Behind the tree stand `closing` tokens, a chain that sees all of it; its first token
    is one deeper than the deepest of the tree, so its position does not depend on the order of the branches.
    """

    parents: Int32
    closing: int = 0

    def __len__(self) -> int:
        return len(self.parents) + self.closing

    @cached_property
    def visible(self) -> npt.NDArray[np.bool_]:
        """[m, m]: token i sees token j (itself and its ancestors; for a closing token, all before it)."""
        seen = np.eye(len(self), dtype=np.bool_)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen[node] |= seen[parent]
        closing = len(self.parents)
        seen[closing:] = np.tri(len(self), dtype=np.bool_)[closing:]
        return seen

    @cached_property
    def depths(self) -> Int32:
        """Depth of each token; 0 for one that follows the chain directly."""
        nodes = len(self.parents)
        depths = self.visible[:nodes].sum(axis=1) - 1
        closing = depths.max(initial=-1) + 1 + np.arange(self.closing)
        return np.concatenate([depths, closing]).astype(np.int32)


@dataclass(frozen=True, eq=False)
class AskBlock:
    """`A` asks of one shape.

    context   [A] context that each ask extends, -1 for none
    prefix    [A] tokens of the context that the ask sees
    tokens    A lists of new tokens
    keep      [A] how many leading new tokens stay in the context (the rest is rewound)
    reads     positions read in every ask, counted from its end (-1: the last token)
    tree      shape of the last tokens of every ask, where they are a tree
    into      [A] context that takes the kept tokens, where it is not the one that the ask extends
    """

    context: Int32
    prefix: Int64
    tokens: Ragged
    keep: Int64
    reads: tuple[int, ...] = ()
    readout: ReadoutSpec | None = None
    tree: TokenTree | None = None
    into: Int32 | None = None

    def __len__(self) -> int:
        return len(self.context)

    @property
    def token_count(self) -> int:
        """New tokens of all asks."""
        return len(self.tokens.values)


@dataclass(frozen=True, eq=False)
class Segments:
    """Runs of new tokens of one block inside a batch: where they begin, how long, what they see.

    `unit` [S] numbers the batch's shared prefixes (`Batch.unit_*`), -1 for none.
    """

    starts: Int64
    lengths: Int64
    unit: Int64
    tree: TokenTree | None


@dataclass(frozen=True, eq=False)
class Read:
    """Rows of the batch to read, [A * reads], ask by ask."""

    rows: Int64
    readout: ReadoutSpec


@dataclass(frozen=True, eq=False)
class Batch:
    """One run of a model.

    tokens, positions, slots   [T]; slot -1: the token's KV is dropped with the batch
    unit_pages, unit_lengths   [U, P], [U]: the shared prefixes (pages and visible tokens)
    copies                     [C, 2] slots (from, to) copied in every layer once its kept tokens are written
    """

    tokens: Int32
    positions: Int32
    slots: Int64
    segments: tuple[Segments, ...]
    unit_pages: Int32
    unit_lengths: Int64
    reads: tuple[Read, ...]
    copies: Int64
    blocks: tuple[AskBlock, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.tokens)


def build_batch(blocks: Sequence[AskBlock], contexts: ContextTable, copies: Int64 = NO_COPIES) -> Batch:
    """Join blocks into a batch. Contexts already have room for what the asks keep."""
    lengths = np.concatenate([block.tokens.lengths for block in blocks])
    offsets = offsets_of(lengths)
    context = np.concatenate([block.context for block in blocks])
    prefix = np.concatenate([block.prefix for block in blocks])
    unit, unit_pages, unit_lengths = _units(context, prefix, contexts)
    segments, reads, first = [], [], 0
    for block in blocks:
        own = slice(first, first + len(block))
        segments.append(Segments(offsets[:-1][own], lengths[own], unit[own], block.tree))
        if block.readout is not None:
            ends = offsets[1:][own]
            rows = (ends[:, None] + np.asarray(block.reads, dtype=np.int64)[None, :]).reshape(-1)
            reads.append(Read(rows, block.readout))
        first += len(block)
    return Batch(
        tokens=np.concatenate([block.tokens.values for block in blocks]),
        positions=_positions(blocks, prefix, lengths),
        slots=_slots(blocks, contexts, lengths, offsets),
        segments=tuple(segments),
        unit_pages=unit_pages,
        unit_lengths=unit_lengths,
        reads=tuple(reads),
        copies=copies,
        blocks=tuple(blocks),
    )


def _units(context: Int32, prefix: Int64, contexts: ContextTable) -> tuple[Int64, Int32, Int64]:
    """Distinct (context, prefix) pairs with a prefix: asks of one unit share its attention reads."""
    unit = np.full(len(context), -1, dtype=np.int64)
    seeing = np.flatnonzero(prefix > 0)
    if not len(seeing):
        return unit, np.zeros((0, 0), dtype=np.int32), np.zeros(0, dtype=np.int64)
    keys = context[seeing].astype(np.int64) << 32 | prefix[seeing]
    distinct, inverse = np.unique(keys, return_inverse=True)
    unit[seeing] = inverse
    lengths = distinct & 0xFFFFFFFF
    width = int(-(-lengths.max() // 16))
    return unit, contexts.table[distinct >> 32, :width].copy(), lengths


def _positions(blocks: Sequence[AskBlock], prefix: Int64, lengths: Int64) -> Int32:
    positions = ranges(prefix, lengths)
    first = 0
    for block in blocks:
        if block.tree is not None:
            own = positions[first : first + block.token_count]
            ends = block.tokens.offsets[1:]
            tail = ends[:, None] - len(block.tree) + np.arange(len(block.tree))
            chain_ends = block.prefix + block.tokens.lengths - len(block.tree)
            own[tail] = chain_ends[:, None] + block.tree.depths
        first += block.token_count
    return positions.astype(np.int32)


def _slots(blocks: Sequence[AskBlock], contexts: ContextTable, lengths: Int64, offsets: Int64) -> Int64:
    slots = np.full(int(offsets[-1]), -1, dtype=np.int64)
    keep = np.concatenate([block.keep for block in blocks])
    keeping = np.flatnonzero(keep > 0)
    if len(keeping):
        into = [block.context if block.into is None else block.into for block in blocks]
        context = np.concatenate(into)[keeping]
        prefix = np.concatenate([block.prefix for block in blocks])[keeping]
        rows = ranges(offsets[:-1][keeping], keep[keeping])
        slots[rows] = contexts.slots(context, prefix, keep[keeping])
    return slots
