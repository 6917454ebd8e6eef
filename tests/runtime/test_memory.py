"""Every short history of admitting, keeping and closing documents leaves the page accounts right."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from quail_frames.runtime.kv.memory import Document, Memory
from quail_frames.runtime.kv.pages import PAGE, PagePool
from quail_frames.runtime.report import RunReport

START = np.arange(20, dtype=np.int32)
DOCUMENTS = [
    Document.of(START),
    Document.of(np.concatenate([START, np.arange(16, dtype=np.int32)])),
    Document.of(np.concatenate([START[:16], np.full(4, 7, dtype=np.int32)])),
    Document.of(np.full(5, 9, dtype=np.int32)),
]
TRAIL = np.array([3, 4, 5], dtype=np.int32)
STEPS = [
    *(("admit", number) for number in range(len(DOCUMENTS))),
    *(("trail", 0), ("keep", -1), ("close", 0), ("end", 0)),
]


class History:
    """A memory, and what should be in it."""

    def __init__(self, pages: int) -> None:
        self.memory = Memory(pages)
        self.active: list[tuple[int, Document]] = []

    def step(self, what: str, number: int) -> None:
        if what == "admit":
            document = DOCUMENTS[number]
            resident = self.memory.resident(document, TRAIL)
            admitted = self.memory.admit(document, len(document.tokens) + 3, RunReport(), TRAIL)
            if admitted is not None:
                assert admitted[1] <= resident <= len(document.tokens) + len(TRAIL)
                self.active.append((admitted[0], document))
        elif what == "end":
            self.memory.end(self)
        elif self.active:
            context, document = self.active.pop(number)
            if what == "keep":
                self.memory.keep(context, document, self)
            elif what == "trail":
                self.memory.keep(context, document, self, trail=TRAIL)
            else:
                self.memory.contexts.close(np.array([context], dtype=np.int32))

    def check(self) -> None:
        contexts, pool = self.memory.contexts, self.memory.contexts.pool
        used = [context for context, _ in self.active] + [idle.context for idle in self.memory._idle.values()]
        assert len(set(used)) == len(used) == contexts.open_contexts
        held = [contexts.table[context, : contexts.held[context]] for context in used]
        counts = np.bincount(np.concatenate([*held, np.zeros(0, dtype=np.int32)]), minlength=pool.pages)
        np.testing.assert_array_equal(counts, pool.references)
        assert pool.free == int((counts == 0).sum())
        for context, document in self.active:
            assert contexts.lengths[context] == len(document.tokens) + 3
            tail = contexts.table[context, len(document.tokens) // PAGE : contexts.held[context]]
            assert (pool.references[tail] == 1).all(), "what a context will write, nobody else reads"


@pytest.mark.parametrize(("pages", "steps"), [(2, 3), (3, 4), (5, 3)])
def test_every_short_history_keeps_the_accounts(pages: int, steps: int) -> None:
    for history in product(STEPS, repeat=steps):
        state = History(pages)
        for what, number in history:
            state.step(what, number)
            state.check()
        for context, _ in state.active:
            state.memory.contexts.close(np.array([context], dtype=np.int32))
        state.memory.end(state)
        assert state.memory.contexts.pool.free == pages and len(state.memory.index) == 0


def test_what_is_kept_behind_a_document_is_found_as_far_as_it_is_the_same() -> None:
    memory, document = Memory(8), DOCUMENTS[0]
    length = len(document.tokens)
    context, _ = memory.admit(document, length + len(TRAIL), RunReport()) or (-1, 0)
    memory.keep(context, document, "owner", trail=TRAIL)
    assert memory.resident(document) == length
    other = np.array([3, 4, 9, 9], dtype=np.int32)
    assert memory.resident(document, other) == length + 2
    assert memory.admit(document, length + 4, RunReport(), other) == (context, length + 2)


def test_where_pages_are_short_what_is_behind_documents_goes_before_any_document() -> None:
    memory, trail = Memory(6), np.zeros(16, dtype=np.int32)
    for document in (DOCUMENTS[0], DOCUMENTS[3]):
        context, _ = memory.admit(document, len(document.tokens) + 16, RunReport()) or (-1, 0)
        memory.keep(context, document, "owner", trail=trail)
    assert memory.contexts.pool.free == 1
    assert memory.fitting(np.array([33])) == 1
    assert memory.resident(DOCUMENTS[0], trail) == 20 and memory.resident(DOCUMENTS[3], trail) == 5


def test_a_copy_of_a_copy_is_taken_from_where_the_tokens_are_written() -> None:
    memory = Memory(16)
    source = int(memory.open(np.array([20]))[0])
    first = int(memory.fork(source, 20, np.array([24]))[0])
    second = int(memory.fork(first, 24, np.array([28]))[0])
    copies = {tuple(pair) for pair in memory.take_copies().tolist()}
    slots = {context: memory.contexts.slots(np.array([context]), 16, 8) for context in (source, first, second)}
    expected = {(slots[source][n], slots[first][n]) for n in range(4)}
    expected |= {(slots[source][n], slots[second][n]) for n in range(4)}
    assert copies == expected | {(slots[first][n], slots[second][n]) for n in range(4, 8)}


def test_a_hash_collision_shares_nothing() -> None:
    memory = Memory(8)
    first = Document.of(np.arange(32, dtype=np.int32))
    memory.admit(first, 32, RunReport())
    other = Document(np.arange(100, 132, dtype=np.int32), first.hashes)
    assert memory.resident(other) == 0
    assert memory.admit(other, 32, RunReport()) is not None
    context = memory.admit(first, 32, RunReport())
    assert context is not None and context[1] == 32


def test_a_page_returns_with_its_last_reference() -> None:
    pool = PagePool(3)
    pages = pool.take(2)
    pool.share(pages)
    pool.release(pages)
    assert pool.free == 1
    pool.release(np.concatenate([pages, np.zeros(0, dtype=np.int32)]))
    assert pool.free == 3
