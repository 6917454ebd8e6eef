"""Random contexts, asks and trees with what each token sees by definition, for tests of attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import strategies as st

from quail_frames.runtime.attention import KvArena
from quail_frames.runtime.batch import AskBlock, TokenTree, build_batch
from quail_frames.runtime.kv.contexts import ContextTable
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.tokens.ragged import Ragged, offsets_of

HEAD_DIM, LAYERS, LAYER, PAGES = 8, 2, 1, 64
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ask:
    """`tokens` new tokens after the first `prefix` of context `context` (-1: of none); the first `keep` stay."""

    context: int
    prefix: int
    tokens: int
    keep: int


@dataclass(frozen=True)
class Tree:
    """Parents of the tree's tokens, and how many tokens close it."""

    parents: tuple[int, ...]
    closing: int

    def __len__(self) -> int:
        return len(self.parents) + self.closing


@dataclass(frozen=True)
class Case:
    """Contexts of these lengths and blocks of asks on them, the asks of a block ending in one tree."""

    lengths: list[int]
    blocks: list[tuple[list[Ask], Tree]]
    kv_heads: int
    group: int
    seed: int


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    size = draw(st.integers(0, 4))
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(size))
    return Tree(parents, draw(st.integers(0, 3)) if size else 0)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    lengths = draw(st.lists(st.integers(0, 50), min_size=1, max_size=4))
    writers = set(range(len(lengths)))
    blocks = []
    for _ in range(draw(st.integers(1, 3))):
        tree = draw(trees())
        asks = [draw(one_ask(lengths, writers, len(tree))) for _ in range(draw(st.integers(1, 5)))]
        blocks.append((asks, tree))
    shape = draw(st.sampled_from([(1, 1), (1, 3), (2, 1), (3, 3)]))
    return Case(lengths, blocks, *shape, seed=draw(st.integers(0, 9)))


@st.composite
def one_ask(draw: st.DrawFn, lengths: list[int], writers: set[int], tree: int) -> Ask:
    context = draw(st.integers(-1, len(lengths) - 1))
    tokens = tree + draw(st.integers(0 if tree else 1, 40))
    if context < 0:
        return Ask(-1, 0, tokens, 0)
    if context in writers and draw(st.booleans()):
        writers.discard(context)  # two asks of a batch never extend one context
        return Ask(context, lengths[context], tokens, draw(st.integers(0, tokens - tree)))
    return Ask(context, draw(st.integers(0, lengths[context])), tokens, 0)


def ask_block(asks: list[Ask], tree: Tree, contexts: npt.NDArray[np.int32]) -> AskBlock:
    lengths = np.array([ask.tokens for ask in asks])
    tokens = Ragged(np.zeros(lengths.sum(), dtype=np.int32), offsets_of(lengths))
    chosen = np.array([contexts[ask.context] if ask.context >= 0 else -1 for ask in asks], dtype=np.int32)
    prefix, keep = (np.array([getattr(ask, name) for ask in asks]) for name in ("prefix", "keep"))
    shape = TokenTree(np.array(tree.parents, dtype=np.int32), tree.closing) if len(tree) else None
    return AskBlock(chosen, prefix, tokens, keep, tree=shape)


def by_definition(q: Float64, keys: Float64, values: Float64, visible: npt.NDArray[np.bool_]) -> Float64:
    """softmax(q k) v of one ask: q [n, heads, d], keys and values [m, KV heads, d], visible [n, m]."""
    group = q.shape[1] // keys.shape[1]
    keys, values = keys.repeat(group, axis=1), values.repeat(group, axis=1)
    scores = np.einsum("nhd,mhd->hnm", q, keys) / np.sqrt(q.shape[-1])
    scores = np.where(visible[None], scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.einsum("hnm,mhd->nhd", shares / shares.sum(axis=2, keepdims=True), values)


def visible_to(ask: Ask, tree: Tree, window: int | None) -> npt.NDArray[np.bool_]:
    """[tokens, prefix + tokens], walked token by token."""
    seen = np.zeros((ask.tokens, ask.tokens), dtype=np.bool_)
    places = np.zeros(ask.tokens, dtype=np.int64)
    chain = ask.tokens - len(tree)
    for token in range(ask.tokens):
        node = token - chain
        if node >= len(tree.parents):
            seen[token, :token] = True
            places[token] = places[:token].max() + 1
        else:
            parent = tree.parents[node] if node >= 0 else -1
            before = token - 1 if node < 0 else chain + parent if parent >= 0 else chain - 1
            if before >= 0:
                seen[token] = seen[before]
                places[token] = places[before] + 1
        seen[token, token] = True
    whole = np.concatenate([np.ones((ask.tokens, ask.prefix), dtype=np.bool_), seen], axis=1)
    if window is not None:
        keys = np.concatenate([np.arange(ask.prefix), ask.prefix + places])
        whole &= ask.prefix + places[:, None] - keys < window
    return whole


class World:
    """A case's contexts with random K and V in the arena, and its batch."""

    def __init__(self, case: Case, head_dim: int = HEAD_DIM, dtype: torch.dtype = torch.float32) -> None:
        self.head_dim, self.dtype = head_dim, dtype
        self.case, self.random = case, np.random.default_rng(case.seed)
        self.contexts = ContextTable(PAGES)
        self.numbers = self.contexts.open(len(case.lengths))
        for part in (2, 1):  # contexts grow in turns, so that their pages lie scattered
            self.contexts.extend(self.numbers, np.array(case.lengths) // part)
        self.arena = KvArena(LAYERS, PAGES, case.kv_heads, head_dim, dtype, torch.device("cpu"))
        for store in (self.arena.k, self.arena.v):
            store.fill_(torch.nan)
        self.stored = [self._store(context, length) for context, length in enumerate(case.lengths)]
        for ask in (ask for asks, _ in case.blocks for ask in asks if ask.keep):
            self.contexts.extend(self.numbers[[ask.context]], ask.prefix + ask.keep)
        blocks = [ask_block(*block, self.numbers) for block in case.blocks]
        self.batch = build_batch(blocks, self.contexts, self._copies())

    def _store(self, context: int, length: int) -> Float64:
        slots = self.contexts.slots(self.numbers[[context]], 0, length)
        stored = self.draw(2, length, self.case.kv_heads)
        self.arena.k[LAYER, slots], self.arena.v[LAYER, slots] = torch.from_numpy(stored).to(self.dtype)
        return stored

    def draw(self, *sizes: int) -> Float64:
        """Random heads [*sizes, head_dim], numbers that the arena's type holds."""
        drawn = torch.from_numpy(self.random.normal(size=(*sizes, self.head_dim)))
        return drawn.to(self.dtype).double().numpy()

    def _copies(self) -> npt.NDArray[np.int64]:
        """The last token of every context, old or new, goes to a slot that no context has."""
        used = np.flatnonzero(self.contexts.lengths[self.numbers] > 0)
        last = self.contexts.slots(self.numbers[used], self.contexts.lengths[self.numbers[used]] - 1, 1)
        return np.stack([last, PAGES * PAGE - 1 - np.arange(len(used))], axis=1)

    def asks(self) -> Iterator[tuple[Ask, Tree, slice]]:
        """Every ask with its tree and its rows."""
        row = 0
        for asks, tree in self.case.blocks:
            for ask in asks:
                yield ask, tree, slice(row, row + ask.tokens)
                row += ask.tokens

    def expected(self, q: Float64, kv: Float64, window: int | None = None) -> Iterator[tuple[slice, Float64]]:
        """Rows of every ask, and the attention of q [T, heads, d] by definition; kv [2, T, KV heads, d]."""
        for ask, tree, own in self.asks():
            before = self.stored[ask.context][:, : ask.prefix]
            keys, values = np.concatenate([before, kv[:, own]], axis=1)
            yield own, by_definition(q[own], keys, values, visible_to(ask, tree, window))
