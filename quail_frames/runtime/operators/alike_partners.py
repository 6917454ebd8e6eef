"""Partners whose texts begin alike: an anchor computes what they share once, in a copy of its context.

A group reads the anchor's context for itself, which a longer start has to repay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quail_frames.runtime.batch import AskBlock, Int32
from quail_frames.runtime.kv.memory import Memory
from quail_frames.runtime.kv.pages import PAGE, pages_for
from quail_frames.runtime.tokens.ragged import Int64, Ragged, common_start, offsets_of, ranges

LEAST_SAVED = 4
READS_OF_A_TOKEN = 64
"""Tokens of a context that are read in about the time in which one is computed: by the roofline 30 (a model of 135M
parameters) to 90 (4B) on an H100, hundreds on a CPU."""
DEEPEST = 64
"""Starts within starts that are looked into; a longer chain of them stays one group."""


@dataclass(frozen=True, eq=False)
class AlikePartners:
    """`group` [units]: the group of each partner unit, -1 for none; `starts`: what its questions begin with."""

    group: Int64
    starts: Ragged

    @staticmethod
    def of(questions: Ragged, left: int = 1) -> AlikePartners:
        """Groups of neighbours, one level deep: those that save most. The questions are in `sorted_questions` order.

        Of each question at least `left` tokens are left.
        """
        alike = np.array([_common(a, b, left) for a, b in _neighbours(questions)], dtype=np.int64)
        runs = list(_best_runs(alike, 0, len(questions), 0)[1]) if len(questions) else []
        group = np.full(len(questions), -1, dtype=np.int64)
        for number, (start, stop, _) in enumerate(runs):
            group[start:stop] = number
        return AlikePartners(group, Ragged.of(questions[start][:count] for start, _, count in runs))


@dataclass(frozen=True, eq=False)
class Starts:
    """What the pairs of a batch see: `context` and `prefix` of each pair, and how many tokens it need not feed."""

    context: Int32
    prefix: Int64
    skip: Int64
    forks: Int32
    block: AskBlock | None = None


def sorted_questions(questions: Ragged) -> Int64:
    """The order in which questions that begin alike are neighbours."""
    return np.array(sorted(range(len(questions)), key=lambda number: questions[number].tolist()), dtype=np.int64)


def share_starts_of_partners(
    alike: AlikePartners, units: Int64, contexts: Int32, prefixes: Int64, memory: Memory
) -> Starts:
    """Pairs of one batch, each on its anchor's context or on a copy of it that holds its group's start.

    Idle contexts are not evicted for copies; where pages are short, pairs are asked as they are.
    """
    skip, none = np.zeros(len(units), dtype=np.int64), np.zeros(0, dtype=np.int32)
    plain = Starts(contexts, prefixes, skip, none)
    if not len(alike.starts):
        return plain
    pairs = np.flatnonzero(alike.group[units] >= 0)
    if not len(pairs):
        return plain
    keys = contexts[pairs].astype(np.int64) << 32 | alike.group[units[pairs]]
    distinct, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    groups, sources, before = distinct & 0xFFFFFFFF, contexts[pairs][first], prefixes[pairs][first]
    lengths = alike.starts.lengths[groups]
    worth = (counts - 1) * lengths >= np.maximum(LEAST_SAVED, before // READS_OF_A_TOKEN)
    pages = np.where(worth, pages_for(before + lengths) - before // PAGE, 0)
    chosen = np.flatnonzero(worth & (np.cumsum(pages) <= memory.contexts.pool.free // 2))
    if not len(chosen):
        return plain
    forks = _forked(memory, sources[chosen], before[chosen], lengths[chosen])
    fork_of = np.full(len(distinct), -1, dtype=np.int32)
    fork_of[chosen] = forks
    mine = fork_of[inverse]
    own = pairs[mine >= 0]
    context, prefix = contexts.copy(), prefixes.copy()
    context[own] = mine[mine >= 0]
    skip[own] = lengths[inverse[mine >= 0]]
    prefix[own] += skip[own]
    tokens = alike.starts.take(groups[chosen])
    block = AskBlock(sources[chosen], before[chosen], tokens, tokens.lengths, into=forks)
    return Starts(context, prefix, skip, forks, block)


def without_heads(lists: Ragged, skip: Int64) -> Ragged:
    """Each list without its first `skip` tokens."""
    if not skip.any():
        return lists
    lengths = lists.lengths - skip
    return Ragged(lists.values[ranges(lists.offsets[:-1] + skip, lengths)], offsets_of(lengths))


def _forked(memory: Memory, sources: Int32, prefixes: Int64, lengths: Int64) -> Int32:
    """A copy of each source's context with room for its start; sources come in runs."""
    found = []
    for start, stop in _equal_runs(sources):
        own = slice(start, stop)
        found.append(memory.fork(int(sources[start]), int(prefixes[start]), (prefixes + lengths)[own]))
    return np.concatenate(found)


def _equal_runs(values: Int32) -> Iterator[tuple[int, int]]:
    borders = np.flatnonzero(np.diff(values)) + 1
    yield from zip([0, *borders.tolist()], [*borders.tolist(), len(values)], strict=True)


def _neighbours(questions: Ragged) -> Iterator[tuple[Int32, Int32]]:
    return ((questions[number - 1], questions[number]) for number in range(1, len(questions)))


def _common(one: Int32, other: Int32, left: int) -> int:
    """How many leading tokens are the same, but for the last `left` of each."""
    return min(common_start(one, other), max(min(len(one), len(other)) - left, 0))


def _best_runs(alike: Int64, start: int, stop: int, depth: int) -> tuple[int, list[tuple[int, int, int]]]:
    """(tokens saved, runs (start, stop, tokens) that save them) of the questions from `start` to `stop`."""
    if stop - start < 2:
        return 0, []
    inner = alike[start : stop - 1]
    shared = int(inner.min())
    whole = (stop - start - 1) * shared, [(start, stop, shared)]
    if depth == DEEPEST:
        return whole
    borders = (np.flatnonzero(inner == shared) + start + 1).tolist()
    parts = [_best_runs(alike, a, b, depth + 1) for a, b in zip([start, *borders], [*borders, stop], strict=True)]
    saved = sum(each for each, _ in parts)
    if shared and whole[0] >= saved:
        return whole
    return saved, [run for _, runs in parts for run in runs]
