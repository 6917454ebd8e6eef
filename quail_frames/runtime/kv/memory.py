"""The KV memory of an engine: contexts in use, and idle ones kept because somebody may come back to them.

An idle context is worth `reuse x recompute cost / pages`; when pages are short, the least
valuable go first, and among equals the one kept last, whose turn is furthest away (the
consumer works in the order in which contexts were kept; Belady's rule).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from quail_frames.runtime.kv.contexts import ContextTable, Int32, Int64
from quail_frames.runtime.kv.pages import PAGE, pages_for
from quail_frames.runtime.kv.prefixes import PrefixIndex, prefix_hashes
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.ragged import common_start

NO_TOKENS: Int32 = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class Idle:
    """A context that nobody uses now, holding exactly `tokens` (its document) and, behind them, `trail`."""

    context: int
    tokens: Int32
    trail: Int32
    owner: object
    worth: float
    number: int


@dataclass(frozen=True, eq=False)
class Document:
    """Tokens of a document, with the hashes of all their prefixes."""

    tokens: Int32
    hashes: npt.NDArray[np.uint64]

    @staticmethod
    def of(tokens: Int32) -> Document:
        """Hash the tokens."""
        return Document(tokens, prefix_hashes(tokens))

    @property
    def key(self) -> int:
        """Hash of the whole document."""
        return int(self.hashes[-1]) if len(self.hashes) else 0


class Memory:
    """Contexts in a fixed number of pages.

    Parameters
    ----------
    pages
        Pages of 16 tokens in all.
    recompute_cost
        What computing a document of so many tokens costs, in any unit.
    share_from
        Documents share pages where at least so many leading ones are alike: fewer cost the
        host more than they save the device.
    reads_of_a_token
        Tokens of a context that the device reads in the time in which it computes one.
    """

    def __init__(
        self,
        pages: int,
        recompute_cost: Callable[[int], float] = float,
        share_from: int = 1,
        reads_of_a_token: int = 64,
    ) -> None:
        self.share_from = share_from
        self.reads_of_a_token = reads_of_a_token
        self.contexts = ContextTable(pages)
        self.index = PrefixIndex(pages)
        self.contexts.pool.on_free = self.index.forget
        self._recompute_cost = recompute_cost
        self._idle: dict[int, Idle] = {}
        self._by_worth: list[tuple[float, int, int]] = []
        self._evicted: set[int] = set()
        self._trailing: dict[int, None] = {}
        self._kept = 0
        self._copies: list[Int64] = []

    @property
    def pages(self) -> int:
        """Pages in all."""
        return self.contexts.pool.pages

    def can_hold(self, lengths: Int64) -> npt.NDArray[np.bool_]:
        """Which contexts of these lengths would fit into the empty memory."""
        return pages_for(lengths) <= self.pages

    def fitting(self, lengths: Int64) -> int:
        """How many new contexts of these lengths, taken in order, there is room for; idle ones make room."""
        return self.room_for(pages_for(lengths))

    def room_for(self, pages: Int64) -> int:
        """How many of these needs of pages, taken in order, can be met; idle contexts make room."""
        total = np.cumsum(pages)
        self._free_up(int(total[-1]) if len(total) else 0)
        return int(np.searchsorted(total, self.contexts.pool.free, side="right"))

    def open(self, lengths: Int64) -> Int32:
        """New contexts with room for `lengths` tokens; the caller has asked `fitting`."""
        contexts = self.contexts.open(len(lengths))
        self.contexts.extend(contexts, lengths)
        return contexts

    def extend(self, contexts: Int32, lengths: Int64) -> bool:
        """Make room for `lengths` tokens in contexts in use; False, and nothing done, where there is none."""
        if not self._free_up(int(self.contexts.missing_pages(contexts, lengths).sum())):
            return False
        self.contexts.extend(contexts, lengths)
        return True

    @property
    def keeps_any(self) -> bool:
        """Some document is kept for who comes back to it."""
        return bool(self._idle)

    def keeps(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of the documents with these keys are kept."""
        return np.array([key in self._idle for key in keys.tolist()], dtype=np.bool_)

    def resident(self, document: Document, trail: Int32 = NO_TOKENS) -> int:
        """How many leading tokens of the document, and of `trail` behind it, `admit` would find."""
        idle = self._idle_of(document)
        if idle is not None:
            return len(document.tokens) + common_start(idle.trail, trail)
        return len(self.index.match(document.tokens, document.hashes)) * PAGE

    def admit(
        self, document: Document, length: int, report: RunReport, trail: Int32 = NO_TOKENS
    ) -> tuple[int, int] | None:
        """A context for the document with room for `length` tokens in all, begun with what is resident.

        Returns (context, resident tokens: of the document, and of `trail` behind it where it is kept with one), or
        None where the memory is short. The whole pages of the document can be shared by those that come later.
        """
        admitted = self._adopt(document, length, trail) or self._begin(document, length)
        if admitted is None:
            return None
        context, prefix = admitted
        if document.key in self._evicted:
            self._evicted.discard(document.key)
            report.regret_tokens += len(document.tokens) - prefix
        self.index.register(document.tokens, document.hashes, self.contexts.table[context])
        return context, prefix

    def fork(self, source: int, tokens: int, lengths: Int64) -> Int32:
        """Contexts that begin with the first `tokens` tokens of another, with room for `lengths`.

        As many of them, in order, as there is room for. Whole pages are shared; the tokens
        of a partial last page are copied by the next batch.
        """
        whole = tokens // PAGE
        count = self.room_for(pages_for(lengths) - whole)
        shared = self.contexts.table[source, :whole].copy()
        self.contexts.pool.share(np.tile(shared, count))
        forks = self.contexts.open(count)
        self.contexts.begin(forks, shared)
        self.contexts.extend(forks, lengths[:count])
        rest = [self.contexts.slots(c, whole * PAGE, tokens - whole * PAGE) for c in (np.array([source]), forks)]
        self._copies.append(np.stack([np.tile(rest[0], count), rest[1]], axis=1))
        return forks

    def take_copies(self) -> Int64:
        """Slots (from, to) that the next batch has to copy, [C, 2]."""
        copies, self._copies = self._copies, []
        return _from_written(np.concatenate([np.zeros((0, 2), dtype=np.int64), *copies]))

    def keep(
        self, context: int, document: Document, owner: object, reuse: float = 1.0, trail: Int32 = NO_TOKENS
    ) -> None:
        """Leave a context idle, rewound to its document and the `trail` behind it; its owner ends it with `end`.

        What is asked next may begin with the same trail. Where pages are short, trails go before any document.
        """
        one = np.array([context], dtype=np.int32)
        if document.key in self._idle:
            self.contexts.close(one)
            return
        self._kept += 1
        pages = int(pages_for(len(document.tokens)))
        worth = reuse * self._recompute_cost(len(document.tokens)) / max(pages, 1)
        self.contexts.rewind(one, np.array([len(document.tokens) + len(trail)]))
        self._put_idle(document.key, Idle(context, document.tokens, trail, owner, worth, self._kept))

    def end(self, owner: object) -> None:
        """Close the idle contexts of an owner; nobody comes back to them."""
        for key in [key for key, idle in self._idle.items() if idle.owner is owner]:
            self._close_idle(key)
        if not self._idle:
            self._by_worth.clear()
            self._trailing.clear()
            self._evicted.clear()

    def _adopt(self, document: Document, length: int, trail: Int32) -> tuple[int, int] | None:
        idle = self._idle_of(document)
        if idle is None:
            return None
        del self._idle[document.key]
        self._trailing.pop(document.key, None)
        one = np.array([idle.context], dtype=np.int32)
        found = len(document.tokens) + common_start(idle.trail, trail)
        if self.extend(one, np.array([max(length, found)])):
            return idle.context, found
        self._put_idle(document.key, idle)
        return None

    def _begin(self, document: Document, length: int) -> tuple[int, int] | None:
        pool = self.contexts.pool
        shared = self.index.match(document.tokens, document.hashes)
        pool.share(shared)
        if not self._free_up(int(pages_for(length)) - len(shared)):
            pool.release(shared)
            return None
        context = self.contexts.open(1)
        self.contexts.begin(context, shared)
        self.contexts.extend(context, np.array([length]))
        return int(context[0]), len(shared) * PAGE

    def _put_idle(self, key: int, idle: Idle) -> None:
        self._idle[key] = idle
        if len(idle.trail):
            self._trailing[key] = None
        heapq.heappush(self._by_worth, (idle.worth, -idle.number, key))

    def _idle_of(self, document: Document) -> Idle | None:
        idle = self._idle.get(document.key)
        return idle if idle is not None and np.array_equal(idle.tokens, document.tokens) else None

    def _free_up(self, pages: int) -> bool:
        """Drop trails, then evict idle contexts, least valuable first, until so many pages are free."""
        pool = self.contexts.pool
        while pool.free < pages and self._trailing:
            self._drop_trail(self._trailing.popitem()[0])
        while pool.free < pages and self._by_worth:
            _, number, key = heapq.heappop(self._by_worth)
            if key in self._idle and self._idle[key].number == -number:
                self._evicted.add(key)
                self._close_idle(key)
        return pool.free >= pages

    def _drop_trail(self, key: int) -> None:
        idle = self._idle[key]
        self.contexts.rewind(np.array([idle.context], dtype=np.int32), np.array([len(idle.tokens)]))
        self._idle[key] = replace(idle, trail=NO_TOKENS)

    def _close_idle(self, key: int) -> None:
        self._trailing.pop(key, None)
        self.contexts.close(np.array([self._idle.pop(key).context], dtype=np.int32))


def _from_written(copies: Int64) -> Int64:
    """The copies, all done at once, with what an earlier one writes taken from where that one reads.

    >>> _from_written(np.array([[10, 20], [20, 30], [40, 10]])).tolist()
    [[10, 20], [10, 30], [40, 10]]
    """
    if not np.isin(copies[:, 0], copies[:, 1]).any():
        return copies
    origin: dict[int, int] = {}
    for place, (source, target) in enumerate(copies.tolist()):
        copies[place, 0] = origin[target] = origin.get(source, source)
    return copies
