"""Tree masks, tiles and page tables describe the batch they were built from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quail_frames.kernels import PagedContexts, QueryGroups, SuffixMask, preorder
from quail_frames.kernels.attention_inputs import subtree_ends


@st.composite
def preorder_forests(draw: st.DrawFn) -> np.ndarray:
    path: list[int] = []
    parents = []
    for token in range(draw(st.integers(0, 25))):
        path = path[: draw(st.integers(0, len(path)))]
        parents.append(path[-1] if path else -1)
        path.append(token)
    return np.array(parents, dtype=np.int64)


@given(preorder_forests())
def test_a_token_sees_exactly_its_ancestors_and_itself(parents: np.ndarray) -> None:
    count = len(parents)
    mask = SuffixMask.from_parents(parents)
    query, key = torch.arange(count)[:, None], torch.arange(count)[None, :]
    visible = (key <= query) & mask.sees(query, 0, count)
    for token in range(count):
        line, at = set(), token
        while at >= 0:
            line.add(at)
            at = int(parents[at])
        assert set(visible[token].nonzero()[:, 0].tolist()) == line


@given(st.lists(st.integers(0, 2**16), max_size=20), st.integers(0, 3))
def test_any_forest_can_be_laid_out_in_preorder(draws: list[int], roots: int) -> None:
    parents = np.array([draw % (i + 1) - 1 if i >= roots else -1 for i, draw in enumerate(draws)], dtype=np.int64)
    order = preorder(parents)
    assert sorted(order.tolist()) == list(range(len(parents)))
    place = np.argsort(order)
    moved = np.array([place[parents[old]] if parents[old] >= 0 else -1 for old in order], dtype=np.int64)
    subtree_ends(moved)  # raises unless it is one
    siblings = [old for old in order if parents[old] == -1]
    assert siblings == sorted(siblings)


@pytest.mark.parametrize(
    ("parents", "message"), [([1, -1], "token 0 stands before its parent 1"), ([-1, 0, 0, 1], "token 3 is cut off")]
)
def test_trees_out_of_preorder_are_refused(parents: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subtree_ends(np.array(parents))


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(1, 9))
def test_tiles_cover_every_token_once_and_stay_in_their_group(lengths: list[int], queries: int) -> None:
    groups = QueryGroups.of(lengths)
    tile_group, tile_first = groups.tiles(queries)
    covered = []
    for group, first in zip(tile_group.tolist(), tile_first.tolist(), strict=True):
        end = min(first + queries, int(groups.offsets[group + 1]))
        assert groups.offsets[group] <= first < end
        covered += range(first, end)
    assert covered == list(range(sum(lengths)))
    assert groups.longest() == max(lengths, default=0)
    assert groups.tiles(queries)[0] is tile_group, "layers share the tiles of a batch"


@given(st.integers(0, 48), st.sampled_from([1, 16]))
def test_slots_follow_the_pages(length: int, page_size: int) -> None:
    pages = torch.randperm(60, generator=torch.Generator().manual_seed(length)).int()
    contexts = PagedContexts(pages, torch.tensor([0, 7]), torch.tensor([0, length], dtype=torch.int32), page_size)
    wanted = [int(pages[7 + i // page_size]) * page_size + i % page_size for i in range(length)]
    assert contexts.slots(1).tolist() == wanted
    assert contexts.slots(0).tolist() == []
    held = -(-length // page_size)
    assert contexts.table()[1, :held].tolist() == pages[7 : 7 + held].tolist()
    assert contexts.table().shape == (2, max(held, 1))
    assert contexts.table() is contexts.table(), "layers share the table of a batch"
