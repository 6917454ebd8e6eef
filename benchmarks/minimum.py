"""The fewest tokens that answer a set of prompts: the size of their prefix tree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.marks import UInt64, mix, token_marks
from quail_frames.runtime.tokens.ragged import Int64, Ragged, ranges


def minimum_tokens(prompts: Ragged, rows: Int64) -> int:
    """Tokens that must be computed for all prompts, `rows[i]` being the row (or anchor) that asks prompt i.

    Inside a row prompts share every token of their common starts. Across rows they share
    whole pages: a token is free where another, earlier row computes the page it lies in.
    Prefixes are told apart by 64-bit hashes.

    >>> minimum_tokens(Ragged.of([[1, 2, 3], [1, 2, 4]]), np.array([0, 0]))
    4
    """
    if not len(prompts.values):
        return 0
    positions = ranges(np.zeros(len(prompts), dtype=np.int64), prompts.lengths)
    prefixes = prefix_hashes(prompts, positions)
    row = np.repeat(np.asarray(rows, dtype=np.int64), prompts.lengths)
    last_of_page, whole = _page_ends(prompts, positions)
    free = np.zeros(len(row), dtype=np.bool_)
    free[whole] = _owners(prefixes[last_of_page[whole]], row[whole]) != row[whole]
    nodes = mix(prefixes ^ mix(row))
    return len(np.unique(nodes)) - len(np.unique(nodes[free]))


def distinct_prefixes(lists: Ragged, rows: Int64) -> int:
    """Tokens of the prefix trees of the lists, a tree for each row: nothing is shared across rows.

    >>> distinct_prefixes(Ragged.of([[1, 2], [1, 3], [1, 2]]), np.array([0, 0, 1]))
    5
    """
    positions = ranges(np.zeros(len(lists), dtype=np.int64), lists.lengths)
    rows = np.repeat(np.asarray(rows, dtype=np.int64), lists.lengths)
    return len(np.unique(mix(prefix_hashes(lists, positions) ^ mix(rows))))


def prefix_hashes(prompts: Ragged, positions: Int64) -> UInt64:
    """A hash of all tokens up to each token of its prompt, and of their number."""
    marks = token_marks(prompts.values, positions.astype(np.int32))
    before = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(marks, dtype=np.uint64)])
    return mix((before[1:] - np.repeat(before[prompts.offsets[:-1]], prompts.lengths)) ^ mix(positions))


def _page_ends(prompts: Ragged, positions: Int64) -> tuple[Int64, npt.NDArray[np.bool_]]:
    """Where the last token of each token's page stands, and whether the prompt reaches it."""
    ends = np.arange(len(positions)) + (PAGE - 1 - positions % PAGE)
    return ends, ends < np.repeat(prompts.offsets[1:], prompts.lengths)


def _owners(pages: UInt64, rows: Int64) -> Int64:
    """The lowest row that has each page."""
    distinct, inverse = np.unique(pages, return_inverse=True)
    owner = np.full(len(distinct), np.iinfo(np.int64).max)
    np.minimum.at(owner, inverse, rows)
    return owner[inverse]
