"""Both attention paths give what every token sees by definition, in float64, over random contexts, asks and trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quail_frames.runtime.attention import KvArena, TreeAttention
from quail_frames.runtime.batch import AskBlock, Batch, TokenTree, build_batch
from quail_frames.runtime.device.attention import KernelAttention
from quail_frames.runtime.device.plan import in_preorder, plan_batch
from quail_frames.runtime.device.staging import Stager
from quail_frames.runtime.kv.contexts import ContextTable
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.lanes import Lanes
from quail_frames.runtime.tokens.ragged import Ragged, offsets_of
from quail_frames.runtime.unified_attention import UnifiedAttention

HEAD_DIM, LAYERS, LAYER, PAGES = 8, 2, 1, 64
Float64 = npt.NDArray[np.float64]


class KernelPath:
    """`KernelAttention` with the writing that `qk_norm_rope_write` does before it, for rows in the batch's order."""

    unified = False

    def __init__(self, batch: Batch, arena: KvArena, windows: Sequence[int | None] = (None, None)) -> None:
        plan = plan_batch(batch, self.unified)
        tensors = Stager(torch.device("cpu")).stage(plan.arrays).tensors()
        self._attention = KernelAttention(plan, tensors, arena, windows, self.unified)
        order = in_preorder(batch)
        self._order = torch.arange(len(batch)) if order is None else torch.from_numpy(order)

    def __call__(self, layer: int, *qkv: Tensor) -> Tensor:
        q, k, v = (part[self._order] for part in qkv)
        kept = self._attention.slots >= 0
        for store, own in zip(self._attention.store(layer), (k, v), strict=True):
            store[self._attention.slots[kept]] = own[kept]
        out = torch.empty_like(q)
        out[self._order] = self._attention.attend(layer, q, k, v, quantize=False).view(q.shape)
        return out


class UnifiedKernelPath(KernelPath):
    unified = True


LANES = Lanes(3)


class TreeInLanes(TreeAttention):
    long = 4

    def __init__(self, batch: Batch, arena: KvArena, windows: Sequence[int | None] = ()) -> None:
        super().__init__(batch, arena, windows, LANES)


class UnifiedInLanes(UnifiedAttention):
    def __init__(self, batch: Batch, arena: KvArena, windows: Sequence[int | None] = ()) -> None:
        super().__init__(batch, arena, windows, LANES)


PATHS = pytest.mark.parametrize(
    "path", [TreeAttention, UnifiedAttention, TreeInLanes, UnifiedInLanes, KernelPath, UnifiedKernelPath]
)


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

    def __init__(self, case: Case) -> None:
        self.case, self.random = case, np.random.default_rng(case.seed)
        self.contexts = ContextTable(PAGES)
        self.numbers = self.contexts.open(len(case.lengths))
        for part in (2, 1):  # contexts grow in turns, so that their pages lie scattered
            self.contexts.extend(self.numbers, np.array(case.lengths) // part)
        self.arena = KvArena(LAYERS, PAGES, case.kv_heads, HEAD_DIM, torch.float32, torch.device("cpu"))
        for store in (self.arena.k, self.arena.v):
            store.fill_(torch.nan)
        self.stored = [self._store(context, length) for context, length in enumerate(case.lengths)]
        for ask in (ask for asks, _ in case.blocks for ask in asks if ask.keep):
            self.contexts.extend(self.numbers[[ask.context]], ask.prefix + ask.keep)
        blocks = [ask_block(*block, self.numbers) for block in case.blocks]
        self.batch = build_batch(blocks, self.contexts, self._copies())

    def _store(self, context: int, length: int) -> Float64:
        slots = self.contexts.slots(self.numbers[[context]], 0, length)
        stored = self.random.normal(size=(2, length, self.case.kv_heads, HEAD_DIM))
        self.arena.k[LAYER, slots], self.arena.v[LAYER, slots] = torch.from_numpy(stored).float()
        return stored

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


@PATHS
@settings(max_examples=60)
@given(case=cases(), window=st.sampled_from([None, None, 1, 7, 20, 45]))
def test_every_token_attends_to_what_it_sees(path: type, case: Case, window: int | None) -> None:
    world = World(case)
    rows, heads = len(world.batch), case.kv_heads * case.group
    q, kv = (
        world.random.normal(size=(rows, heads, HEAD_DIM)),
        world.random.normal(size=(2, rows, case.kv_heads, HEAD_DIM)),
    )
    attend = path(world.batch, world.arena, [None, window])
    got = attend(LAYER, *(torch.from_numpy(x).float() for x in (q, *kv))).numpy()
    for ask, tree, own in world.asks():
        before = world.stored[ask.context][:, : ask.prefix]
        keys, values = np.concatenate([before, kv[:, own]], axis=1)
        np.testing.assert_allclose(
            got[own], by_definition(q[own], keys, values, visible_to(ask, tree, window)), atol=1e-5
        )


@PATHS
@settings(max_examples=40)
@given(case=cases())
def test_only_what_asks_keep_and_rows_take_is_written(path: type, case: Case) -> None:
    world = World(case)
    kv = world.random.normal(size=(2, len(world.batch), case.kv_heads, HEAD_DIM)).astype(np.float32)
    expected = torch.stack([world.arena.k, world.arena.v])
    for ask, _, own in world.asks():
        if ask.keep:
            slots = world.contexts.slots(world.numbers[[ask.context]], ask.prefix, ask.keep)
            expected[:, LAYER, slots] = torch.from_numpy(kv[:, own][:, : ask.keep])
    sources, targets = torch.from_numpy(world.batch.copies).T
    expected[:, LAYER, targets] = expected[:, LAYER, sources]
    q = torch.zeros(len(world.batch), case.kv_heads * case.group, HEAD_DIM)
    path(world.batch, world.arena)(LAYER, q, *torch.from_numpy(kv))
    torch.testing.assert_close(torch.stack([world.arena.k, world.arena.v]), expected, rtol=0, atol=0, equal_nan=True)
