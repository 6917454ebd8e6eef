"""Partners whose texts begin alike: an anchor computes what they share once, in a copy of its context.

A group reads the anchor's context for itself, which a longer start has to repay: soon on a CPU, later on a GPU. Groups
lie in groups: a copy is made of the copy around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.batch import AskBlock, Int32
from quail_frames.runtime.kv.memory import Memory
from quail_frames.runtime.kv.pages import PAGE, pages_for
from quail_frames.runtime.tokens.ragged import Int64, Ragged, common_start, offsets_of, ranges

LEAST_SAVED = 2
"""Tokens that a start must save: a copy costs the host some microseconds, less than a token or two of any device."""
DEEPEST = 8
"""Starts within starts that are shared; the questions of a deeper one are asked on what it lies in."""


@dataclass(frozen=True, eq=False)
class Level:
    """`group` [units]: the group of each partner unit, -1 for none; `starts`: what its questions begin with.

    `later` [groups]: partners of other joins that begin so too, and will be asked of the same anchors.
    """

    group: Int64
    starts: Ragged
    later: Int64


@dataclass(frozen=True, eq=False)
class AlikePartners:
    """Groups of neighbours whose questions begin alike, and, level by level, groups inside these that go on alike."""

    levels: tuple[Level, ...]

    def part(self, own: npt.NDArray[np.bool_]) -> AlikePartners:
        """The groups as one join sees them, to which these of the questions belong; the others are asked later."""
        found = []
        for level in self.levels:
            others = level.group[~own]
            later = np.bincount(others[others >= 0], minlength=len(level.starts))
            found.append(Level(level.group[own], level.starts, later))
        return AlikePartners(tuple(found))

    @staticmethod
    def of(questions: Ragged, left: int = 1) -> AlikePartners:
        """The groups that save some tokens. The questions are in `sorted_questions` order.

        Of each question at least `left` tokens are left.
        """
        alike = np.array([_common(a, b, left) for a, b in _neighbours(questions)], dtype=np.int64)
        found: list[list[tuple[int, int, int]]] = []
        for depth, *run in _nested(_runs(alike.tolist())):
            found += [[]] if depth == len(found) else []
            found[depth].append((run[0], run[1], run[2]))
        return AlikePartners(tuple(_level(questions, runs) for runs in found))


@dataclass(frozen=True, eq=False)
class Starts:
    """What the pairs of a batch see: `context` and `prefix` of each pair, and how many tokens it need not feed.

    `wanted`: copies that another join will want, each with the number of a pair that sees it and its start.
    """

    context: Int32
    prefix: Int64
    skip: Int64
    forks: Int32
    blocks: tuple[AskBlock, ...] = ()
    wanted: tuple[tuple[int, int, Int32], ...] = ()


def sorted_questions(questions: Ragged) -> Int64:
    """The order in which questions that begin alike are neighbours."""
    return np.array(sorted(range(len(questions)), key=lambda number: questions[number].tolist()), dtype=np.int64)


def share_starts_of_partners(
    alike: AlikePartners, units: Int64, contexts: Int32, prefixes: Int64, memory: Memory, skip: Int64 | None = None
) -> Starts:
    """Pairs of one batch, each on its anchor's context or on a copy of it that holds its group's start.

    Idle contexts are not evicted for copies; where pages are short, pairs are asked as they are. `skip`: tokens of
    each question that its context holds already.
    """
    none = np.zeros(len(units), dtype=np.int64)
    found = Starts(contexts, prefixes, none if skip is None else skip, np.zeros(0, dtype=np.int32))
    for level in alike.levels:
        found = _with_level(level, units, found, memory)
    return found


def _with_level(level: Level, units: Int64, before: Starts, memory: Memory) -> Starts:
    """The pairs of the level's groups on copies of what they see by now."""
    pairs = np.flatnonzero(level.group[units] >= 0)
    if not len(pairs):
        return before
    keys = before.context[pairs].astype(np.int64) << 32 | level.group[units[pairs]]
    distinct, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    groups, chosen = distinct & 0xFFFFFFFF, pairs[first]
    sources, prefixes, known = before.context[chosen], before.prefix[chosen], before.skip[chosen]
    new = level.starts.lengths[groups] - known
    worth = (counts - 1 + level.later[groups]) * new >= np.maximum(LEAST_SAVED, prefixes // memory.reads_of_a_token)
    pages = np.where(worth, pages_for(prefixes + new) - prefixes // PAGE, 0)
    own = np.flatnonzero(worth & (np.cumsum(pages) <= memory.contexts.pool.free // 2))
    if not len(own):
        return before
    forks = _forked(memory, sources[own], prefixes[own], new[own])
    fork_of = np.full(len(distinct), -1, dtype=np.int32)
    fork_of[own] = forks
    moved = np.flatnonzero(fork_of[inverse] >= 0)
    context, prefix, skip = before.context.copy(), before.prefix.copy(), before.skip.copy()
    context[pairs[moved]] = fork_of[inverse[moved]]
    prefix[pairs[moved]] += new[inverse[moved]]
    skip[pairs[moved]] += new[inverse[moved]]
    tokens = without_heads(level.starts.take(groups[own]), known[own])
    block = AskBlock(sources[own], prefixes[own], tokens, tokens.lengths, into=forks)
    wanted = [
        (int(fork), int(pair), level.starts[group])
        for fork, pair, group in zip(forks, chosen[own], groups[own].tolist(), strict=True)
        if level.later[group]
    ]
    every = np.concatenate([before.forks, forks])
    return Starts(context, prefix, skip, every, (*before.blocks, block), (*before.wanted, *wanted))


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


def _runs(alike: list[int]) -> Iterator[tuple[int, int, int]]:
    """(start, stop, tokens) of the runs of questions that begin alike, longest start last where they nest.

    `alike[n]` is what questions n and n + 1 have in common.
    """
    open_runs: list[tuple[int, int]] = []
    found: list[tuple[int, int, int]] = []
    for number, shared in enumerate([*alike, 0]):
        start = number
        while open_runs and open_runs[-1][1] > shared:
            start, tokens = open_runs.pop()
            found.append((start, number + 1, tokens))
        if shared and (not open_runs or open_runs[-1][1] < shared):
            open_runs.append((start, shared))
    return iter(sorted(found, key=lambda run: (run[0], -run[1])))


def _nested(runs: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """(depth, start, stop, tokens) of the runs that save enough over the one around them."""
    around: list[tuple[int, int]] = []
    for start, stop, tokens in runs:
        while around and around[-1][0] <= start:
            around.pop()
        before = around[-1][1] if around else 0
        if len(around) < DEEPEST and (stop - start - 1) * (tokens - before) >= LEAST_SAVED:
            yield len(around), start, stop, tokens
            around.append((stop, tokens))


def _level(questions: Ragged, runs: list[tuple[int, int, int]]) -> Level:
    group = np.full(len(questions), -1, dtype=np.int64)
    for number, (start, stop, _) in enumerate(runs):
        group[start:stop] = number
    starts = Ragged.of(questions[start][:count] for start, _, count in runs)
    return Level(group, starts, np.zeros(len(runs), dtype=np.int64))
